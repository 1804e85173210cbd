"""Where shards lie: a folder, a brace pattern, a URL of either, or a list of these, as one list of shards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.data_folder import root
from bench.errors import UserError

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"^(\d+)\.\.(\d+)$")


@dataclass(frozen=True)
class Shard:
    """One tar. Where shards come from several folders, names and keys begin with the folder's place in the list."""

    name: str  #: "00000.tar", or "1/00000.tar"
    path: str  #: local path or URL
    prefix: str = ""  #: of its samples' keys: "" or "1/"


def remote(path: str) -> bool:
    """Whether fsspec reads it."""
    return "://" in path


def named(sources: Sequence[str]) -> tuple[str, ...]:
    """The same, a lone name of a set standing for its folder in the data folder."""
    if len(sources) == 1 and _NAME.match(sources[0]) and not Path(sources[0]).exists():
        return (str(root() / sources[0]),)
    return tuple(sources)


def expand(sources: Sequence[str]) -> list[Shard]:
    """All shards, by folder in the order of `sources` and then by name.

    Names and keys are as they are in one folder. With several, those of folder i begin with "i/", so that equal keys
    stay apart; the order of folders is then part of what the data is. UserError where a shard or folder is not there.
    """
    folders: dict[str, dict[str, str]] = {}
    for source in sources:
        for path in _paths(source.removeprefix("file://")):
            folder, _, name = path.rpartition("/")
            if name in folders.setdefault(folder, {}):
                raise UserError(f"shards: {path} stands twice in {', '.join(sources)}; name each shard once")
            folders[folder][name] = path
    width = len(str(len(folders) - 1))
    return [
        Shard(prefix + name, paths[name], prefix)
        for place, paths in enumerate(folders.values())
        for prefix in (f"{place:0{width}}/" if len(folders) > 1 else "",)
        for name in sorted(paths)
    ]


def _paths(source: str) -> Iterator[str]:
    """The tars of one entry."""
    if not source.endswith(".tar"):
        for folder in braces(source):
            yield from _in_folder(folder.rstrip("/"))
        return
    paths = list(braces(source))
    gone = [path for path in paths if not remote(path) and not Path(path).is_file()]
    if gone:
        raise UserError(f"shards: {source}: {len(gone)} of {len(paths)} are not there, the first is {gone[0]}")
    yield from (path if remote(path) else str(Path(path).absolute()) for path in paths)


def _in_folder(folder: str) -> list[str]:
    if remote(folder):
        return _in_remote_folder(folder)
    if not Path(folder).is_dir():
        raise UserError(f"shards: {folder}: no such folder; give one with .tar files, or a pattern that ends in .tar")
    found = sorted(str(path.absolute()) for path in Path(folder).glob("*.tar") if path.is_file())
    if not found:
        packed = " (.tar.gz cannot be read at an offset: unpack them)" if any(Path(folder).glob("*.tar.gz")) else ""
        raise UserError(f"shards: {folder}: holds no .tar files{packed}")
    return found


def _in_remote_folder(folder: str) -> list[str]:
    fs, path = filesystem(folder)
    try:
        found = sorted(str(fs.unstrip_protocol(name)) for name in fs.glob(f"{path}/*.tar"))
    except Exception as error:  # whatever the store's package raises
        raise UserError(f"shards: {folder}: cannot be listed ({type(error).__name__}: {error})") from error
    if not found:
        raise UserError(f"shards: {folder}: holds no .tar files, or cannot be listed; give a pattern that ends in .tar")
    return found


def filesystem(url: str):  # type: ignore[no-untyped-def]  # fsspec has no types
    """fsspec's file system for a URL, and the path in it. UserError where its package is not installed."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UserError(f"shards: {url}: {error}") from error


def braces(pattern: str) -> Iterator[str]:
    """ "a{00..02}.tar" -> a00.tar, a01.tar, a02.tar; "{a,b}" -> a, b; several multiply. UserError on other braces."""
    found = _BRACES.search(pattern)
    if found is None:
        if "{" in pattern or "}" in pattern:
            raise UserError(f"shards: {pattern}: braces do not match")
        yield pattern
        return
    for word in _words(found.group(1), pattern):
        yield from braces(pattern[: found.start()] + word + pattern[found.end() :])


def _words(inside: str, pattern: str) -> list[str]:
    found = _RANGE.match(inside)
    if found is None:
        if "," not in inside:
            raise UserError(f"shards: {pattern}: {{{inside}}} should be a range such as {{00000..00331}}, or {{a,b}}")
        return inside.split(",")
    first, last = found.groups()
    if int(first) > int(last):
        raise UserError(f"shards: {pattern}: {{{inside}}} runs backwards")
    return [f"{i:0{len(first)}}" for i in range(int(first), int(last) + 1)]
