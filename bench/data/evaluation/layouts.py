"""Finds the files of a data set below the data folder, and says how to get them if they are missing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bench import data_folder, reading
from bench.catalogue.evaluation_sets import FOLDERS, EvaluationSet, Split, evaluation_sets
from bench.errors import UserError

MAX_SHARDS = 100_000  #: shards of a split


@dataclass(frozen=True)
class Found:
    """One split of a data set on the disk."""

    entry: EvaluationSet
    split: Split
    path: Path  #: the split's folder of tars, or the Arrow file of the hub's cache


def find_split(entry: EvaluationSet, split: Split) -> Found | None:
    """Find the split: a webdataset folder, or for WinoGAViL the Arrow file that DataComp's script leaves.

    Returns None if it is missing. Raises UserError if nshards.txt is not a plausible number.
    """
    if entry.hub:
        files = sorted(_cache(entry).rglob("*-test.arrow")) if split == "test" else []
        return Found(entry, split, files[0]) if files else None
    for path in webdataset_folders(entry, split):
        if os.path.isdir(path) and not _lacking(path) and any(path.glob("*.tar")):
            return Found(entry, split, path)
    return None


def require_split(entry: EvaluationSet, split: Split) -> Found:
    """Find the split as `find_split` does. Raises UserError that says how to get a missing one, and its size."""
    found = find_split(entry, split)
    if found is None:
        gone = missing_split(entry, split)
        size = f" (about {gone.bytes / 1e9:.3g} GB)" if gone.bytes else ""
        raise UserError(f"{gone.what} is missing; looked in {', '.join(gone.looked)}. Get it with: {gone.get}{size}")
    return found


def missing_split(entry: EvaluationSet, split: Split, purpose: str = "") -> data_folder.Missing:
    """Describe a missing split: where it is expected, how to get it, its size. `purpose` says what it is used for."""
    description = f"{entry.title} ({entry.written(split)})" + (f", {purpose}" if purpose else "")
    looked = [_cache(entry)] if entry.hub else webdataset_folders(entry, split)
    for path in looked:
        if lacking := _lacking(path):
            description += f": incomplete, {path} lacks {', '.join(lacking[:3])}{' ...' if len(lacking) > 3 else ''}"
            break
    return data_folder.Missing(description, tuple(map(str, looked)), _command(entry, split), entry.bytes(split) or None)


def split_tars(path: Path) -> list[Path]:
    """List the tars of a split's folder by number: as many as nshards.txt says, or all if there is no such file.

    Raises UserError if nshards.txt is not a plausible number.
    """
    count = _counted(path)
    if count is not None:
        return [path / f"{number}.tar" for number in range(count)]
    return sorted(path.glob("*.tar"), key=lambda tar: (len(tar.stem), tar.stem))


def webdataset_folders(entry: EvaluationSet, split: Split) -> list[Path]:
    """List the folders of tars in which a split may lie, the most likely one first."""
    stems = dict.fromkeys((entry.webdataset or entry.name, entry.name))
    tails = ("", "_test") if entry.name in evaluation_sets() else ("",)
    return [
        data_folder.evaluation_folder() / f"wds_{stem}{tail}" / name
        for stem in stems
        for tail in tails
        for name in FOLDERS[split]
    ]


def _counted(path: Path) -> int | None:
    """Return the number in nshards.txt; None without the file. Raises UserError unless it is 1 to `MAX_SHARDS`."""
    file = path / "nshards.txt"
    if not os.path.lexists(file):
        return None
    try:
        text = reading.read_file(file, 100)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}; get it again") from error
    return parse_shard_count(text, str(file))


def parse_shard_count(text: bytes, file: str) -> int:
    """Return the number of shards that the text of `file` says. Raises UserError if it is not 1 to `MAX_SHARDS`."""
    text = text.strip()
    if not text.isdigit() or not 1 <= int(text) <= MAX_SHARDS:
        fault = f"should hold the number of shards, 1 to {MAX_SHARDS:,}, not {text[:40].decode('latin-1')!a}"
        raise UserError(f"{file}: {fault}; get it again")
    return int(text)


def _lacking(path: Path) -> list[str]:
    """Return the names of shards that nshards.txt counts but that are missing."""
    tars = (path / f"{number}.tar" for number in range(_counted(path) or 0))
    return [tar.name for tar in tars if not os.path.isfile(tar)]


def _cache(entry: EvaluationSet) -> Path:
    return data_folder.evaluation_folder() / "hf_cache" / f"nlphuji___{entry.hub}"


def _command(entry: EvaluationSet, split: Split) -> str:
    """Say how a split can be got."""
    if entry.hub:
        script = "download_evalsets.py of github.com/mlfoundations/datacomp"
        return f"python download_evalsets.py {data_folder.evaluation_folder()} ({script})"
    if entry.publisher:
        name = f"wds_{entry.webdataset or entry.name}" + ("_test" if entry.publisher == "djghosh" else "")
        some = f"--include '{split}/*' --include '*.txt'"
        to = data_folder.evaluation_folder() / name
        return f"hf download {entry.publisher}/{name} --repo-type dataset {some} --local-dir {to}"
    if entry.source:
        return f"pack the files of {entry.source} as docs/evaluation_sets.md says"
    url = f"bench data get {entry.written(split)} URL, where a URL has such tars"
    return f"put webdataset tars there as clip_benchmark_export_wds writes them; or {url}"
