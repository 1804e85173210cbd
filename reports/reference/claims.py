"""The papers' main orderings as data, results/published/claims.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.errors import UserError, nearest
from reports.papers.layouts import PAPERS

FILE = "claims.yaml"


@dataclass(frozen=True)
class Claim:
    """One ordering as printed, and the rows and the measure that stand for it here."""

    better: str  #: as the paper calls it
    worse: str
    printed: tuple[float, float]  #: of the better and of the worse one, as printed
    table: str  #: its number in the paper
    dataset: str  #: as printed
    metric: str
    rows: tuple[str, str]  #: labels of a suite
    measure: str  #: key of `Claims.measures`
    pretrain: str = ""  #: beginning of the numbers' training data, if the table has several
    backbone: str = ""  #: beginning of the numbers' towers, if the table has several
    settings: tuple[str, str] = ("", "")  #: of the better and of the worse one


@dataclass(frozen=True)
class PaperClaims:
    """The claims of a paper with its setting."""

    printed: str  #: what they were made with
    differs: str  #: why the order may be another one here
    rates: tuple[float, ...]  #: noise rates under which they are judged
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class ClaimMeasure:
    """A mean over parts; a part is the mean over all data sets measured with (task or its family, metric)."""

    label: str
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Claims:
    """All claims with the measures that they name."""

    comparison: str  #: folder of results/reference that they are judged by
    measures: Mapping[str, ClaimMeasure]
    papers: Mapping[str, PaperClaims]


def read_claims(folder: Path) -> Claims:
    """Return the claims that lie beside the papers' numbers. UserError if a field of the file does not fit."""
    path = folder / FILE
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        measures = {name: _measure(one) for name, one in content["measures"].items()}
        papers = {name: _paper(one) for name, one in content["papers"].items()}
        claims = Claims(str(content["comparison"]), measures, papers)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: is no file of claims: {type(error).__name__}: {error}") from error
    for paper, one in papers.items():
        if paper not in PAPERS:
            raise UserError(f"{path}: papers: {paper!r} is no paper{nearest(paper, PAPERS)}")
        for place, claim in enumerate(one.claims):
            if claim.measure not in measures:
                field = f"papers.{paper}.claims.{place}.measure"
                raise UserError(f"{path}: {field}: {claim.measure!r} is no measure{nearest(claim.measure, measures)}")
    return claims


def _measure(entry: Mapping[str, Any]) -> ClaimMeasure:
    return ClaimMeasure(str(entry["label"]), tuple((one["task"], one["metric"]) for one in entry["parts"]))


def _paper(entry: Mapping[str, Any]) -> PaperClaims:
    claims = tuple(Claim(**{name: _frozen(value) for name, value in one.items()}) for one in entry["claims"])
    return PaperClaims(entry["printed"], entry["differs"], tuple(map(float, entry["rates"])), claims)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
