"""A folder of this user in the machine's temporary folder, which nobody else can enter, put links into or read."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from bench.errors import UserError


def private_folder() -> Path:
    """Return this user's folder, made if it is not there. Raises UserError if another user can enter or owns it."""
    path = Path(tempfile.gettempdir()) / f"robust-cl-bench-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise UserError(
            f"{path}: should be a folder that is yours and that nobody else may enter; remove it, or set TMPDIR to "
            "a folder of your own"
        )
    return path


def open_file(name: str) -> int:
    """Open a file of the private folder for locking, made if it is not there; return its descriptor.

    Raises UserError for a symbolic link.
    """
    path = private_folder() / name
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"{path}: cannot be opened for a lock, remove it: {error.strerror}") from error


def scratch_folder(purpose: str) -> tempfile.TemporaryDirectory[str]:
    """Return an empty folder below the private one, which goes by `cleanup()` or as its context ends."""
    return tempfile.TemporaryDirectory(prefix=f"{purpose}-", dir=private_folder(), ignore_cleanup_errors=True)
