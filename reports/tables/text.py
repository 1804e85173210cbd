"""Tables as plain text, for a terminal."""

from __future__ import annotations

import textwrap

from bench.console.text import align_columns, join_lines
from reports.tables.table import Table, words


def table_text(table: Table, width: int = 100) -> str:
    """Title, description and notes in lines of at most `width` characters, and the table, one line per row."""
    starts = [place == 0 or one.group != table.columns[place - 1].group for place, one in enumerate(table.columns)]
    heads = [one.group if start else "" for one, start in zip(table.columns, starts, strict=True)]
    rows = [["", *heads]] if any(heads) else []
    rows.append(["", *(column.label for column in table.columns)])
    above = len(rows)
    for row in table.rows:
        cells = zip(row.cells, table.columns, strict=True)
        shown = (words(cell, column, table.full_under(row.group)) for cell, column in cells)
        rows.append([row.label + row.mark, *(" ".join(filter(None, one)) for one in shown)])
    made = iter(align_columns(rows, right=True))
    lines = [table.title, *textwrap.wrap(table.description, width), ""]
    lines += [next(made) for _ in range(above)]
    for group, members in table.groups():
        lines += [table.heading(group)] if group else []
        lines += [next(made) for _ in members]
    notes = [*(f"{mark} {meaning}." for mark, meaning in table.notes.items()), *table.footnotes]
    lines += [""] if notes else []
    for note in notes:
        lines += textwrap.wrap(note, width, initial_indent="- ", subsequent_indent="  ")
    return join_lines(lines)
