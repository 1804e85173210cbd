"""Copies training shards and evaluation sets into the data folder, from what webdataset's `gopen` opens.

That is web addresses (by curl), the output of commands (`pipe:`), file:// and the further schemes that it knows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import data_folder, reading
from bench.catalogue.evaluation_sets import FOLDERS, Entry, Split, parse
from bench.data.evaluation import layouts
from bench.data.evaluation.pairs import TEMPLATES
from bench.data.shards.sources import braces, is_name
from bench.data.shards.tar import Broken, members
from bench.errors import UserError, one_line
from bench.store import files

PIPE, COUNT = "pipe:", "nshards.txt"
PIECE = 1 << 22  #: bytes copied at a time
_HUB = re.compile(r"^(https://huggingface\.co/datasets/[^/]+/[^/]+)/tree/")
_TAR = re.compile(r"[^/\s'\"=:]+\.tar(?![\w.-])")  #: the name of a shard in an address or a command


class Unreachable(Exception):
    """A file did not come whole. Its text is the reason."""

    def __init__(self, reason: str, gone: bool = False) -> None:
        """`gone`: there is no such file, as far as that can be told."""
        super().__init__(reason)
        self.gone = gone


def names_shards(url: str) -> bool:
    """Whether a URL stands for training shards: it names a tar, and has no {} for the files of an evaluation set."""
    return "{}" not in url and _TAR.search(url) is not None


def fetch_shards(name: str, pattern: str, say: Callable[[str], None]) -> Path:
    """Copy training shards to the folder of the set `name` in the data folder, and return that folder.

    pattern: URLs of tars with braces as in `sources.braces`; a shard's name is that of the last tar in its URL or its
    command. Shards that are there stay, so a stopped copy goes on. say: takes a line for each file. Raises UserError if
    a tar does not come whole, for a name that no set can have, and for two shards of one name.
    """
    if not is_name(name):
        raise UserError(f"{name}: is no name of a training set; it should be letters, digits and . _ + - alone")
    home = data_folder.root() / name
    urls = braces(pattern)
    tars = [home / _TAR.findall(url)[-1] for url in urls]
    if len(set(tars)) < len(tars):
        raise UserError(f"{pattern}: some of its {len(tars)} shards have the same name; copy each folder alone")
    for url, tar in zip(urls, tars, strict=True):
        _tar(url, tar, say)
    return home


def fetch_evaluation(dataset: str, url: str, say: Callable[[str], None]) -> Path:
    """Copy a split, "pets" or "pets/train", from a folder's URL to the place where evaluation looks for it.

    url: what lies above the split's folder; or `pipe:` and a command with {} where the file's name goes, such as
    "test/0.tar". Files that are there stay, so a stopped copy goes on. say: takes a line for each file. Returns the
    split's folder. Raises UserError for an unknown name, and if a file does not come whole.
    """
    entry, split = parse(dataset)
    if url.startswith(PIPE) and "{}" not in url:
        raise UserError(f"{url}: should have {{}} where the name of a file goes, such as test/0.tar")
    home = layouts.webdatasets(entry, split)[0]
    there, count = _counted(entry, split, url)
    _write(home / COUNT, lambda path: path.write_bytes(count))
    for name in ("classnames.txt", TEMPLATES):
        _text(_file(url, name), home.parent / name, say)
    for tar in layouts.shards(home):
        _tar(_file(url, f"{there}/{tar.name}"), tar, say)
    return home


def _file(url: str, name: str) -> str:
    """Return the URL, or the command, of a file of the data set."""
    if url.startswith(PIPE):
        return url.replace("{}", name)
    folder = _HUB.sub(r"\1/resolve/", url)
    return f"{folder.rstrip('/')}/{name}"


def _counted(entry: Entry, split: Split, url: str) -> tuple[str, bytes]:
    """Return the name of the split's folder there, and the text that says how many shards it has."""
    failed = None
    for name in FOLDERS[split]:
        where = _file(url, f"{name}/{COUNT}")
        try:
            text = _bytes(where, 100)
        except Unreachable as error:
            failed = failed or f"{where}: {entry.title} cannot be fetched ({error})"
        else:
            layouts.count(text, where)
            return name, text
    raise UserError(f"{failed}; the URL should be that of the folder above the splits")


def _text(url: str, path: Path, say: Callable[[str], None]) -> None:
    """Fetch a text file that a data set need not have."""
    if os.path.lexists(path):
        return
    try:
        text = _bytes(url, reading.TEXT_BYTES)
    except Unreachable as error:
        if not error.gone:
            raise UserError(f"{url}: cannot be fetched ({error}); the same command goes on") from error
        say(f"{path.name}: there is none ({error})")
    else:
        _write(path, lambda there: there.write_bytes(text))
        say(str(path))


def _bytes(url: str, most: int) -> bytes:
    data = b""
    for piece in _pieces(url):
        data += piece
        if len(data) > most:
            raise UserError(f"{url}: has more than {most:,} bytes")
    return data


def _tar(url: str, tar: Path, say: Callable[[str], None]) -> None:
    """Fetch a tar unless it is there, and read its headers to the end."""
    if tar.is_file():
        return

    def fetched(path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(_pieces(url))
            size = file.tell()
        with reading.opened(path) as file:
            for _ in members(file, size):
                pass

    try:
        _write(tar, fetched)
    except (Unreachable, Broken) as error:
        reason = f"the tar {error}" if isinstance(error, Broken) else f"cannot be fetched ({error})"
        raise UserError(f"{url}: {reason}; the same command goes on from there") from error
    say(f"{tar}: {tar.stat().st_size:,} bytes")


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file completely or not at all. Raises UserError if it cannot be written, and what `write` raises."""
    try:
        files.write_path(path, write, durable=False)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error


def _pieces(url: str) -> Iterator[bytes]:
    """Yield the bytes of a file. Raises Unreachable, at its end as well."""
    from webdataset.gopen import gopen

    stream: Any = None
    try:
        # webdataset before 1.0 puts a web address between single quotes into a line of the shell
        stream = gopen(url if url.startswith(PIPE) else url.replace("'", "%27"))
        while piece := stream.read(PIECE):
            yield piece
        stream.close()
    except (OSError, ValueError) as error:  # of the shell, of curl, because there is no curl, for an unknown scheme
        if not hasattr(stream, "proc"):
            gone = isinstance(error, FileNotFoundError) and url.startswith("file:")
            raise Unreachable(f"{type(error).__name__}: {one_line(error)}", gone) from error
        status = stream.proc.wait()
        what = "the command" if url.startswith(PIPE) else "curl"
        raise Unreachable(f"{what} ended with status {status}", gone=what != "curl" or status == 22) from error
