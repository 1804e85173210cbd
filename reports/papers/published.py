"""The papers' own numbers, as printed. They are never ranked with each other or with ours."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bench.errors import UserError


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


_COLUMNS = {field.name for field in fields(Published)} - {"paper", "heading"} | {"dataset_probably_meant"}


def read(folder: Path, paper: str) -> list[Published]:
    """All numbers of one paper, in the paper's order. UserError for a paper that is not there or a broken file."""
    path = folder / f"{paper}.csv"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.csv")))
        raise UserError(f"{path}: no published numbers of {paper!r}; there are {known}")
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        if set(lines.fieldnames or ()) != _COLUMNS:
            raise UserError(f"{path}: the columns should be {', '.join(sorted(_COLUMNS))}")
        return [_number(paper, line) for line in lines]


def _number(paper: str, line: dict[str, Any]) -> Published:
    meant, heading = line.pop("dataset_probably_meant"), line["dataset"]
    numbers = {name: float(line[name]) if line[name] else None for name in ("value", "std", "noise_rate")}
    return Published(**{**line, **numbers, "paper": paper, "heading": heading, "dataset": meant or heading})
