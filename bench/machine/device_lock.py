"""A lock on this machine's device: a run with a budget in seconds needs the device alone."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import UserError


class InUse(Exception):
    """Another bench run uses the device, and one of the two needs it alone."""


def lock_file() -> Path:
    """Return this user's lock in the machine's temporary folder."""
    return Path(tempfile.gettempdir()) / f"robust-cl-bench-{os.getuid()}.lock"


@contextmanager
def hold_device(alone: bool) -> Iterator[None]:
    """Hold this machine's device, `alone` or together with others. Raises InUse if another process conflicts.

    The operating system releases the lock when the process ends, however it ends. Raises UserError if what stands in
    the place of the lock is a link, or another user's.
    """
    path = lock_file()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"{path}: cannot be opened as a lock file: {error.strerror}; remove it") from error
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise UserError(f"{path}: should be yours; remove it, or set TMPDIR to a folder of your own")
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            reason = "a budget in seconds needs it alone" if alone else "a run timed in seconds has it alone"
            raise InUse(f"this machine's device is in use by another bench run; {reason} ({path})") from error
        yield
    finally:
        os.close(descriptor)
