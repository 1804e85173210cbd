"""Write files so that they appear whole or not at all.

A file is written to a temporary path first and then renamed. That path lies next to the target, or in the folder
`inside`: the folder of a claim (bench/store/fence.py), which another process may take away at any moment. No function
here makes a missing `inside` again, so every write then ends in FileNotFoundError, and the target stays as it is.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from bench.errors import DISK_FULL_ERRNOS, UserError, errno_of
from bench.store.process import machine_mark, process_ended

MIN_FREE_BYTES = 1 << 16  #: bytes; a disk with less is full
TEMPORARY = ".tmp-"  #: prefix of what a killed writer leaves behind
_OF_PROCESS = re.compile(rf"{re.escape(TEMPORARY)}.+-([0-9a-f]{{8}})-([0-9]+)-[0-9a-f]{{8}}")  #: machine, pid


def left_behind(name: str) -> bool:
    """Return whether a temporary file, by its name, is of a process of this machine that was killed."""
    match = _OF_PROCESS.fullmatch(name)
    return match is not None and match[1] == machine_mark() and process_ended(int(match[2]))


@contextlib.contextmanager
def scratch(target: Path, inside: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path, next to `target` or in `inside`; whatever is left there at the end is removed."""
    if inside is None:
        target.parent.mkdir(parents=True, exist_ok=True)
        for name in filter(left_behind, os.listdir(target.parent)):
            remove(target.parent / name)
        path = target.parent / f"{TEMPORARY}{target.name}-{machine_mark()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    else:
        make_folder(target.parent, inside)
        path = inside / uuid.uuid4().hex
    try:
        yield path
    finally:
        remove(path)


def make_folder(folder: Path, inside: Path) -> None:
    """Make a folder and its parents, each by a path through `inside`; anything else in their place is set aside.

    Made and not renamed, because a rename takes the place of an empty folder that another process is about to fill.
    """
    if _has_folder(folder, inside):
        return
    make_folder(folder.parent, inside)
    with contextlib.suppress(FileExistsError):
        os.mkdir(inside / os.path.relpath(folder.parent.resolve(), inside.resolve()) / folder.name)


def _has_folder(path: Path, inside: Path) -> bool:
    """Say whether a folder is there; anything else in its place is set aside."""
    if not os.path.lexists(path):
        return False
    if path.is_dir():  # asked second: what another process publishes in between is never set aside
        return True
    set_aside(path, inside)
    return False


def set_aside(path: Path, inside: Path | None = None) -> Path:
    """Rename a damaged file or folder to the first free name `NAME.damaged-N` next to it; return the new path.

    It goes through `inside` where a claim protects it. Raises OSError if the folder cannot be written.
    """
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(name for name in names if not os.path.lexists(name))
    if inside is not None:
        path = path.rename(inside / uuid.uuid4().hex)
    return path.rename(aside)


def remove(path: Path) -> None:
    """Remove a file or a directory, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def discard(target: Path, inside: Path) -> None:
    """Remove a file or folder, if it is there, in one step for readers: by one rename to `inside`.

    Raises FileNotFoundError without `inside`.
    """
    taken = inside / uuid.uuid4().hex
    try:
        target.rename(taken)
    except FileNotFoundError:
        if not inside.is_dir():
            raise
    remove(taken)


def sync(path: Path) -> None:
    """Force a file's bytes to the disk, so that a rename never publishes an empty file after a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_path(
    target: Path, writer: Callable[[Path], object], durable: bool = True, inside: Path | None = None
) -> None:
    """Let `writer` write a file, then rename it to `target` in one step. Its mode follows the umask.

    A file that is not `durable` may be lost in a power cut, though not in a kill; for what is rebuilt in seconds.
    Raises UserError for a device, which a superuser would replace, and OSError with the target if the disk is full.
    """
    if os.path.lexists(target) and stat.S_IFMT(target.lstat().st_mode) in (stat.S_IFCHR, stat.S_IFBLK):
        raise UserError(f"{target}: is a device, not a file; name another path")
    with scratch(target, inside) as path:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        mode = stat.S_IMODE(path.stat().st_mode)
        try:
            writer(path)
        except Exception as error:
            number = errno_of(error)
            if number not in DISK_FULL_ERRNOS and shutil.disk_usage(target.parent).free < MIN_FREE_BYTES:
                number = errno.ENOSPC  # torch does not say
            if number in DISK_FULL_ERRNOS:
                raise OSError(number, os.strerror(number), str(target)) from error
            raise
        if stat.S_IMODE(path.stat().st_mode) != mode:  # safetensors replaces the file by one that is private
            path.chmod(mode)
        if durable:
            sync(path)
        path.replace(target)


def write_bytes(target: Path, content: bytes, durable: bool = True, inside: Path | None = None) -> None:
    """Replace the bytes of `target`. Readers, also after a kill, see either the old bytes or the new ones."""
    write_path(target, lambda path: path.write_bytes(content), durable, inside)


def write_json(target: Path, value: Any) -> None:
    """Replace `target` by a value as JSON: indented, UTF-8, keys in the given order. ValueError on NaN or infinity."""
    write_bytes(target, dump(value))


def dump(value: Any) -> bytes:
    """Return the bytes that `write_json` writes."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def publish_folder(target: Path, files: dict[str, bytes], inside: Path) -> bool:
    """Publish a folder with these files in one step. Returns False, and changes nothing, if the folder exists.

    Anything else in its place is set aside. `inside` is the folder of a claim, through which all of this goes.
    """
    if _has_folder(target, inside):
        return False
    with scratch(target, inside) as path:
        path.mkdir()
        for name, content in files.items():
            (path / name).write_bytes(content)
            sync(path / name)
        return publish(path, target)


def publish(fresh: Path, target: Path) -> bool:
    """Rename a folder to `target`. Returns False, and removes `fresh`, if another process published there first."""
    try:
        fresh.rename(target)
    except OSError:
        if not target.is_dir() or not fresh.is_dir():
            raise
        remove(fresh)
        return False
    return True


def file_system_time(folder: Path) -> float:
    """Return the present time in seconds since the epoch by the clock of the file system that `folder` lies on.

    Times of files are compared with this clock, because hosts that share a disk may disagree on the time, by any
    amount. A folder that cannot be written tells no time: this machine's clock stands in, and nothing is taken over.
    """
    try:
        with tempfile.TemporaryFile(prefix=f"{TEMPORARY}clock-", dir=folder) as probe:
            return os.fstat(probe.fileno()).st_mtime
    except OSError:
        return time.time()
