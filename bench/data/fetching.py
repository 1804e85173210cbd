"""Copies training shards and evaluation sets into the data folder: from the web, or what webdataset's `gopen` opens.

That is the output of commands (`pipe:`), file:// and the further schemes that it knows.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote

from bench import data_folder, reading
from bench.catalogue.evaluation_sets import FOLDERS, EvaluationSet, Split, parse_dataset
from bench.data.evaluation import layouts
from bench.data.evaluation.pairs import TEMPLATES_FILE
from bench.data.shards.sources import expand_braces, is_name
from bench.errors import UserError, one_line
from bench.store import files
from bench.tars import Broken, tar_members

PIPE, SHARD_COUNT_FILE = "pipe:", "nshards.txt"
PIECE_BYTES = 1 << 22  #: bytes copied at a time
MAX_TAR_BYTES = 1 << 36  #: of a tar; shards have about 1 GB
MIN_FREE_BYTES = 1 << 30  #: bytes of the disk that a copy leaves free
MAX_TRIES, RETRY_SECONDS = 3, 2.0  #: of a tar whose server fails meanwhile; seconds between two of them
READ_TIMEOUT = 30.0  #: seconds without a byte of a web address
_HUB = re.compile(r"^(https://huggingface\.co/datasets/[^/]+/[^/]+)/tree/")
_TAR = re.compile(r"[^/\s'\"=:]+\.tar(?![\w.-])")  #: the name of a shard in an address or a command


class Unreachable(Exception):
    """A file was not received in full. The message is the reason."""

    def __init__(self, reason: str, gone: bool = False, passing: bool = False) -> None:
        """`gone`: apparently there is no such file; `passing`: another try may succeed."""
        super().__init__(reason)
        self.gone, self.passing = gone, passing


def names_shards(url: str) -> bool:
    """Return whether a URL means training shards: it names a tar, and has no {} for files of an evaluation set."""
    return "{}" not in url and _TAR.search(url) is not None


def fetch_shards(name: str, pattern: str, say: Callable[[str], None]) -> Path:
    """Copy training shards to the folder of the set `name` in the data folder, and return that folder.

    pattern: URLs of tars with braces as in `sources.expand_braces`; a shard's name is that of the last tar in its URL
    or its command. Shards that are there stay, so a stopped copy resumes. say: takes a line for each file. Raises
    UserError if a tar does not come whole, for a name that no set can have, and for two shards of one name.
    """
    if not is_name(name):
        raise UserError(f"{name}: not a valid name of a training set; use only letters, digits and . _ + -")
    home = data_folder.data_root() / name
    urls = expand_braces(pattern)
    tars = [home / _TAR.findall(url)[-1] for url in urls]
    if len(set(tars)) < len(tars):
        raise UserError(f"{pattern}: some of its {len(tars)} shards have the same name; copy each folder alone")
    for url, tar in zip(urls, tars, strict=True):
        _tar(url, tar, say)
    return home


def fetch_evaluation(dataset: str, url: str, say: Callable[[str], None]) -> Path:
    """Copy a split, "pets" or "pets/train", from a folder's URL to the place where evaluation looks for it.

    url: what lies above the split's folder; or `pipe:` and a command with {} where the file's name goes, such as
    "test/0.tar". Files that are there stay, so a stopped copy resumes. say: takes a line for each file. Returns the
    split's folder. Raises UserError for an unknown name, and if a file does not come whole.
    """
    entry, split = parse_dataset(dataset)
    if url.startswith(PIPE) and "{}" not in url:
        raise UserError(f"{url}: should have {{}} where the name of a file goes, such as test/0.tar")
    home = layouts.webdataset_folders(entry, split)[0]
    there, count = _counted(entry, split, url)
    _write(home / SHARD_COUNT_FILE, lambda path: path.write_bytes(count))
    for name in ("classnames.txt", TEMPLATES_FILE):
        _text(_file(url, name), home.parent / name, say)
    for tar in layouts.split_tars(home):
        _tar(_file(url, f"{there}/{tar.name}"), tar, say)
    return home


def _file(url: str, name: str) -> str:
    """Return the URL, or the command, of a file of the data set."""
    if url.startswith(PIPE):
        return url.replace("{}", name)
    folder = _HUB.sub(r"\1/resolve/", url)
    return f"{folder.rstrip('/')}/{name}"


def _counted(entry: EvaluationSet, split: Split, url: str) -> tuple[str, bytes]:
    """Return the name of the split's folder there, and the text that says how many shards it has."""
    failed = None
    for name in FOLDERS[split]:
        where = _file(url, f"{name}/{SHARD_COUNT_FILE}")
        try:
            text = b"".join(_pieces(where, 100))
        except Unreachable as error:
            failed = failed or f"{where}: {entry.title} cannot be fetched ({error})"
        else:
            layouts.parse_shard_count(text, where)
            return name, text
    raise UserError(f"{failed}; the URL should be that of the folder above the splits")


def _text(url: str, path: Path, say: Callable[[str], None]) -> None:
    """Fetch a text file that a data set need not have."""
    if os.path.lexists(path):
        return
    try:
        text = b"".join(_pieces(url, reading.TEXT_BYTES))
    except Unreachable as error:
        if not error.gone:
            raise UserError(f"{url}: cannot be fetched ({error}); the same command continues") from error
        say(f"{path.name}: there is none ({error})")
    else:
        _write(path, lambda there: there.write_bytes(text))
        say(str(path))


def _tar(url: str, tar: Path, say: Callable[[str], None]) -> None:
    """Fetch a tar unless it is there, and read its headers to the end."""
    if tar.is_file():
        return

    def fetched(path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(_pieces(url, min(MAX_TAR_BYTES, shutil.disk_usage(path.parent).free - MIN_FREE_BYTES)))
            size = file.tell()
        with reading.open_file(path) as file:
            for _ in tar_members(file, size):
                pass

    for tries_left in reversed(range(MAX_TRIES)):
        try:
            _write(tar, fetched)
            break
        except (Unreachable, Broken) as error:
            reason = f"the tar {error}" if isinstance(error, Broken) else f"cannot be fetched ({error})"
            if isinstance(error, Broken) or not error.passing or not tries_left:
                raise UserError(f"{url}: {reason}; the same command continues from there") from error
            say(f"{url}: {reason}; it is tried again")
            time.sleep(RETRY_SECONDS)
    say(f"{tar}: {tar.stat().st_size:,} bytes")


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file completely or not at all. Raises UserError if it cannot be written, and what `write` raises."""
    try:
        files.write_path(path, write, durable=False)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error


def _pieces(url: str, most: int) -> Iterator[bytes]:
    """Yield the bytes of a file. Raises Unreachable, at its end as well, and UserError beyond `most` bytes."""
    from webdataset.gopen import gopen

    stream: Any = None
    web = url.lower().startswith(("http://", "https://"))
    try:
        if web:  # not by gopen's curl, which takes brackets for patterns and says nothing for a minute
            stream = urllib.request.urlopen(quote(url, safe=":/?&=%#@+,;~!$'()*[]"), timeout=READ_TIMEOUT)
        else:
            remote = re.match(r"\w+://", url)
            stream = gopen(re.sub(r"[\[\]{}]", lambda sign: quote(sign[0]), url) if remote else url)
        while piece := stream.read(PIECE_BYTES):
            most -= len(piece)
            if most < 0:
                raise UserError(f"{url}: has more bytes than such a file can have, or than the disk has room for")
            yield piece
        if web and stream.length:
            raise ConnectionError(f"{stream.length:,} bytes are missing at its end")
        stream.close()
    except HTTPError as error:
        error.close()
        raise Unreachable(f"{error.code} {error.reason}", error.code in (404, 410), error.code >= 500) from error
    except (OSError, ValueError, HTTPException) as error:  # of the network, of the shell, for an unknown scheme
        if not hasattr(stream, "proc"):
            gone = isinstance(error, FileNotFoundError) and url.startswith("file:")
            inner = error.reason if isinstance(error, URLError) and isinstance(error.reason, OSError) else error
            passing = isinstance(inner, ConnectionError | TimeoutError | HTTPException)
            raise Unreachable(f"{type(inner).__name__}: {one_line(inner)}", gone, passing) from error
        status = stream.proc.wait()
        raise Unreachable(f"the command ended with status {status}", url.startswith(PIPE) or status == 22) from error
    finally:
        with contextlib.suppress(OSError):  # a command that is ended here, or failed, says so when it is closed
            if hasattr(stream, "proc"):
                stream.proc.kill()
            if stream is not None:
                stream.close()
