"""Tables as plain text, for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from bench.console.text import joined
from reports.tables.table import Column, Table, words

GAP = "  "


def table_text(table: Table, width: int = 100) -> str:
    """Title, description, the table broken between its headings into blocks of at most `width` letters, notes.

    A block has one heading at least, however wide.
    """
    lines = [table.title, *textwrap.wrap(table.description, width)]
    for places in _blocks(table, width):
        lines += ["", *_block(table, places)]
    notes = [*(f"{mark} {meaning}." for mark, meaning in table.notes.items()), *table.footnotes]
    lines += [""] if notes else []
    for note in notes:
        lines += textwrap.wrap(note, width, initial_indent="- ", subsequent_indent="  ")
    return joined(lines)


def _blocks(table: Table, width: int) -> list[list[int]]:
    """Places of columns that stand beside each other; columns under one heading stay together."""
    blocks: list[list[int]] = []
    room, start = 0, 0
    for head, count in table.heads():
        places = range(start, start + count)
        start += count
        for part in [list(places)] if head else [[place] for place in places]:
            needed = sum(len(GAP) + one for one in _widths(table, part))
            if not blocks or needed > room:
                blocks.append([])
                room = width - _label_width(table)
            blocks[-1].extend(part)
            room -= needed
    return blocks


def _label_width(table: Table) -> int:
    heads = (table.heading(group) for group, _ in table.groups())
    return max(map(len, (*(row.label + row.mark for row in table.rows), *heads)), default=0)


def _texts(table: Table, place: int) -> list[str]:
    column = table.columns[place]
    shown = (words(row.cells[place], column, table.full_under(row.group)) for row in table.rows)
    return [" ".join(filter(None, one)) for one in shown]


def _widths(table: Table, places: Sequence[int]) -> list[int]:
    """Return the widths of neighbouring columns; the last one under a heading is wide enough for it."""
    widths = [max(map(len, [table.columns[place].label, *_texts(table, place)])) for place in places]
    for start, end in _spans([table.columns[place] for place in places]):
        taken = sum(widths[start:end]) + len(GAP) * (end - start - 1)
        widths[end - 1] += max(0, len(table.columns[places[start]].group) - taken)
    return widths


def _spans(columns: Sequence[Column]) -> list[tuple[int, int]]:
    """Return the first column and the end of every heading."""
    starts = [i for i, column in enumerate(columns) if i == 0 or column.group != columns[i - 1].group]
    return list(zip(starts, [*starts[1:], len(columns)], strict=True))


def _block(table: Table, places: Sequence[int]) -> Iterator[str]:
    label, widths = _label_width(table), _widths(table, places)
    columns = [table.columns[place] for place in places]
    if any(column.group for column in columns):
        rooms = [sum(widths[a:b]) + len(GAP) * (b - a - 1) for a, b in _spans(columns)]
        heads = [columns[start].group for start, _ in _spans(columns)]
        over = "".join(GAP + head.center(room) for head, room in zip(heads, rooms, strict=True))
        yield (" " * label + over).rstrip()
    yield _line("", label, [column.label for column in columns], widths)
    texts = [_texts(table, place) for place in places]
    number = 0
    for group, rows in table.groups():
        if group:
            yield table.heading(group)
        for row in rows:
            yield _line(row.label + row.mark, label, [column[number] for column in texts], widths)
            number += 1


def _line(label: str, room: int, cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = (GAP + cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return (label.ljust(room) + "".join(parts)).rstrip()
