"""A lock on this machine's device: a run with a budget in seconds needs the device alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import UserError


class InUse(Exception):
    """Another bench run uses the device, and one of the two needs it alone."""


def lock_file() -> Path:
    """Return this user's lock, in a folder of the machine's temporary folder that is made if it is not there.

    Raises UserError if another user can enter the folder or owns it.
    """
    folder = Path(tempfile.gettempdir()) / f"robust-cl-bench-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise UserError(
            f"{folder}: should be a folder that is yours and that nobody else may enter; remove it, or set TMPDIR to "
            "a folder of your own"
        )
    return folder / "device"


@contextmanager
def hold_device(alone: bool) -> Iterator[None]:
    """Hold this machine's device, `alone` or together with others. Raises InUse if another process conflicts.

    The operating system releases the lock when the process ends, however it ends. Raises UserError if the folder of the
    lock is not this user's alone, and for a symbolic link in place of the lock.
    """
    path = lock_file()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"{path}: cannot be opened for a lock, remove it: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            reason = "a budget in seconds needs it alone" if alone else "a run timed in seconds has it alone"
            raise InUse(f"this machine's device is in use by another bench run; {reason} ({path})") from error
        yield
    finally:
        os.close(descriptor)
