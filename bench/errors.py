"""UserError, suggestions of the nearest valid word, and remedies for errors of the system."""

from __future__ import annotations

import difflib
import errno
import os
import re
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType


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


class DiskFull(UserError):
    """The disk is full. Execution stops, because further runs would not fit either."""


EXIT_UNFINISHED = 75  #: exit code: stopped on request or busy in another process; the same command continues
MAX_LISTED_WORDS = 50  #: valid words that one line of a message holds


def nearest(word: object, words: Iterable[str]) -> str:
    """Return the end of a message: `; did you mean 'batch'?`, or valid words if none is near."""
    valid = sorted(words)
    close = difflib.get_close_matches(str(word), valid, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    rest = f" and {len(valid) - MAX_LISTED_WORDS:,} more" if len(valid) > MAX_LISTED_WORDS else ""
    return f"; valid: {', '.join(valid[:MAX_LISTED_WORDS])}{rest}" if valid else ""


def one_line(error: object, limit: int | None = None) -> str:
    """Return the text of an error, or another external text, as one line of at most `limit` characters.

    Of an error of pydantic, which lists all faults with links, it is the first field and what is wrong with it.
    """
    faults = getattr(error, "errors", None)
    if isinstance(error, ValueError) and callable(faults):
        first = faults()[0]
        error = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    return " ".join(str(error).split())[:limit]


_OF_RUST = ("Exception", "SafetensorError")  #: types in which Rust libraries raise errors of the system

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)  #: of a disk
#: errno -> what is wrong with the path, and the remedy
_REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space, then give the same command again",
    errno.EDQUOT: "the quota of this disk is used up; free some space, then give the same command again",
    errno.EROFS: "is on a read-only file system; choose another place",
    errno.EACCES: "permission is denied; change the permissions, or choose another place",
    errno.EPERM: "is not permitted here; choose another place",
    errno.ENAMETOOLONG: "the name is too long; choose one of at most 255 bytes",
    errno.ENOTDIR: "a part of this path is a file where a folder should be; choose another path",
    errno.EISDIR: "is a folder where a file should be; choose another path",
    errno.EEXIST: "already exists; move or rename it, or choose another path",
    errno.ENOENT: "there is no such file or folder; check the path",
    errno.ELOOP: "is a link that leads back to itself; remove it",
    errno.EMFILE: "too many files are open; raise the limit with `ulimit -n 4096`, or use fewer --jobs",
    errno.ENFILE: "too many files are open on this machine; end other programs, then give the same command again",
    errno.EFBIG: "the file would be larger than allowed; raise the limit with `ulimit -f unlimited`",
    errno.EIO: "the disk reports an error; check it, or choose another place",
    errno.ENOMEM: "out of memory; end other programs, or use fewer --jobs",
    errno.EAGAIN: "the system lacks resources for this now; end other programs, or use fewer --jobs",
}


def system_fault(error: BaseException) -> str:
    """Return what is wrong with a path by an error of the system, and the remedy; "" for another error."""
    remedy = _REMEDIES.get(errno_of(error) or 0, "")
    path = _path_of(error) if remedy else ""
    return f"{path}: {remedy}" if path else remedy


def errno_of(error: BaseException) -> int | None:
    """The number of the system's error, also in the words of libraries in Rust: safetensors and tokenizers."""
    if isinstance(error, OSError):
        return error.errno
    told = re.search(r"\(os error ([0-9]{1,3})\)", str(error)) if type(error).__name__ in _OF_RUST else None
    return int(told[1]) if told else None


def _path_of(error: BaseException) -> str:
    """The path that an error is about: its own, or else that of the file that was being written; "" if none is known.

    Errors of `write`, `fsync` and `close` name no file, so the innermost open file or path of the failed calls is
    taken.
    """
    for name in (getattr(error, "filename2", None), getattr(error, "filename", None)):
        if isinstance(name, str | bytes | os.PathLike):
            return os.fsdecode(name)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((path for frame in reversed(frames) for path in _paths_in(frame)), "")


def _paths_in(frame: FrameType) -> Iterator[str]:
    """Open files of a call, then its paths."""
    values = list(frame.f_locals.values())
    names = [getattr(value, "name", None) for value in values if hasattr(value, "fileno")]
    yield from ("the output" if name in ("<stdout>", "<stderr>") else name for name in names if isinstance(name, str))
    yield from (str(value) for value in values if isinstance(value, Path))
