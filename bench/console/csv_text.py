"""CSV whose text cells no spreadsheet takes for a formula."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from bench.console.text import storable

#: what a spreadsheet takes for the beginning of a formula (OWASP, CSV Injection), full-width forms included
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
