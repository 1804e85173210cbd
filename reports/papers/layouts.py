"""How the papers print their tables: the fields that tell rows and columns apart, and what we call them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from reports.papers.published import Published


@dataclass(frozen=True)
class Layout:
    """One table. Rows and columns stand in the order in which `results/published` has them, which is the printed one.

    Fields are those of `Published`; `heading` is the data set as printed; any other word is one of a number's settings.
    """

    number: str  #: as printed, or "text" and the section
    title: str
    rows: Sequence[str]  #: fields that tell rows apart
    columns: Sequence[str]  #: fields that tell columns apart
    groups: Sequence[str] = ()  #: fields of a heading over neighbouring rows
    heads: Sequence[str] = ()  #: fields of a heading over neighbouring columns
    notes: Sequence[str] = ()  #: notes for the reader besides those of the numbers


@dataclass(frozen=True)
class Own:
    """Our number for a printed one: a metric of the first of these task families that measured the data set."""

    families: Sequence[str]
    metric: str  #: "" = the main one of the data set in the DataComp suite


@dataclass(frozen=True)
class Paper:
    """All tables of one paper, with the meaning of its words here."""

    name: str  #: file of `results/published`
    title: str
    layouts: tuple[Layout, ...]
    words: Mapping[str, str] = field(default_factory=dict)  #: a field's text -> shorter, for rows and columns
    metrics: Mapping[str, Own] = field(default_factory=dict)  #: as printed -> ours
    #: heading of an average over a row -> data sets of the row that it leaves out
    averages: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: heading of an average over data sets that need no columns of their own -> their group in the catalogue
    means: Mapping[str, str] = field(default_factory=dict)
    #: printed method, with its setting K if it has one -> ours, where rows of one table are measured differently
    rows: Mapping[str, Own] = field(default_factory=dict)
    scores: Mapping[str, str] = field(default_factory=dict)  #: printed setting -> score of ours; else the method's own
    radar: Sequence[str] = ()  #: tables whose data sets and metrics are the axes of the paper's radar

    def text(self, number: Published, names: Sequence[str], join: str = " ") -> str:
        """Join the texts of a number's fields in the words of the table; empty ones are left out."""
        values = [value(number, name) for name in names]
        return join.join(filter(None, (self.words.get(one, one) for one in values)))


def value(number: Published, name: str) -> str:
    """Return a field of a number, or one of its settings as "name=value"; "" if it has none."""
    if hasattr(number, name):
        return str(getattr(number, name))
    return next((one for one in number.setting.split("; ") if one.startswith(f"{name}=")), "")


def _paper(name: str, content: Mapping[str, Any]) -> Paper:
    """Read a paper of layouts.yaml: fields of a table are a line of words, our numbers are [family, ..., metric]."""
    fields = ("rows", "columns", "groups", "heads")
    layouts = [
        Layout(number, **{key: text.split() if key in fields else text for key, text in table.items()})
        for number, table in content["tables"].items()
    ]
    own: dict[str, Any] = {
        key: {printed: Own(families, metric) for printed, (*families, metric) in content.get(key, {}).items()}
        for key in ("metrics", "rows")
    }
    rest: dict[str, Any] = {key: part for key, part in content.items() if key not in ("tables", "metrics", "rows")}
    return Paper(name, layouts=tuple(layouts), **rest, **own)


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where libyaml is there
_CONTENT = yaml.load((Path(__file__).parent / "layouts.yaml").read_bytes(), _LOADER)
DATASETS: Mapping[str, str] = _CONTENT["datasets"]  #: as the papers mean them -> our name
PAPERS = {name: _paper(name, content) for name, content in _CONTENT["papers"].items()}
