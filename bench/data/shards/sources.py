"""Expands sources of shards (a folder, a brace pattern, a URL of either, commands, or several of these) to a list."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.data.shards.streams import PIPE, filesystem, refuse_commands, remote, streamed
from bench.data_folder import root
from bench.errors import UserError, one_line

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"^([0-9]{1,18})\.\.([0-9]{1,18})$")
_TAR = re.compile(r"[^/\s'\"=:]+\.tar(?![\w.-])")  #: the name of a shard in a command
MOST = 200_000  #: names that a pattern may stand for


@dataclass(frozen=True)
class Shard:
    """One tar. With shards of several folders, names and keys begin with the folder's number in the list."""

    name: str  #: "00000.tar", or "1/00000.tar"
    path: str  #: local path, URL or command
    prefix: str = ""  #: prefix of its samples' keys: "" or "1/"


def named(sources: Sequence[str]) -> tuple[str, ...]:
    """Replace a single name of a set by its folder in the data folder; return other sources unchanged."""
    if len(sources) == 1 and _NAME.match(sources[0]) and not os.path.exists(sources[0]):
        return (str(root() / sources[0]),)
    return tuple(sources)


def expand(sources: Sequence[str]) -> list[Shard]:
    """List all shards, by folder in the order of `sources` and then by name.

    With several folders, names and keys of folder i begin with "i/", so that equal keys stay different; the content of
    the data then depends on the order of the folders. Raises UserError if a shard or folder is missing or repeated, or
    its path is not UTF-8, which an index could not store, and for commands that are not allowed or name no shard.
    """
    folders: dict[str, dict[str, str]] = {}
    refuse_commands(*sources)
    for source in sources:
        for path in _paths(source.removeprefix("file://")):
            if not path.isascii() and path.encode(errors="replace").decode() != path:
                raise UserError(f"shards: {path!a}: the path is not UTF-8; rename it")
            folder, name = place(path)
            if name in folders.setdefault(folder, {}):
                raise UserError(f"shards: {path} stands twice in {', '.join(sources)}; name each shard once")
            folders[folder][name] = path
    width = len(str(len(folders) - 1))
    return [
        Shard(prefix + name, paths[name], prefix)
        for number, paths in enumerate(folders.values())
        for prefix in (f"{number:0{width}}/" if len(folders) > 1 else "",)
        for name in sorted(paths)
    ]


def place(path: str) -> tuple[str, str]:
    """Return the folder and the name of a shard. A command's folder is all of it but the name of the last tar."""
    if not path.startswith(PIPE):
        folder, _, name = path.rpartition("/")
        return folder, name
    tars = list(_TAR.finditer(path))
    if not tars:
        raise UserError(f"shards: {path}: should name the tar that it prints, such as pipe:cat 00000.tar")
    return f"{path[: tars[-1].start()]}/{path[tars[-1].end() :]}", tars[-1][0]


def _paths(source: str) -> Iterator[str]:
    """Yield the tars of one source."""
    if not source.endswith(".tar") and not source.startswith(PIPE):
        for folder in braces(source):
            yield from _in_folder(folder.rstrip("/"))
        return
    paths = list(braces(source))
    gone = [path for path in paths if not remote(path) and not os.path.isfile(path)]
    if gone:
        raise UserError(f"shards: {source}: {len(gone)} of {len(paths)} are not there, the first is {gone[0]}")
    yield from (path if remote(path) else str(Path(path).absolute()) for path in paths)


def _in_folder(folder: str) -> list[str]:
    if remote(folder):
        return _in_remote_folder(folder)
    if not os.path.isdir(folder):
        raise UserError(f"shards: {folder}: no such folder; give one with .tar files, or a pattern that ends in .tar")
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise UserError(f"shards: {folder}: cannot be listed: {error.strerror}") from error
    tars = (Path(folder, name).absolute() for name in names if name.endswith(".tar"))
    paths = sorted(str(path) for path in tars if os.path.isfile(path))
    if not paths:
        packed = any(name.endswith(".tar.gz") for name in names)
        hint = " (.tar.gz cannot be read at an offset: unpack them)" if packed else ""
        raise UserError(f"shards: {folder}: holds no .tar files{hint}")
    return paths


def _in_remote_folder(folder: str) -> list[str]:
    if streamed(folder):
        raise UserError(f"shards: {folder}: cannot be listed; give a pattern that ends in .tar")
    fs, path = filesystem(folder)
    try:
        urls = sorted(str(fs.unstrip_protocol(name)) for name in fs.glob(f"{path}/*.tar"))
    except Exception as error:  # whatever the store's package raises
        raise UserError(f"shards: {folder}: cannot be listed ({type(error).__name__}: {one_line(error)})") from error
    if not urls:
        raise UserError(f"shards: {folder}: holds no .tar files, or cannot be listed; give a pattern that ends in .tar")
    return urls


def braces(pattern: str) -> Iterator[str]:
    """Expand braces: "a{00..02}.tar" -> a00.tar, a01.tar, a02.tar; "{a,b}" -> a, b; several give all combinations.

    Raises UserError for other braces, and for more than `MOST` names, before it makes the first.
    """
    pieces = _BRACES.split(pattern)  # text, the inside of braces, text, ...
    texts, insides = pieces[::2], pieces[1::2]
    if any("{" in text or "}" in text for text in texts):
        raise UserError(f"shards: {pattern}: braces do not match, or lie in each other")
    if math.prod(_count(inside, pattern) for inside in insides) > MOST:
        raise UserError(f"shards: {pattern}: stands for more than {MOST:,} names; name fewer shards")
    for words in itertools.product(*map(_words, insides)):
        yield texts[0] + "".join(map("".join, zip(words, texts[1:], strict=True)))


def _count(inside: str, pattern: str) -> int:
    """Return how many words the inside of one pair of braces stands for."""
    match = _RANGE.match(inside)
    if match is None:
        if "," not in inside:
            raise UserError(f"shards: {pattern}: {{{inside}}} should be a range such as {{00000..00331}}, or {{a,b}}")
        return inside.count(",") + 1
    first, last = map(int, match.groups())
    if first > last:
        raise UserError(f"shards: {pattern}: {{{inside}}} runs backwards")
    return last - first + 1


def _words(inside: str) -> list[str]:
    match = _RANGE.match(inside)
    if match is None:
        return inside.split(",")
    first, last = match.groups()
    return [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
