"""A cache of remote shards on the local disk: whole files, of which the least recently used are deleted first."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bench import data_folder
from bench.data.shards.sources import place
from bench.data.shards.streams import Unreachable, download, filesystem, remote, streamed
from bench.errors import UserError, one_line
from bench.reading import opened as opened_file

VARIABLE = "BENCH_CACHE_GB"
DEFAULT_GB = 200.0
BUFFER = 1 << 20  #: bytes read at a time in a scan


def folder() -> Path:
    """Return the cache's folder, below the data folder. It need not exist."""
    return data_folder.root() / "cache" / "shards"


def capacity() -> int:
    """Return the bytes that the cache may take: $BENCH_CACHE_GB * 10^9, by default 200 GB.

    Raises UserError if the variable is not a positive number, or infinite.
    """
    text = os.environ.get(VARIABLE, str(DEFAULT_GB))
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise UserError(f"{VARIABLE}={text}: should be a size in GB, such as 200")
    return int(value * 1e9)


def fetched(url: str, bytes: int | None) -> Path:
    """Return the local copy of a remote shard of `bytes` bytes; fetch it if it is missing or has another size.

    Without `bytes` it is fetched whatever copy there is. Of several processes that need it one fetches and the others
    wait. Raises UserError if it cannot be fetched whole, or has another size at its source.
    """
    name = f"{hashlib.sha256(url.encode()).hexdigest()[:16]}-{place(url)[1]}"
    path = folder() / name
    if not _holds(path, bytes):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder() / f"{name}.lock"):
            if not _holds(path, bytes):
                _fetch(url, path, bytes)
    with contextlib.suppress(FileNotFoundError):  # another process may just have deleted it; the caller tries again
        os.utime(path)
    return path


def opened(path: str, bytes: int | None) -> BinaryIO:
    """Open a shard of `bytes` bytes for reading: a local file, or the local copy of a URL, a new one without `bytes`.

    Raises OSError if the file cannot be opened, and UserError as `fetched` does.
    """
    if not remote(path):
        return opened_file(path, BUFFER)
    while True:
        with contextlib.suppress(FileNotFoundError):  # another process deleted it since it was fetched
            return opened_file(fetched(path, bytes), BUFFER)


def size(url: str) -> int | None:
    """Return the bytes of a remote shard; None if only reading it tells. Raises UserError if it cannot be reached."""
    if streamed(url):
        return None
    fs, path = filesystem(url)
    try:
        return int(fs.size(path))
    except Exception as error:  # whatever the store's package raises
        raise UserError(f"shards: {url}: cannot be reached ({type(error).__name__}: {one_line(error)})") from error


def _holds(path: Path, bytes: int | None) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size == bytes
    return False


def _fetch(url: str, path: Path, bytes: int | None) -> None:
    there = size(url)
    if there not in (None, bytes):
        change = f"has {there} bytes, {bytes} when it was indexed"
        raise UserError(f"shards: {url}: {change}; it was replaced, run `bench data index` again")
    _make_room(bytes or 0)
    part = path.with_name(path.name + ".part")  # overwrites what a killed process left
    try:
        came = download(url, part)
    except (Unreachable, OSError) as error:
        part.unlink(missing_ok=True)
        reason = str(error) if isinstance(error, Unreachable) else f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"shards: {url}: cannot be fetched ({reason})") from error
    if bytes not in (None, came):
        part.unlink()
        again = "the same command fetches it again"
        if there is None:  # it may also be whole, and another one
            again += ", or it was replaced: then run `bench data index` again"
        raise UserError(f"shards: {url}: {came} of its {bytes} bytes came; {again}")
    if bytes is None:
        _make_room(came)
    part.rename(path)


def _make_room(size: int) -> None:
    """Delete cached shards, the least recently used first, until `size` more bytes fit."""
    cached = []
    for path in folder().glob("*.tar"):
        with contextlib.suppress(FileNotFoundError):  # another process deleted it
            cached.append((path.stat().st_mtime, path.stat().st_size, path))
    free = capacity() - sum(bytes for _, bytes, _ in cached) - size
    for _, bytes, path in sorted(cached):
        if free >= 0:
            return
        path.unlink(missing_ok=True)  # processes that read it have it open
        free += bytes


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
