"""Terminal lines and CSV: `visible` writes out control characters, `echo` prints, `align_columns` aligns."""

from __future__ import annotations

import csv
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, TextIO

#: characters that draw nothing although Python calls them printable: fillers, joiners and variation selectors
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
#: what no file may hold as it is: controls, and marks that turn the direction of what follows
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return text with every character that acts on a terminal, hides or breaks the line written out.

    These are controls (`\x1b`, `\n`), bidirectional marks (`\u202e`), zero-width characters and lone surrogates.

    >>> print(visible("a\x1b[2Jb\nc"))
    a\x1b[2Jb\nc
    """
    if not text.isprintable():
        text = "".join(one if one.isprintable() else _escape(one) for one in text)
    return text if text.isascii() else _BLANK.sub(lambda match: _escape(match[0]), text)


def storable(text: str) -> str:
    r"""Return text as files may hold it: controls are written out as `\x1b`, except tabs and ends of lines.

    So are marks of direction, and lone surrogates, which have no UTF-8.
    """
    return CONTROL.sub(lambda match: _escape(match[0]), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def join_lines(lines: Iterable[str]) -> str:
    """Return lines as one text in which no line can fake another one."""
    return "\n".join(map(visible, lines))


def echo(*lines: object, err: bool = False, stream: TextIO | None = None) -> None:
    """Print each line as exactly one line on stdout, on stderr with `err`, or on `stream`; what hides is visible.

    Characters that the stream cannot encode are written out. Everything that a person reads is printed here.
    """
    stream = stream or (sys.stderr if err else sys.stdout)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for line in lines:
        print(visible(str(line)).encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def terminal_width(otherwise: int) -> int:
    """Return the number of characters in a line of the terminal, at least 40; `otherwise` if stdout is none."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else otherwise


def align_columns(rows: Sequence[Sequence[str]], right: bool = False) -> list[str]:
    """Return rows of equal length as lines with aligned columns; what hides in a cell is visible.

    With `right` all columns but the first end, instead of begin, at one place.

    >>> align_columns([("run", "steps"), ("3f2a", "100")])
    ['run   steps', '3f2a  100']
    """
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))] if rows else []
    sides = [str.ljust, *[str.rjust if right else str.ljust] * (len(widths) - 1)]
    return [
        "  ".join(side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)).rstrip()
        for row in rows
    ]


#: what a spreadsheet would read as the beginning of a formula (OWASP, CSV Injection), full-width forms included
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.ASCII)


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    r"""Return rows as CSV with `\n` between them; None is an empty cell.

    A text that begins like a formula gets an apostrophe before it (`=1+1` becomes `'=1+1`); numbers stay numbers,
    negative ones too. Control characters are written out as `\x1b`.
    """
    lines: list[str] = []
    # With "\n" as its end of line the writer would leave "\r" unquoted. It writes a row with one call.
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n")
    writer.writerows([cell_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


@lru_cache(1 << 16)  # names of methods and data sets stand in every line
def cell_text(text: str) -> str:
    """Return a text cell as the file holds it."""
    begins = text.lstrip("'").startswith(FORMULA)
    return storable(f"'{text}" if begins and not _NUMBER.fullmatch(text) else text)
