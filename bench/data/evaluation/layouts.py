"""Finds the files of a data set below the data folder, and says how to get them if they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from bench import data_folder
from bench.catalogue.evaluation_sets import FOLDERS, Entry, Split, entries
from bench.errors import UserError

Layout: TypeAlias = Literal["webdataset", "builder", "hub"]


@dataclass(frozen=True)
class Found:
    """One split of a data set on the disk."""

    entry: Entry
    split: Split
    layout: Layout
    path: Path  #: the split's folder of tars, the builder's folder, or the file


def find(entry: Entry, split: Split) -> Found | None:
    """Find the split in the layouts webdataset, clip-benchmark's builder and hub cache, in this order.

    Returns None if none has it. Raises UserError if nshards.txt is not a number.
    """
    for path in webdatasets(entry, split):
        if path.is_dir() and not _lacking(path) and any(path.glob("*.tar")):
            return Found(entry, split, "webdataset", path)
    if _builder_has(entry, split):
        return Found(entry, split, "builder", data_folder.evaluation() / entry.name)
    for path in _cached(entry, split):
        return Found(entry, split, "hub", path)
    return None


def require(entry: Entry, split: Split) -> Found:
    """Find the split as `find` does. If it is missing, raises a UserError that says how to get it and its size."""
    found = find(entry, split)
    if found is None:
        gone = missing(entry, split)
        size = f" (about {gone.bytes / 1e9:.2g} GB)" if gone.bytes else ""
        raise UserError(f"{gone.what} is missing; looked in {', '.join(gone.looked)}. Get it with: {gone.get}{size}")
    return found


def missing(entry: Entry, split: Split, purpose: str = "") -> data_folder.Missing:
    """Describe a missing split: where it is expected, how to get it, its size. `purpose` says what it is used for."""
    description = f"{entry.title} ({entry.written(split)})" + (f", {purpose}" if purpose else "")
    for path in webdatasets(entry, split):
        lacking = _lacking(path)
        if lacking:
            description += f": incomplete, {path} lacks {', '.join(lacking[:3])}{' ...' if len(lacking) > 3 else ''}"
            break
    looked = [*webdatasets(entry, split)]
    if _built(entry, split):
        looked += [data_folder.evaluation() / entry.name / need for need in _needs(entry, split)] or [
            data_folder.evaluation() / entry.name
        ]
    if entry.hub and split == "test":
        looked.append(_cache(entry))
    return data_folder.Missing(description, tuple(map(str, looked)), _command(entry, split), entry.bytes(split) or None)


def shards(path: Path) -> list[Path]:
    """List the tars of a split's folder by number: as many as nshards.txt says, or all if there is no such file.

    Raises UserError if nshards.txt is not a number.
    """
    count = _counted(path)
    if count is not None:
        return [path / f"{number}.tar" for number in range(count)]
    return sorted(path.glob("*.tar"), key=lambda tar: (len(tar.stem), tar.stem))


def webdatasets(entry: Entry, split: Split) -> list[Path]:
    """List the folders of tars in which a split may lie, the most likely one first."""
    stems = dict.fromkeys((entry.webdataset or entry.name, entry.name))
    tails = ("", "_test") if entry.name in entries() else ("",)
    return [
        data_folder.evaluation() / f"wds_{stem}{tail}" / name
        for stem in stems
        for tail in tails
        for name in FOLDERS[split]
    ]


def _counted(path: Path) -> int | None:
    """Return the number in nshards.txt; None if there is no such file."""
    file = path / "nshards.txt"
    if not file.is_file():
        return None
    try:
        return int(file.read_text())
    except ValueError as error:
        raise UserError(f"{file}: should hold the number of shards") from error


def _lacking(path: Path) -> list[str]:
    """Return the names of shards that nshards.txt counts but that are missing."""
    tars = (path / f"{number}.tar" for number in range(_counted(path) or 0))
    return [tar.name for tar in tars if not tar.is_file()]


def _built(entry: Entry, split: Split) -> bool:
    """Whether the builder knows the split."""
    return bool(entry.builder) and (split == "test" or bool(entry.count(split)))


def _needs(entry: Entry, split: Split) -> tuple[str, ...]:
    return (entry.needs or {}).get(split, ())


def _builder_has(entry: Entry, split: Split) -> bool:
    home = data_folder.evaluation() / entry.name
    if not _built(entry, split) or not home.is_dir() or not any(home.iterdir()):
        return False
    return all((home / need).exists() for need in _needs(entry, split))


def _cache(entry: Entry) -> Path:
    return data_folder.evaluation() / "hf_cache" / f"nlphuji___{entry.hub}"


def _cached(entry: Entry, split: Split) -> Iterator[Path]:
    """Yield the Arrow files that DataComp's script leaves of sets that the hub stores in another format."""
    if entry.hub and split == "test":
        yield from sorted(_cache(entry).rglob("*-test.arrow"))


def _command(entry: Entry, split: Split) -> str:
    """Say in which ways a split can be got, separated by "; or"."""
    ways = []
    if entry.publisher:
        name = f"wds_{entry.webdataset or entry.name}" + ("_test" if entry.publisher == "djghosh" else "")
        some = f"--include '{split}/*' --include '*.txt'"
        to = data_folder.evaluation() / name
        ways.append(f"hf download {entry.publisher}/{name} --repo-type dataset {some} --local-dir {to}")
    if _built(entry, split):
        ways.append(f"put there the files of {entry.source}: {data_folder.evaluation() / entry.name}")
    if entry.hub and split == "test":
        script = "download_evalsets.py of github.com/mlfoundations/datacomp"
        ways.append(f"python download_evalsets.py {data_folder.evaluation()} ({script})")
    if entry.name not in entries():
        ways.append("put webdataset tars there as clip_benchmark_export_wds writes them")
    return "; or ".join(ways)
