"""Training pairs in webdataset shards, read through the index that `bench data index` writes."""

from __future__ import annotations

import copyreg
import os
import shlex
from functools import lru_cache
from pathlib import Path

from bench import data_folder
from bench.catalogue import training_sets
from bench.data.shards.index import NAME, Index, IndexMetadata, read_about
from bench.data.shards.pairs import ShardPairs
from bench.data.shards.sources import REMOTE, expand_braces, expand_sources
from bench.data_folder import Missing
from bench.errors import UserError
from bench.suite.data_settings import in_data_folder
from bench.suite.settings import DataSettings

__all__ = ["ShardPairs", "index_path", "load_shard_pairs", "missing_shard_data", "wants_each_caption"]
SHOWN_SHARDS = 3  #: number of shards that a message names


def load_shard_pairs(settings: DataSettings) -> ShardPairs:
    """Load the pairs of `settings`, once a process.

    If they are missing or incomplete, raises a UserError that says how to get them.
    """
    path = index_path(settings).absolute()
    return _load(settings, path, path.stat().st_mtime_ns if os.path.isfile(path) else 0)


@lru_cache(maxsize=4)
def _load(settings: DataSettings, path: Path, _changed: int) -> ShardPairs:
    for gone in missing_shard_data(settings):
        locations = ", ".join(gone.looked)
        raise UserError(f"{gone.what}: not found; looked in {locations}. To get it: {gone.get}")
    index = Index.read(path)
    return ShardPairs(settings, index, _paths(settings, path, index.about, _there(settings)))


def _reopened(settings: DataSettings, expected: str) -> ShardPairs:
    """Load pickled pairs in another process. Raises UserError if the index was changed since, or data is missing."""
    pairs = load_shard_pairs(settings)
    if pairs.content_hash != expected:
        raise UserError(f"{pairs.index_path}: was changed while in use; start the command again")
    return pairs


#: pairs are pickled as their settings: another process reads the index again, which takes a second and saves memory
copyreg.pickle(ShardPairs, lambda pairs: (_reopened, (pairs.settings, pairs.content_hash)))


def missing_shard_data(settings: DataSettings) -> list[Missing]:
    """List what is missing of the training data: the index, rows of it, or shards as indexed; [] if nothing is.

    Raises UserError if the index file is something else or cannot be read.
    """
    path = index_path(settings)
    if not os.path.isfile(path):
        return [_no_index(settings, path)]
    about = read_about(path)
    if wants_each_caption(settings) and not about.each_caption:
        what = f"{settings.name}, index with a row for each caption; this one has a row for each image"
        return [Missing(what, (str(path),), _command(settings, path, True), None)]
    get = "put them back, or set data.shards to where they are"
    try:
        there = _there(settings)
        paths = _paths(settings, path, about, there)
    except UserError as error:
        return [Missing(f"{settings.name}, training pairs ({error})", _sources(settings), get, None)]
    indexed = {entry.name for entry in about.shards}
    if settings.shards is None:
        indexed = {name.rpartition("/")[2] for name in indexed}  # shards of several folders have a prefix
    if further := [name for name in there if name not in indexed]:
        return [_stale(settings, path, about, "index of {} more shards than it has", further)]
    sizes = {one: entry.bytes for entry, one in zip(about.shards, paths, strict=True)}
    if gone := [one for one in paths if not os.path.isfile(one)]:
        what = f"{settings.name}, {len(gone)} of {len(paths)} shards of {path}"
        return [Missing(what, (gone[0],), get, sum(sizes[one] for one in gone))]
    if other := [os.path.basename(one) for one in paths if os.path.getsize(one) != sizes[one]]:
        return [_stale(settings, path, about, "index of {} shards that were replaced", other)]
    return []


def index_path(settings: DataSettings) -> Path:
    """Return the path at which the index is expected. Raises UserError for a malformed pattern in data.shards."""
    if settings.index is not None:
        return Path(settings.index)
    return _folder(_sources(settings)[0]) / NAME  # as `bench data index` writes it


def _folder(source: str) -> Path:
    first = Path(expand_braces(source)[0])
    return first.parent if first.name.endswith(".tar") else first


def _sources(settings: DataSettings) -> tuple[str, ...]:
    if settings.shards is None:
        return (str(data_folder.data_root() / settings.name),)
    sources = (settings.shards,) if isinstance(settings.shards, str) else settings.shards
    return tuple(map(in_data_folder, sources))


def _there(settings: DataSettings) -> dict[str, str]:
    """Map names to paths of the shards that the suite names, or by default of those in the set's folder of the data.

    Returns {} if the suite names only an index: then the index alone says which shards there are.
    """
    if settings.shards is not None:
        return {shard.name: shard.path for shard in expand_sources(_sources(settings))}
    if settings.index is not None:
        return {}
    return {path.name: str(path) for path in sorted((data_folder.data_root() / settings.name).glob("*.tar"))}


def _paths(settings: DataSettings, path: Path, about: IndexMetadata, there: dict[str, str]) -> list[str]:
    """Return the paths of the index's shards: those that the suite gives for their names, else those in the index.

    Raises UserError if the suite names shards, but not all that are indexed.
    """
    if settings.shards is None:
        return [str(path.parent / entry.path) for entry in about.shards]
    gone = [entry.name for entry in about.shards if entry.name not in there]
    if gone:
        lacking = f"{len(gone)} of {len(about.shards)} shards of {path} are not among them, the first is {gone[0]}"
        raise UserError(f"data.shards: {lacking}; name all that were indexed")
    return [there[entry.name] for entry in about.shards]


def _stale(settings: DataSettings, path: Path, about: IndexMetadata, fault: str, shards: list[str]) -> Missing:
    """Describe an index that does not fit `shards`; "{}" in `fault` stands for their number."""
    some = f"{', '.join(shards[:SHOWN_SHARDS])}{', ...' if len(shards) > SHOWN_SHARDS else ''}"
    what = f"{settings.name}, {fault.format(len(shards))} ({some})"
    again = _command(settings, path, about.each_caption)
    get = f"{again}; or name in data.shards those that are indexed, to train on them alone"
    return Missing(what, (str(path),), get, None)


def _no_index(settings: DataSettings, path: Path) -> Missing:
    sources, index = _sources(settings), _command(settings, path, wants_each_caption(settings))
    try:
        expand_sources(sources)
    except UserError as error:
        folders = [_folder(one) for one in sources]
        names = [settings.name] if len(folders) == 1 else [folder.name for folder in folders]
        lists = [training_sets.published_list(name) for name in names]
        size = sum(entry.gigabytes or 0 for entry in lists if entry) * 10**9 or None
        ways = [*map(training_sets.download_commands, names, folders), f"then: {index}"]
        get = str(error) if any(map(REMOTE.match, sources)) else "; ".join(ways)
        what = f"{settings.name}, training pairs"
        return Missing(what, (*sources, str(path)), settings.how_to_get_shards or get, size)
    return Missing(f"{settings.name}, index of its shards", (str(path),), index, None)


def wants_each_caption(settings: DataSettings) -> bool:
    """Return whether a suite is for an index with a row for each caption: one that its own command makes."""
    return "--each-caption" in (settings.get or "")


def _command(settings: DataSettings, path: Path, each_caption: bool) -> str:
    option = ["--each-caption"] if each_caption else []
    return shlex.join(["bench", "data", "index", *_sources(settings), "--out", str(path), *option])
