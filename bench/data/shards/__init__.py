"""Training pairs in webdataset shards: `load` reads what `bench data index` wrote."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from bench.data import place
from bench.data.place import Missing
from bench.data.shards import catalogue
from bench.data.shards.index import NAME, About, Index, read_about
from bench.data.shards.pairs import ShardPairs
from bench.data.shards.sources import expand, remote
from bench.errors import UserError
from bench.settings import DataSettings

__all__ = ["ShardPairs", "index_path", "load", "missing", "named_index"]


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
    return ShardPairs(settings, index, _paths(settings, path, index.about))


def missing(settings: DataSettings) -> list[Missing]:
    """What of the training data is not there: nothing, the index, or shards. UserError for what is no index."""
    if settings.embedded:
        return []
    path = index_path(settings)
    if not path.is_file():
        return [_no_index(settings, path)]
    about = read_about(path)
    get = "put them back, or say in data.shards where they are"
    try:
        paths = _paths(settings, path, about)
    except UserError as error:
        return [Missing(f"{settings.name}, training pairs ({error})", _sources(settings), get, None)]
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
    first = _sources(settings)[0].removeprefix("file://")
    if remote(first):
        return place.root() / settings.name / NAME
    return (Path(first).parent if first.endswith(".tar") else Path(first)) / NAME


def named_index(name: str) -> Path:
    """An index given by its path, or by the name of a set in the data folder. UserError where there is none."""
    for path in (Path(name), place.root() / name / NAME):
        if path.is_file():
            return path
    raise UserError(f"{name}: no such index, and none at {place.root() / name / NAME}; `bench data index` makes them")


def _sources(settings: DataSettings) -> tuple[str, ...]:
    if settings.shards is None:
        return (str(place.root() / settings.name),)
    return (settings.shards,) if isinstance(settings.shards, str) else settings.shards


def _paths(settings: DataSettings, path: Path, about: About) -> list[str]:
    """Of the shards of the index at `path`: by name among those of the suite, if it names any; else as the index says.

    UserError where the suite names others.
    """
    if settings.shards is None:
        return [entry.path if remote(entry.path) else str(path.parent / entry.path) for entry in about.shards]
    found = {shard.name: shard.path for shard in expand(_sources(settings))}
    gone = [entry.name for entry in about.shards if entry.name not in found]
    if gone:
        said = f"{len(gone)} of {len(about.shards)} shards of {path} are not among them, the first is {gone[0]}"
        raise UserError(f"data.shards: {said}; name all that were indexed")
    return [found[entry.name] for entry in about.shards]


def _no_index(settings: DataSettings, path: Path) -> Missing:
    sources = _sources(settings)
    try:
        expand(sources)
    except UserError:
        entry = catalogue.known(settings.name)
        folder = place.root() / settings.name
        size = entry.gigabytes * 10**9 if entry and entry.gigabytes else None
        get = catalogue.how_to_get(settings.name, folder)
        return Missing(f"{settings.name}, training pairs", (*sources, str(path)), get, size)
    quoted = " ".join(f"'{source}'" if "{" in source else source for source in sources)
    command = f"bench data index {quoted} --out {path}"
    return Missing(f"{settings.name}, index of its shards", (str(path),), command, None)
