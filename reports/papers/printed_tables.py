"""A paper's tables as printed, alone or with a suite's own numbers next to them. Nothing here is ranked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UserError, nearest
from reports.papers.layouts import PAPERS, Layout, Paper
from reports.papers.published import Published, read
from reports.tables.table import Cell, Column, Row, Table

FEW = 3  #: numbers of a column that suffice to tell how many decimals it has
Place = tuple[str, str]  #: heading over it, its own label
Beside = Callable[[Published, Sequence[Published]], tuple[Cell, str]]
"""(printed number, all of its row) -> our cell and the label of our method, "" where none stands beside it."""


@dataclass(frozen=True)
class Printed:
    """A table's numbers by their places, all in printed order."""

    paper: Paper
    layout: Layout
    numbers: Mapping[tuple[Place, Place], Published]  #: by (row, column)

    @property
    def rows(self) -> list[Place]:
        """Rows of one group stand together."""
        return _together(row for row, _ in self.numbers)

    @property
    def columns(self) -> list[Place]:
        """Columns under one heading stand together."""
        return _together(column for _, column in self.numbers)

    @property
    def source(self) -> str:
        """ "ncu, Table 1"."""
        return next(iter(self.numbers.values())).source


def _together(places: Iterable[Place]) -> list[Place]:
    """Each place once, those of one heading together, all in the order of their first."""
    once = dict.fromkeys(places)
    heads = list(dict.fromkeys(head for head, _ in once))
    return sorted(once, key=lambda place: heads.index(place[0]))


def papers(folder: Path, name: str = "") -> list[Printed]:
    """Every table of every paper, or of one."""
    chosen = [PAPERS[name]] if name else PAPERS.values()
    return [printed(folder, paper.name, layout.number) for paper in chosen for layout in paper.layouts]


def find(words: str) -> tuple[str, str]:
    """ "ncu/1", "ncu Table 1", "ncu, Table 1" -> ("ncu", "1"); "ncu" -> ("ncu", ""); "" -> ("", "").

    The beginning of a paper's name is enough; numbers of running text are the table "text 4.2". Raises UserError for
    an unknown paper or table and names the nearest.
    """
    name, number = (part.strip(" ,/") for part in re.match(r"([^\s,/]*)(.*)", words.strip(), re.DOTALL).groups())  # type: ignore[union-attr]
    fitting = [paper for paper in PAPERS if paper.startswith(name.lower())]
    if words.strip() and (not name or len(fitting) != 1):
        raise UserError(f"{words}: no paper {name!r}{nearest(name, PAPERS)}")
    number = re.sub(r"^table\s*", "", number, flags=re.IGNORECASE)
    if not name or not number:
        return (fitting[0] if name else "", "")
    known = {layout.number.lower(): layout.number for layout in PAPERS[fitting[0]].layouts}
    if number.lower() not in known:
        raise UserError(f"{words}: {fitting[0]} has no table {number!r}{nearest(number, known.values())}")
    return fitting[0], known[number.lower()]


def printed(folder: Path, name: str, number: str) -> Printed:
    """One table of one paper, such as "ncu" and "1". UserError for a paper or table that is not there."""
    if name not in PAPERS:
        raise UserError(f"tables.paper: no paper {name!r}{nearest(name, PAPERS)}")
    paper = PAPERS[name]
    layouts = {layout.number: layout for layout in paper.layouts}
    if number not in layouts:
        raise UserError(f"tables.numbers: {name} has no table {number!r}{nearest(number, layouts)}")
    layout = layouts[number]
    numbers = {
        (
            (paper.text(one, layout.groups, ", "), paper.text(one, layout.rows)),
            (paper.text(one, layout.heads, ", "), paper.text(one, layout.columns)),
        ): one
        for one in read(folder, name)
        if one.table == number
    }
    return Printed(paper, layout, numbers)


def alone(table: Printed) -> Table:
    """The printed numbers."""
    columns = tuple(_column(table, place, place[1], place[0]) for place in table.columns)
    return _table(table, columns, [(_cells(table, row), "") for row in table.rows], ())


def beside(table: Printed, own: Beside, notes: Sequence[str]) -> Table:
    """To the right of each printed column one of ours, with the difference; under the column's heading or label."""
    columns: list[Column] = []
    for head, label in table.columns:
        above, theirs = (head, label) if head else (label, "paper")
        columns += [_column(table, (head, label), theirs, above), _column(table, (head, label), "ours", above)]

    rows = []
    for row in table.rows:
        numbers = [number for (of, _), number in table.numbers.items() if of == row]
        cells: list[Cell] = []
        label = ""
        for place, printed in zip(table.columns, _cells(table, row), strict=True):
            number = table.numbers.get((row, place))
            ours, method = own(number, numbers) if number else (NOT_OURS, "")
            cells += [printed, ours]
            label = label or method
        rows.append((tuple(cells), label))
    return _table(table, tuple(columns), rows, notes)


NOT_OURS = Cell("value", text="–")  #: of a place to which no entry of the suite corresponds


def _column(table: Printed, place: Place, label: str, head: str) -> Column:
    name = " ".join(filter(None, (*place, "ours" if label == "ours" else "paper")))
    return Column(name, label, head, "printed", None, table.source)


def _cells(table: Printed, row: Place) -> tuple[Cell, ...]:
    cells = []
    for place in table.columns:
        one = table.numbers.get((row, place))
        if one is None:
            cells.append(Cell("value"))
            continue
        # other numbers of the same metric and column show the zeros that the files lost
        same = {at: number for at, number in table.numbers.items() if number.metric == one.metric}
        column = [number for (_, of), number in same.items() if of == place]
        alike = column if len(column) >= FEW else same.values()
        digits = max(1, *(len(f"{number.value:f}".rstrip("0").partition(".")[2]) for number in alike))
        cells.append(Cell("value", one.value, one.std, source=one.source, digits=digits))
    return tuple(cells)


def _table(
    table: Printed,
    columns: tuple[Column, ...],
    cells_of: Sequence[tuple[tuple[Cell, ...], str]],
    notes: Sequence[str],
) -> Table:
    """`cells_of`: for each printed row its cells, and the label of our method beside it."""
    rows = tuple(
        Row(label, cells, group, method, compared=False)
        for (group, label), (cells, method) in zip(table.rows, cells_of, strict=True)
    )
    footnotes = (*table.layout.notes, *_notes(table), *notes)
    name = f"paper_{table.paper.name}_{table.layout.number}".replace(" ", "_").replace(".", "_")
    return Table(name, f"{table.source}: {table.layout.title}", columns, rows, _about(table), footnotes)


def _about(table: Printed) -> str:
    """Describe the paper, and the settings that all numbers of a table share."""
    layout = table.layout
    shown = {*layout.rows, *layout.columns, *layout.groups, *layout.heads}
    sentences = [f"As printed in “{table.paper.title}”."]
    for name, words in (("pretrain", "Trained on"), ("backbone", "Towers:")):
        values = {getattr(number, name) for number in table.numbers.values()}
        if name not in shown and len(values) == 1 and values != {""}:
            sentences.append(f"{words} {values.pop()}.")
    return " ".join(sentences)


def _notes(table: Printed) -> Iterable[str]:
    """Yield the numbers' own notes, each after the rows or columns that it concerns if these are not all."""
    places_of: dict[str, list[tuple[Place, Place]]] = {}
    for place, number in table.numbers.items():
        if number.note:
            places_of.setdefault(number.note, []).append(place)
    for note, places in places_of.items():
        rows, columns = ({place[axis] for place in places} for axis in (0, 1))
        which = []
        if len(rows) < len(table.rows):
            which.append(", ".join(dict.fromkeys(label for group, label in table.rows if (group, label) in rows)))
        if len(columns) < len(table.columns):
            which.append(", ".join(" ".join(filter(None, place)) for place in table.columns if place in columns))
        yield f"{'; '.join(which)}: {note}." if which else f"{note[0].upper()}{note[1:]}."
