"""Every training set that has a name: data of the package, and the published lists of the papers.

A new set is one more entry of `TRAINING_SETS`, here or by `TRAINING_SETS.add(...)` from Python before the suite is
loaded. Shards of any other name need no entry.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.registry import Registry, lazy

Synonyms = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """One training set: made by `load`, or a published list whose pairs lie in shards."""

    name: str  #: in suites, `data.name`
    #: pixels a side -> its Pairs in memory, which are drawn art; None = it lies in shards and holds photographs
    load: Callable[[int], Any] | None = None
    sizes: tuple[int, ...] = ()  #: pixels a side that `load` takes
    synonyms: Callable[[], Synonyms] | None = None  #: names of its concepts -> their other names
    rows: int = 0  #: pairs in the published list; links die, so what a download gives is less
    page: str = ""  #: the page of the list
    gigabytes: int | None = None  #: of shards, about, images as `how` makes them; None if that is not known
    how: str = ""  #: commands, with {folder} for where the shards go


def _img2dataset(source: str) -> str:
    form = source.rpartition(".")[2]
    return (
        f"img2dataset --url_list {source} --input_format {form} --url_col url --caption_col caption "
        "--output_format webdataset --output_folder {folder} --image_size 256 --processes_count 16 --thread_count 64"
    )


def _emoji(name: str) -> TrainingSet:
    """All pairs, or those of one half of the concepts (`bench.data.emoji.HALVES`)."""
    return TrainingSet(
        name,
        load=lambda size: lazy("bench.data:load_dataset")(f"{name}/train", size),
        sizes=(32, 64),
        synonyms=lazy("bench.data.emoji:emoji_synonyms"),
    )


TRAINING_SETS: Registry[TrainingSet] = Registry(
    "a training set",
    (
        *map(_emoji, ("emoji", "emoji-a", "emoji-b")),
        TrainingSet(
            "cc3m",
            rows=3_318_333,
            page="https://ai.google.com/research/ConceptualCaptions/download",
            gigabytes=90,
            how="sed -i '1s/^/caption\\turl\\n/' cc3m.tsv && " + _img2dataset("cc3m.tsv"),
        ),
        TrainingSet(
            "cc12m",
            rows=12_423_374,
            page="https://github.com/google-research-datasets/conceptual-12m",
            gigabytes=331,
            how="wget https://storage.googleapis.com/conceptual_12m/cc12m.tsv && "
            "sed -i '1s/^/url\\tcaption\\n/' cc12m.tsv && " + _img2dataset("cc12m.tsv"),
        ),
        TrainingSet(
            "yfcc15m-r",
            rows=15_000_000,
            page="https://huggingface.co/datasets/Kaichengalex/YFCC15M",
            gigabytes=400,
            how="write its images and captions as webdataset shards (key.jpg, key.txt) to {folder}",
        ),
        TrainingSet(
            "redcaps",
            rows=12_011_121,
            page="https://redcaps.xyz",
            gigabytes=320,
            how="join the annotations' url and caption columns to redcaps.csv && " + _img2dataset("redcaps.csv"),
        ),
        TrainingSet(
            "datacomp-small",
            rows=12_800_000,
            page="https://github.com/mlfoundations/datacomp",
            gigabytes=450,
            how="python download_upstream.py --scale small --data_dir {folder}, then give its folder `shards`",
        ),
        TrainingSet(
            "datacomp-1b",
            rows=1_400_000_000,
            page="https://github.com/mlfoundations/datacomp",
            how="python download_upstream.py --scale datacomp_1b --data_dir {folder}, then give its folder `shards`",
        ),
    ),
)


def embedded() -> dict[str, TrainingSet]:
    """Return the sets that need no files, by name."""
    return {entry.name: entry for entry in TRAINING_SETS if entry.load is not None}


def published_list(name: str) -> TrainingSet | None:
    """Return the published list that a data set's name begins with: "cc3m", "CC3M" and "cc3m-part" give cc3m."""
    lists = sorted((entry for entry in TRAINING_SETS if entry.load is None), key=lambda entry: -len(entry.name))
    return next((entry for entry in lists if name.lower().startswith(entry.name)), None)


def download_commands(name: str, folder: Path) -> str:
    """Return commands that download a data set into a folder, or a sentence if it is not a published list."""
    entry, there = published_list(name), shlex.quote(str(folder))
    if entry is None:
        return f"put webdataset shards (key.jpg, key.txt in .tar files) in {there}"
    return f"list from {entry.page}; {entry.how.format(folder=there)}"
