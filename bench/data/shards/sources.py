"""Expands sources of shards (a folder, a brace pattern, or several of these) to a list."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from braceexpand import braceexpand

from bench.data_folder import data_root
from bench.errors import UserError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_RANGE = re.compile(r"\{(-?[0-9]+)\.\.(-?[0-9]+)")
REMOTE = re.compile(r"pipe:|[A-Za-z0-9.+-]+://")
MAX_SHARDS = 200_000  #: names to which a pattern may expand


@dataclass(frozen=True)
class Shard:
    """One tar. With shards of several folders, names and keys begin with the folder's number in the list."""

    name: str  #: "00000.tar", or "1/00000.tar"
    path: str  #: absolute
    prefix: str = ""  #: prefix of its samples' keys: "" or "1/"


def is_name(text: str) -> bool:
    """Return whether `text` can be the name of a set, which is that of its folder in the data folder."""
    return _NAME.fullmatch(text) is not None


def resolve_set_name(sources: Sequence[str]) -> tuple[str, ...]:
    """Replace a single name of a set by its folder in the data folder; return other sources unchanged."""
    if len(sources) == 1 and is_name(sources[0]) and not os.path.exists(sources[0]):
        return (str(data_root() / sources[0]),)
    return tuple(sources)


def expand_sources(sources: Sequence[str]) -> list[Shard]:
    """List all shards, by folder in the order of `sources` and then by name.

    With several folders, names and keys of folder i begin with "i/", so that equal keys stay different; the content of
    the data then depends on the order of the folders. Raises UserError if a shard or folder is missing, repeated or on
    another machine, or its path is not UTF-8, which an index could not store.
    """
    folders: dict[str, dict[str, str]] = {}
    for source in sources:
        for path in _paths(source):
            if not path.isascii() and path.encode(errors="replace").decode() != path:
                raise UserError(f"shards: {path!a}: the path is not UTF-8; rename it")
            folder, name = os.path.split(path)
            if name in folders.setdefault(folder, {}):
                raise UserError(f"shards: {path} appears twice in {', '.join(sources)}; name each shard once")
            folders[folder][name] = path
    width = len(str(len(folders) - 1))
    return [
        Shard(prefix + name, paths[name], prefix)
        for number, paths in enumerate(folders.values())
        for prefix in (f"{number:0{width}}/" if len(folders) > 1 else "",)
        for name in sorted(paths)
    ]


def _paths(source: str) -> Iterator[str]:
    """Yield the tars of one source."""
    if REMOTE.match(source):
        raise UserError(f"shards: {source}: is not on this machine; first copy it: bench data get NAME URL")
    paths = expand_braces(source)
    if not source.endswith(".tar"):
        for folder in paths:
            yield from _in_folder(folder.rstrip("/"))
        return
    gone = [path for path in paths if not os.path.isfile(path)]
    if gone:
        raise UserError(f"shards: {source}: {len(gone)} of {len(paths)} are not there, the first is {gone[0]}")
    yield from (str(Path(path).absolute()) for path in paths)


def _in_folder(folder: str) -> list[str]:
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


def expand_braces(pattern: str) -> list[str]:
    """Expand braces as bash does: "a{00..02}.tar" -> a00.tar, a01.tar, a02.tar.

    Raises UserError if braces do not match, and for more than `MAX_SHARDS` names.
    """
    many = UserError(f"shards: {pattern}: expands to more than {MAX_SHARDS:,} names; name fewer shards")
    for first, last in _RANGE.findall(pattern):
        if len(first + last) > 36 or abs(int(first) - int(last)) >= MAX_SHARDS:
            raise many
    try:
        names = list(islice(braceexpand(pattern, escape=False), MAX_SHARDS + 1))
    except (ValueError, RecursionError) as error:
        raise UserError(f"shards: {pattern}: braces do not match, or are nested too deeply") from error
    if len(names) > MAX_SHARDS:
        raise many
    return names
