"""Typed tables: the content of a report, independent of its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Literal

State = Literal["value", "missing", "running", "interrupted", "failed", "damaged", "not applicable"]
#: "printed": a number in the unit that its paper prints it in, mostly percent
Unit = Literal["percent", "printed", "count", "flops", "seconds", "bytes", "ratio", "text"]

Scale = tuple[float, str]  #: size and prefix (or larger unit) of a cost

_STEPS: Mapping[str, tuple[tuple[float, str], ...]] = {
    "count": ((1e9, "G"), (1e6, "M"), (1e3, "k")),
    "flops": ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")),
    "bytes": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")),
    "seconds": ((3600.0, "h"), (60.0, "min")),
}


def show(value: float, unit: Unit, digits: int = 1, one_scale: Scale | None = None) -> str:
    """A number as printed: percent with `digits` decimals, costs with three digits and their unit's prefix.

    `one_scale` is that of its column; without one, a cost chooses its own.
    """
    if unit in ("percent", "printed"):
        return minus(f"{100 * value if unit == 'percent' else value:z.{digits}f}")
    if unit == "ratio":
        return minus(f"{value:z.2f}")
    size, name = one_scale or scale(value, unit)
    if name:
        return f"{_three_digits(value / size)} {name}"
    return f"{value:.1f} s" if unit == "seconds" else f"{value:.0f}"


def minus(number: str) -> str:
    """A printed number with a minus sign in place of its hyphen."""
    return number.replace("-", "\u2212")


def signed(value: float) -> str:
    """A difference of shares in points, with its sign."""
    return minus(f"{100 * value:+z.1f}")


def scale(value: float, unit: Unit) -> Scale:
    """Size and prefix (or larger unit) to print a cost in: 4.2e12 FLOPs -> (1e12, "T")."""
    return next(((size, name) for size, name in _STEPS.get(unit, ()) if abs(value) >= size), (1.0, ""))


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


@dataclass(frozen=True)
class Measured:
    """One run's share in a cell."""

    run: str
    seed: int
    value: float
    n: int = 0  #: examples; 0 where the value is a count or an average over data sets
    low: float | None = None  #: 95 % over examples: this checkpoint, not the method
    high: float | None = None


@dataclass(frozen=True)
class Cell:
    """One place in a table: a value with every run it was made from, or a state with the runs that lack a value."""

    state: State
    value: float | None = None  #: mean over seeds, in the column's unit (percent: a share)
    std: float | None = None  #: over seeds, None below two
    measured: tuple[Measured, ...] = ()
    lacking: tuple[tuple[str, State], ...] = ()  #: runs that belong here and gave no value, each with its state
    bold: bool = False
    over_budget: bool = False
    text: str = ""  #: in place of a number
    small: str = ""  #: printed behind the number
    also: Mapping[str, float] = field(default_factory=dict)  #: further counts, each a column of the CSV
    sources: tuple[str, ...] = ()  #: runs that were counted rather than averaged
    source: str = ""  #: of a number that is not ours
    difference: float | None = None  #: to the printed number that stands next to it, in the column's unit
    digits: int = 1  #: decimals of percent and of what others printed

    @property
    def n(self) -> int:
        """Seeds behind the value."""
        return len(self.measured)

    @property
    def by_seed(self) -> dict[int, float]:
        """Each seed's value."""
        return {part.seed: part.value for part in self.measured}

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of all runs of this cell."""
        return (*(part.run for part in self.measured), *(run for run, _ in self.lacking), *self.sources)


@dataclass(frozen=True)
class Column:
    """The content of a column, and whether higher is better (None: neither)."""

    name: str  #: unique within its table
    label: str
    group: str = ""  #: a heading over neighbouring columns
    unit: Unit = "percent"
    higher_is_better: bool | None = True
    description: str = ""
    chance: float | None = None  #: expected score of a uniformly random guess
    most: float = 1.0  #: the largest possible score
    scale: Scale | None = None  #: of all costs of the column, so that they can be compared at a glance
    at_chance: bool = False  #: whether no row is significantly above chance, so that the column ranks nothing

    @property
    def in_words(self) -> str:
        """The label in a sentence, where "attack" is "attack success"."""
        return f"{self.label} success" if self.label.endswith("attack") else self.label


@dataclass(frozen=True)
class Row:
    """A row of cells, one for each column."""

    label: str
    cells: tuple[Cell, ...]
    group: str = ""  #: a heading over neighbouring rows; cells are compared within it
    method: str = ""  #: the plan's label of the method; "" for rows of no method
    compared: bool = True  #: whether it takes part in the comparison of its column
    fidelity: str = ""  #: how the method's adapter was checked
    uses: str = ""  #: knowledge that no method has and this row uses
    unlearned: bool = False  #: whether its primary metric is at chance, so that it takes part in no test
    cite: str = ""  #: BibTeX key that LaTeX cites behind its label

    @property
    def mark(self) -> str:
        """The footnote marks of its label."""
        return unverified(self.fidelity) + TOLD * bool(self.uses) + UNLEARNED * self.unlearned


@dataclass(frozen=True)
class Table:
    """Everything a renderer needs."""

    name: str  #: file name
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    description: str = ""
    footnotes: tuple[str, ...] = ()
    full: int = 1  #: seeds a complete cell has; cells with another n say so
    notes: Mapping[str, str] = field(default_factory=dict)  #: mark -> what it means, for marks that occur
    brief: tuple[str, ...] | None = None  #: in a paper, in place of the footnotes
    seeds: Mapping[str, int] = field(default_factory=dict)  #: in place of `full` under a heading over rows

    def full_under(self, group: str) -> int:
        """Seeds that a complete cell has under this heading over rows."""
        return self.seeds.get(group, self.full)

    def heading(self, group: str) -> str:
        """A heading over rows as it is printed, with the number of seeds where it is not that of the whole table."""
        n = self.full_under(group)
        return group if n == self.full else f"{group}, n = {n}"

    def groups(self) -> list[tuple[str, list[Row]]]:
        """Neighbouring rows under their heading, in order."""
        return [(name, list(rows)) for name, rows in groupby(self.rows, attrgetter("group"))]

    def heads(self) -> list[tuple[str, int]]:
        """Headings over columns with the number of columns under each, in order."""
        return [(name, len(list(columns))) for name, columns in groupby(self.columns, attrgetter("group"))]


def in_one_scale(table: Table) -> Table:
    """The table with one scale per column of costs: that of its smallest one. No column mixes 58.1 s and 1.03 min."""
    columns = []
    for place, column in enumerate(table.columns):
        values = [abs(value) for row in table.rows if (value := row.cells[place].value)]
        known = column.unit in _STEPS and values
        columns.append(replace(column, scale=scale(min(values), column.unit)) if known else column)
    return replace(table, columns=tuple(columns))


OVER_BUDGET = "†"  #: the mark of a cell
UNVERIFIED = "‡"  #: the mark of a method
TOLD = "§"  #: the mark of a row that uses what no method knows
UNLEARNED = "¶"  #: the mark of a row that has not learned under a noise


def unverified(fidelity: str) -> str:
    """The mark of a method whose adapter was not checked against its paper or code; "" for every other."""
    return UNVERIFIED if fidelity in ("reconstructed", "unchecked") else ""


def marks(cell: Cell) -> str:
    """Footnote marks of a cell."""
    return OVER_BUDGET if cell.over_budget else ""


def words(cell: Cell, column: Column, full: int = 1) -> tuple[str, str]:
    """A cell as (number or word, what stands small behind it: "± 0.3", "n=2")."""
    if cell.state != "value":
        return ("n/a" if cell.state == "not applicable" else cell.state), ""
    if cell.value is None:
        return cell.text, ""
    spread = cell.std is not None and column.unit in ("percent", "printed")
    behind = [f"± {show(cell.std, column.unit, cell.digits)}"] if spread and cell.std is not None else []
    if cell.difference is not None:
        behind.append(minus(f"{cell.difference:+z.{cell.digits}f}"))
    if cell.measured and cell.n != full:
        behind.append(f"n={cell.n}")
    if cell.small:
        behind.append(cell.small)
    return show(cell.value, column.unit, cell.digits, column.scale), ", ".join(behind)
