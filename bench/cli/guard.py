"""Guard around every command: each error ends it with one line that a person can act on, never a traceback.

The Python API keeps raising; only the command line is guarded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import select
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

from bench.console.text import echo
from bench.errors import EXIT_UNFINISHED, UserError, one_line, system_fault
from bench.machine.device_lock import InUse
from bench.reading import Unfit

UNEXPECTED, BAD_INPUT = 1, 2  #: exit codes
INTERRUPTED, BROKEN_PIPE = 130, 141  #: the shell's convention: 128 + SIGINT, 128 + SIGPIPE
_MAX_LETTERS = 500  #: characters of external messages


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Around a command: print its error as one line and exit with the code that says the same."""
    output = _output()
    try:
        try:
            yield
        finally:
            if sys.exc_info()[0] in (None, SystemExit):  # a full disk or a closed pipe can be reported now
                sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        _end(error, output)
    except SystemExit as stop:
        # typer turns Ctrl-C and broken pipes, also those of other processes, into exit codes of its own
        cause: BaseException | None = stop.__context__
        while cause is not None and not isinstance(cause, KeyboardInterrupt | BrokenPipeError):
            cause = cause.__context__
        if cause is None:
            raise
        _end(cause, output)


def refuse_non_utf8(words: Sequence[str]) -> None:
    """Raise UserError for a word of the command line that is not UTF-8: no plan, card or table could name it."""
    for word in words:
        if not _is_text(word):
            raise UserError(f"{word!a}: is not UTF-8; rename the file or folder")


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _end(error: BaseException, output: tuple[int, ...]) -> NoReturn:
    """output: as of `_output`, before the command."""
    if isinstance(error, BrokenPipeError) and (_reader_is_gone() or _output() != output):  # rich puts /dev/null there
        _end_output()
        sys.exit(BROKEN_PIPE)
    code, message = explain(error)
    _end_output()
    echo(*(error.lines if isinstance(error, UserError) else [message]), err=True)
    sys.exit(code)


def explain(error: BaseException) -> tuple[int, str]:
    """Exit code and message of an error."""
    if isinstance(error, UserError):
        return BAD_INPUT, str(error)
    if isinstance(error, InUse):
        return EXIT_UNFINISHED, str(error)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted; the same command continues or begins again"
    if _is_out_of_memory(error):
        return BAD_INPUT, f"out of memory ({_named(error)}); use a smaller batch, fewer --jobs, or another machine"
    cause = error.__context__
    if isinstance(error, RuntimeError) and isinstance(cause, OSError) and cause.errno == errno.ELOOP:  # `Path.resolve`
        return explain(cause)
    if isinstance(error, RecursionError):
        return BAD_INPUT, f"an input is nested too deeply ({_named(error)}); nest it less deeply. {_saved(error)}"
    if isinstance(error, Unfit):
        return BAD_INPUT, f"{error.filename}: {error.strerror}; name another file"
    if remedy := system_fault(error):
        return BAD_INPUT, remedy
    if isinstance(error, UnicodeEncodeError) and not _is_text(error.object):  # the name of a file
        return BAD_INPUT, f"{ascii(error.object)[:_MAX_LETTERS]}: is not UTF-8; rename the file or folder"
    if isinstance(error, OSError):  # of a network, a device or a library
        return BAD_INPUT, f"{_named(error)}. {_saved(error)}"
    return UNEXPECTED, f"unexpected {_named(error)}. {_saved(error)}; please report it with that file"


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, also torch's: on CPUs a plain RuntimeError, on CUDA an OutOfMemoryError."""
    words = ("can't allocate memory", "not enough memory")
    by_torch = isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    return by_torch or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def _named(error: BaseException) -> str:
    """The type and message of an error, as one line."""
    return f"{type(error).__name__}: {one_line(error, _MAX_LETTERS)}".removesuffix(": ")


def _saved(error: BaseException) -> str:
    """Write the traceback to a private file in the system's temporary folder; say where it is.

    If it cannot be written, it is printed, because it is the only trace of the error.
    """
    versions = f"Python {platform.python_version()} on {platform.platform()}"
    text = f"{versions}\n{sys.argv!r}\n\n{''.join(traceback.format_exception(error))}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="bench-traceback-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(text)
    except OSError as failure:
        echo(*text.split("\n"), err=True)
        return f"The traceback is above, because it could not be saved ({one_line(failure, _MAX_LETTERS)})"
    return f"The traceback is in {file.name}"


def _output() -> tuple[int, ...]:
    """Return which file the standard output is."""
    with contextlib.suppress(OSError, ValueError):
        about = os.fstat(sys.stdout.fileno())
        return about.st_dev, about.st_ino
    return ()


def _reader_is_gone() -> bool:
    """Return whether the program that reads this one's output has ended, as `head` does."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            poll.register(stream.fileno(), 0)  # POLLERR and POLLHUP are always reported
    return bool(poll.poll(0))


def _end_output() -> None:
    """Drop output that cannot be written, so that Python does not try again, and complain, when it ends."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
