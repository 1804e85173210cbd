"""A folder of this user in the machine's temporary folder, which nobody else can enter, put links into or read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
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


class ScratchFolder:
    """An empty folder for the time that this process needs it. After a kill, the next one that is made removes it.

    As a context manager it gives its path, and is removed at the end.

    The process holds a lock on a file beside the folder. The operating system releases it when the process ends,
    however it ends, so a folder whose lock is free is a leftover.
    """

    def __init__(self, purpose: str) -> None:
        name = f"{purpose}-{uuid.uuid4().hex[:12]}"
        self.path = private_folder() / name
        with _only_one():
            _remove_leftovers(self.path.parent)
            self._lock = open_file(f"{name}.lock")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.path.mkdir(mode=0o700)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the folder with all that is in it. A second call does nothing."""
        if self._lock < 0:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.with_name(f"{self.path.name}.lock").unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = -1


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    """Let one process at a time make a folder, so that none removes what another is about to lock."""
    descriptor = open_file("making")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path) -> None:
    for path in folder.glob("*-*.lock"):
        descriptor = open_file(path.name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
        except BlockingIOError:  # its process lives
            pass
        finally:
            os.close(descriptor)
