"""Training pairs in webdataset shards: `load` reads what `bench data index` wrote."""

from __future__ import annotations

import shlex
from functools import lru_cache
from pathlib import Path

from bench import data_folder
from bench.catalogue import training_sets
from bench.data.shards.index import NAME, About, Index, read_about
from bench.data.shards.pairs import ShardPairs
from bench.data.shards.sources import braces, expand, remote
from bench.data_folder import Missing
from bench.errors import UserError
from bench.suite.settings import DataSettings

__all__ = ["ShardPairs", "index_path", "load", "missing", "named_index"]
EXAMPLES = 3  #: of shards in messages


def load(settings: DataSettings) -> ShardPairs:
    """The pairs of `settings`, read once a process. UserError where they are not there, with how to get them."""
    path = index_path(settings).absolute()
    return _load(settings, path, path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=4)
def _load(settings: DataSettings, path: Path, _changed: int) -> ShardPairs:
    for gone in missing(settings):
        looked = ", ".join(gone.looked)
        raise UserError(f"{gone.what}: not there; looked for {looked}. To get it: {gone.get}")
    index = Index.read(path)
    return ShardPairs(settings, index, _paths(settings, path, index.about, _there(settings)))


def missing(settings: DataSettings) -> list[Missing]:
    """What of the training data is not there: nothing, the index or a part of it, or shards.

    UserError for what is no index, and for a wrong pattern.
    """
    if settings.embedded:
        return []
    path = index_path(settings)
    if not path.is_file():
        return [_no_index(settings, path)]
    about = read_about(path)
    get = "put them back, or say in data.shards where they are"
    try:
        there = _there(settings)
        paths = _paths(settings, path, about, there)
    except UserError as error:
        return [Missing(f"{settings.name}, training pairs ({error})", _sources(settings), get, None)]
    if further := _further(settings, about, there):
        return [_stale(settings, path, about, further)]
    gone = [one for one in paths if not remote(one) and not Path(one).is_file()]
    if not gone:
        return []
    size = sum(entry.bytes for entry, one in zip(about.shards, paths, strict=True) if one in set(gone))
    what = f"{settings.name}, {len(gone)} of {len(paths)} shards of {path}"
    return [Missing(what, (gone[0],), get, size)]


def index_path(settings: DataSettings) -> Path:
    """Where the index is looked for."""
    if settings.index is not None:
        return Path(settings.index)
    first = next(braces(_sources(settings)[0].removeprefix("file://")))  # as `bench data index` writes it
    if remote(first):
        return data_folder.root() / settings.name / NAME
    return (Path(first).parent if first.endswith(".tar") else Path(first)) / NAME


def named_index(name: str) -> Path:
    """An index given by its path, or by the name of a set in the data folder. UserError where there is none."""
    for path in (Path(name), data_folder.root() / name / NAME):
        if path.is_file():
            return path
    raise UserError(
        f"{name}: no such index, and none at {data_folder.root() / name / NAME}; `bench data index` makes them"
    )


def _sources(settings: DataSettings) -> tuple[str, ...]:
    if settings.shards is None:
        return (str(data_folder.root() / settings.name),)
    return (settings.shards,) if isinstance(settings.shards, str) else settings.shards


def _there(settings: DataSettings) -> dict[str, str]:
    """Name -> path of the shards that the suite names; where it names none, of those in its data folder's folder.

    A suite that names an index alone means what that holds.
    """
    if settings.shards is not None:
        return {shard.name: shard.path for shard in expand(_sources(settings))}
    if settings.index is not None:
        return {}
    return {path.name: str(path) for path in sorted((data_folder.root() / settings.name).glob("*.tar"))}


def _further(settings: DataSettings, about: About, there: dict[str, str]) -> list[str]:
    """Names of shards that are there and not in the index, and so would not be trained on."""
    indexed = {entry.name for entry in about.shards}
    if settings.shards is None:
        indexed = {name.rpartition("/")[2] for name in indexed}  # of several folders, each with its place before it
    return [name for name in there if name not in indexed]


def _paths(settings: DataSettings, path: Path, about: About, there: dict[str, str]) -> list[str]:
    """Of the shards of the index at `path`: by name among those of the suite, if it names any; else as the index says.

    UserError where the suite names others.
    """
    if settings.shards is None:
        return [entry.path if remote(entry.path) else str(path.parent / entry.path) for entry in about.shards]
    gone = [entry.name for entry in about.shards if entry.name not in there]
    if gone:
        said = f"{len(gone)} of {len(about.shards)} shards of {path} are not among them, the first is {gone[0]}"
        raise UserError(f"data.shards: {said}; name all that were indexed")
    return [there[entry.name] for entry in about.shards]


def _stale(settings: DataSettings, path: Path, about: About, further: list[str]) -> Missing:
    some = f"{', '.join(further[:EXAMPLES])}{', ...' if len(further) > EXAMPLES else ''}"
    what = f"{settings.name}, index of {len(further)} more shards than it has ({some})"
    form = " --each-caption" if about.each_caption else ""
    get = f"{_command(settings, path)}{form}; or name in data.shards those that are indexed, to train on them alone"
    return Missing(what, (str(path),), get, None)


def _no_index(settings: DataSettings, path: Path) -> Missing:
    sources = _sources(settings)
    try:
        expand(sources)
    except UserError:
        entry = training_sets.published(settings.name)
        folder = data_folder.root() / settings.name
        size = entry.gigabytes * 10**9 if entry and entry.gigabytes else None
        get = training_sets.how_to_get(settings.name, folder)
        return Missing(f"{settings.name}, training pairs", (*sources, str(path)), get, size)
    return Missing(f"{settings.name}, index of its shards", (str(path),), _command(settings, path), None)


def _command(settings: DataSettings, path: Path) -> str:
    return shlex.join(["bench", "data", "index", *_sources(settings), "--out", str(path)])
