"""Print rows as aligned lines, and text from elsewhere without what a terminal obeys."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}  #: categories of control and format characters, surrogates, line separators


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of equal length as lines with aligned columns.

    >>> columns([("run", "steps"), ("3f2a", "100")])
    ['run   steps', '3f2a  100']
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def printable(text: str) -> str:
    """Return text with control characters, but for line ends, and marks of direction as escapes: `\\x1b`, `\\u202e`.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(
        one if one == "\n" or unicodedata.category(one) not in _OBEYED else one.encode("unicode_escape").decode()
        for one in text
    )
