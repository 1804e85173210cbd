"""Print rows as aligned lines."""

from __future__ import annotations

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of equal length as lines with aligned columns.

    >>> columns([("run", "steps"), ("3f2a", "100")])
    ['run   steps', '3f2a  100']
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
