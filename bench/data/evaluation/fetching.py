"""Copies a split in clip-benchmark's webdataset layout from a URL, or by a command, into the data folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from bench import reading
from bench.catalogue.evaluation_sets import FOLDERS, Entry, Split, parse
from bench.data.evaluation import layouts
from bench.data.evaluation.pairs import TEMPLATES
from bench.data.shards.streams import PIPE, Unreachable, download, pieces
from bench.data.shards.tar import Broken, members
from bench.errors import UserError
from bench.store import files

COUNT = "nshards.txt"
_HUB = re.compile(r"^(https://huggingface\.co/datasets/[^/]+/[^/]+)/tree/")


def fetch(dataset: str, url: str, say: Callable[[str], None]) -> Path:
    """Copy a split, "pets" or "pets/train", from a folder's URL to the place where evaluation looks for it.

    url: what lies above the split's folder, of http(s), file or any kind that fsspec reads; or `pipe:` and a command
    with {} where the file's name goes, such as "test/0.tar". Files that are there stay, so a stopped copy goes on.
    say: takes a line for each file. Returns the split's folder. Raises UserError for an unknown name, and if a file
    does not come whole.
    """
    entry, split = parse(dataset)
    if url.startswith(PIPE) and "{}" not in url:
        raise UserError(f"{url}: should have {{}} where the name of a file goes, such as test/0.tar")
    home = layouts.webdatasets(entry, split)[0]
    try:
        there, count = _counted(entry, split, url)
        home.mkdir(parents=True, exist_ok=True)
        files.write_bytes(home / COUNT, count, durable=False)
        for name in ("classnames.txt", TEMPLATES):
            _text(_file(url, name), home.parent / name, say)
        for tar in layouts.shards(home):
            if not tar.is_file():
                files.write_path(tar, lambda path: _tar(_file(url, f"{there}/{tar.name}"), path), durable=False)  # noqa: B023
                say(f"{tar}: {tar.stat().st_size:,} bytes")
    except OSError as error:
        raise UserError(f"{home}: cannot be written: {error.strerror}") from error
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
        try:
            text = _bytes(_file(url, f"{name}/{COUNT}"), 100)
        except Unreachable as error:
            failed = failed or error
            continue
        layouts.count(text, _file(url, f"{name}/{COUNT}"))
        return name, text
    where = _file(url, f"{FOLDERS[split][0]}/{COUNT}")
    hint = "the URL should be that of the folder above the splits"
    raise UserError(f"{where}: {entry.title} cannot be fetched ({failed}); {hint}") from failed


def _text(url: str, path: Path, say: Callable[[str], None]) -> None:
    """Fetch a text file that a data set need not have."""
    if os.path.lexists(path):
        return
    try:
        files.write_bytes(path, _bytes(url, reading.TEXT_BYTES), durable=False)
        say(str(path))
    except Unreachable as error:
        if not error.gone:
            raise UserError(f"{url}: cannot be fetched ({error}); the same command goes on") from error
        say(f"{path.name}: there is none ({error})")


def _bytes(url: str, most: int) -> bytes:
    data = b""
    for piece in pieces(url):
        data += piece
        if len(data) > most:
            raise UserError(f"{url}: has more than {most:,} bytes")
    return data


def _tar(url: str, path: Path) -> None:
    """Fetch a tar and read its headers to the end."""
    try:
        size = download(url, path)
        with reading.opened(path) as file:
            for _ in members(file, size):
                pass
    except (Unreachable, Broken) as error:
        reason = f"the tar {error}" if isinstance(error, Broken) else f"cannot be fetched ({error})"
        raise UserError(f"{url}: {reason}; the same command goes on from there") from error
