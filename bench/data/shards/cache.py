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

from bench.data import place
from bench.data.shards.sources import filesystem, remote
from bench.errors import UserError

VARIABLE = "BENCH_CACHE_GB"
DEFAULT_GB = 200.0
BUFFER = 1 << 20  #: bytes read at a time in a scan


def folder() -> Path:
    """Below the data folder."""
    return place.root() / "cache" / "shards"


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


def fetched(url: str) -> Path:
    """The local copy of a remote shard, fetched now if it is not there. Processes that want the same wait for one."""
    name = f"{hashlib.sha256(url.encode()).hexdigest()[:16]}-{url.rpartition('/')[2]}"
    path = folder() / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder() / f"{name}.lock"):
            if not path.exists():
                _fetch(url, path)
    with contextlib.suppress(FileNotFoundError):  # another process may give it up this moment; the caller tries again
        os.utime(path)
    return path


def opened(path: str) -> BinaryIO:
    """A shard open for reading: a local file, or the local copy of a URL. OSError where it cannot be."""
    if not remote(path):
        return open(path, "rb", buffering=BUFFER)
    while True:
        with contextlib.suppress(FileNotFoundError):  # another process gave it up for room since it was fetched
            return open(fetched(path), "rb", buffering=BUFFER)


def size(url: str) -> int:
    """Bytes of a remote shard. UserError where it is not there."""
    fs, path = filesystem(url)
    try:
        return int(fs.size(path))
    except Exception as error:  # whatever the store's package raises
        raise UserError(f"shards: {url}: cannot be reached ({type(error).__name__}: {error})") from error


def _fetch(url: str, path: Path) -> None:
    fs, source = filesystem(url)
    _make_room(size(url))
    part = path.with_name(path.name + ".part")  # one process at a time holds the lock, a dead one's part is overwritten
    try:
        with fs.open(source, "rb") as there, open(part, "wb") as here:
            shutil.copyfileobj(there, here, 1 << 22)
    except Exception as error:  # whatever the store's package raises
        part.unlink(missing_ok=True)
        raise UserError(f"shards: {url}: cannot be fetched ({type(error).__name__}: {error})") from error
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
