"""Remote shards on this machine's disk: each fetched whole, once, the least recently used given up for new ones."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bench import data_folder
from bench.data.shards.sources import filesystem, remote
from bench.errors import UserError

VARIABLE = "BENCH_CACHE_GB"
DEFAULT_GB = 200.0
BUFFER = 1 << 20  #: bytes read at a time in a scan


def folder() -> Path:
    """Below the data folder."""
    return data_folder.root() / "cache" / "shards"


def capacity() -> int:
    """Bytes that the cache may hold: $BENCH_CACHE_GB (10^9 bytes), or 200 of them."""
    text = os.environ.get(VARIABLE, str(DEFAULT_GB))
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise UserError(f"{VARIABLE}={text}: should be a size in GB, such as 200")
    return int(value * 1e9)


def fetched(url: str, bytes: int) -> Path:
    """The local copy of a remote shard of so many bytes, fetched now if it is not there or of another size.

    Processes that want the same wait for one. UserError where it cannot be fetched whole, or has another size.
    """
    name = f"{hashlib.sha256(url.encode()).hexdigest()[:16]}-{url.rpartition('/')[2]}"
    path = folder() / name
    if not _holds(path, bytes):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder() / f"{name}.lock"):
            if not _holds(path, bytes):
                _fetch(url, path, bytes)
    with contextlib.suppress(FileNotFoundError):  # another process may give it up this moment; the caller tries again
        os.utime(path)
    return path


def opened(path: str, bytes: int) -> BinaryIO:
    """A shard of so many bytes open for reading: a local file, or the local copy of a URL. OSError where that fails."""
    if not remote(path):
        return open(path, "rb", buffering=BUFFER)
    while True:
        with contextlib.suppress(FileNotFoundError):  # another process gave it up for room since it was fetched
            return open(fetched(path, bytes), "rb", buffering=BUFFER)


def size(url: str) -> int:
    """Bytes of a remote shard. UserError where it is not there."""
    fs, path = filesystem(url)
    try:
        return int(fs.size(path))
    except Exception as error:  # whatever the store's package raises
        raise UserError(f"shards: {url}: cannot be reached ({type(error).__name__}: {error})") from error


def _holds(path: Path, bytes: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size == bytes
    return False


def _fetch(url: str, path: Path, bytes: int) -> None:
    fs, source = filesystem(url)
    there = size(url)
    if there != bytes:
        said = f"has {there} bytes, {bytes} when it was indexed"
        raise UserError(f"shards: {url}: {said}; it was replaced, run `bench data index` again")
    _make_room(bytes)
    part = path.with_name(path.name + ".part")  # one process at a time holds the lock, a dead one's part is overwritten
    try:
        with fs.open(source, "rb") as remote_file, open(part, "wb") as local_file:
            shutil.copyfileobj(remote_file, local_file, 1 << 22)
    except Exception as error:  # whatever the store's package raises
        part.unlink(missing_ok=True)
        raise UserError(f"shards: {url}: cannot be fetched ({type(error).__name__}: {error})") from error
    came = part.stat().st_size
    if came != bytes:
        part.unlink()
        raise UserError(f"shards: {url}: {came} of its {bytes} bytes came; the same command fetches it again")
    part.rename(path)


def _make_room(size: int) -> None:
    """Give up shards, the least recently used first, until `size` more bytes fit."""
    held = []
    for path in folder().glob("*.tar"):
        with contextlib.suppress(FileNotFoundError):  # given up by another process
            held.append((path.stat().st_mtime, path.stat().st_size, path))
    free = capacity() - sum(bytes for _, bytes, _ in held) - size
    for _, bytes, path in sorted(held):
        if free >= 0:
            return
        path.unlink(missing_ok=True)  # whoever reads it now has it open
        free += bytes


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
