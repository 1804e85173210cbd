"""The one error a user is meant to read, how it names the nearest word, and exit codes that are not 0, 1 or 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input. The message names file, field, value and the fix; the command line prints it and exits with 2.

    Each argument is one line. An end of line within an argument comes from outside and is printed as `\\n`. A subclass
    with arguments of its own overrides `lines`.
    """

    @property
    def lines(self) -> tuple[str, ...]:
        """The message, one line each."""
        return tuple(map(str, self.args))

    def __str__(self) -> str:
        return "\n".join(self.lines)


UNFINISHED = 75  #: exit code: stopped on request or busy in another process; the same command goes on
LISTED = 50  #: valid words that one line of a message holds


def nearest(word: object, words: Iterable[str]) -> str:
    """The tail of a message: `; did you mean 'batch'?`, or the valid words where none is near, `LISTED` of many."""
    valid = sorted(words)
    close = difflib.get_close_matches(str(word), valid, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    rest = f" and {len(valid) - LISTED:,} more" if len(valid) > LISTED else ""
    return f"; valid: {', '.join(valid[:LISTED])}{rest}" if valid else ""


def one_line(error: object, limit: int | None = None) -> str:
    """What an error or another text of somebody else's says, as one line of at most `limit` letters.

    Of an error of pydantic, which lists all faults with links, it is the first field and what is wrong with it.
    """
    faults = getattr(error, "errors", None)
    if isinstance(error, ValueError) and callable(faults):
        first = faults()[0]
        error = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    return " ".join(str(error).split())[:limit]
