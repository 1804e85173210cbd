"""Remote files as streams of bytes: webdataset opens commands (`pipe:`) and web addresses, fsspec any other URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from bench.errors import UserError, one_line

PIPE = "pipe:"
VARIABLE = "BENCH_PIPES"  #: "1": commands in suites and indexes are run
PIECE = 1 << 22  #: bytes copied at a time


class Unreachable(Exception):
    """A remote file did not come whole. Its text is the reason."""

    def __init__(self, reason: str, gone: bool = False) -> None:
        """`gone`: there is no such file, as far as that can be told."""
        super().__init__(reason)
        self.gone = gone


def remote(path: str) -> bool:
    """Whether `path` is a URL, or a command that prints a file."""
    return "://" in path or path.startswith(PIPE)


def streamed(url: str) -> bool:
    """Whether webdataset reads this URL, from its beginning alone: nobody knows its size before its end."""
    return url.startswith((PIPE, "http://", "https://"))


def refuse_commands(*urls: str) -> None:
    """Raise UserError if one of `urls` is a command, unless $BENCH_PIPES allows them: it has all rights of the user."""
    commands = [url for url in urls if url.startswith(PIPE)]
    if commands and os.environ.get(VARIABLE) != "1":
        raise UserError(f"shards: {commands[0]}: is a command of the shell; if you trust its author, set {VARIABLE}=1")


def download(url: str, path: Path) -> int:
    """Write a remote file to `path`; return its bytes. Raises Unreachable, and OSError if `path` cannot be written."""
    with path.open("wb") as file:
        for piece in pieces(url):
            file.write(piece)
        return file.tell()


def pieces(url: str) -> Iterator[bytes]:
    """Yield the bytes of a remote file. Raises Unreachable, at its end as well, and UserError as `refuse_commands`."""
    refuse_commands(url)
    return _by_webdataset(url) if streamed(url) else _by_fsspec(url)


def _by_webdataset(url: str) -> Iterator[bytes]:
    if find_spec("webdataset") is None:
        raise UserError(f"shards: {url}: needs webdataset; pip install 'robust-cl-bench[pack]'")
    from webdataset.gopen import gopen

    stream = None
    try:
        # webdataset before 1.0 puts a web address between single quotes into a line of the shell
        stream = gopen(url if url.startswith(PIPE) else url.replace("'", "%27"))
        while piece := stream.read(PIECE):
            yield piece
        stream.close()
    except OSError as error:  # of the shell, of curl, or because there is no curl
        if stream is None:
            raise Unreachable(f"{type(error).__name__}: {one_line(error)}") from error
        status = stream.proc.wait()
        what = "the command" if url.startswith(PIPE) else "curl"
        raise Unreachable(f"{what} ended with status {status}", gone=what != "curl" or status == 22) from error


def _by_fsspec(url: str) -> Iterator[bytes]:
    fs, path = filesystem(url)
    try:
        with fs.open(path, "rb") as file:
            while piece := file.read(PIECE):
                yield piece
    except Exception as error:  # whatever the store's package raises
        gone = isinstance(error, FileNotFoundError)
        raise Unreachable(f"{type(error).__name__}: {one_line(error)}", gone) from error


def filesystem(url: str):  # type: ignore[no-untyped-def]  # fsspec has no types
    """Return fsspec's file system for a URL and the path in it. Raises UserError if its package is not installed."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(url)
    except Exception as error:  # whatever the store's package raises
        raise UserError(f"shards: {url}: {one_line(error)}") from error
