"""The papers' own numbers, as printed. They are never ranked with each other or with ours."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Published:
    """One printed number."""

    paper: str  #: name of the file
    table: str
    method: str
    dataset: str  #: as meant, where the printed heading is an error
    metric: str
    value: float  #: in the paper's unit, mostly percent
    std: float | None
    pretrain: str
    backbone: str
    noise_rate: float | None  #: share of pairs corrupted on purpose, None = none was
    setting: str
    note: str
    heading: str  #: the data set as printed

    @property
    def source(self) -> str:
        """ "ncu, Table 1"."""
        return f"{self.paper}, {self.table if self.table.startswith('text') else f'Table {self.table}'}"


def read(folder: Path, paper: str) -> list[Published]:
    """All numbers of one paper, in the paper's order."""
    with (folder / f"{paper}.csv").open(newline="", encoding="utf-8") as file:
        return [_number(paper, line) for line in csv.DictReader(file)]


def _number(paper: str, line: dict[str, Any]) -> Published:
    meant, heading = line.pop("dataset_probably_meant"), line["dataset"]
    numbers = {name: float(line[name]) if line[name] else None for name in ("value", "std", "noise_rate")}
    return Published(**{**line, **numbers, "paper": paper, "heading": heading, "dataset": meant or heading})
