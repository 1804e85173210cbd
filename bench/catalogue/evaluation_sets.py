"""Every evaluation data set of the papers by one name, and the facts about it that need no files."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import yaml

from bench import reading
from bench.errors import UserError, nearest

DatasetKind: TypeAlias = Literal["classification", "retrieval", "association", "hierarchy"]
Split: TypeAlias = Literal["test", "train", "validation"]
Names: TypeAlias = tuple[str, ...]
SPLITS: tuple[Split, ...] = ("test", "train", "validation")
#: name of a split below a webdataset folder
FOLDERS: Mapping[Split, Names] = {"test": ("test",), "train": ("train",), "validation": ("validation", "val")}
OWN_SET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  #: names that the user's own sets may have
GB = 10**9
CLASS = "class"  #: the label that is classified
CATALOGUE_FILE = Path(__file__).with_name("evaluation_sets.yaml")  #: one entry a data set


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """One data set. Numbers are those of its publishers; the files on the disk are counted when they are read."""

    name: str  #: in suites, records and tables
    title: str  #: as papers print it
    test: int  #: images that are scored
    classes: int = 0  #: 0 if it has none
    train: int = 0  #: images that a probe learns from; 0 = no such split
    validation: int = 0  #: images of a split of its own, for retrieval
    kind: DatasetKind = "classification"
    metric: str = "top1"  #: its main one in the DataComp suite
    folds: int = 1  #: parts of consecutive images, with their texts, that retrieval is measured within
    webdataset: str = ""  #: the part of its folder's name after wds_, if that is not its own name
    publisher: str = "clip-benchmark"  #: whose webdataset folder is on the Hugging Face hub; "" = nobody's
    words: str = ""  #: clip-benchmark's key of its class names and templates, if that is not its own name
    fields: Names = ()  #: of the metadata (npy) of each image that groups are made by; "" is passed over
    hub: str = ""  #: its name in the hf_cache folder that DataComp's script leaves; such a set is read only there
    source: str = ""  #: of the files of a set that nobody publishes as webdataset
    gb: float = 0.0  #: disk of a split other than for training
    train_gb: float = 0.0
    datacomp: bool = False  #: one of the suite's 38 tasks
    group: str = ""  #: of these, as ProLIP averages them: "imagenet", "shift", "vtab", "retrieval"

    @property
    def description(self) -> str:
        """One line for reports."""
        many = {
            "classification": "not downloaded yet",
            "retrieval": "captions of images",
            "association": "cues and images",
            "hierarchy": "captions in four levels",
        }
        return f"{self.title}, {f'{self.classes} classes' if self.classes else many[self.kind]}"

    def count(self, split: Split) -> int:
        """Return the number of images of a split as published; 0 = no such split."""
        return {"test": self.test, "train": self.train, "validation": self.validation}[split]

    def bytes(self, split: Split) -> int:
        """Return about how many bytes of disk a split takes."""
        return round(GB * (self.train_gb if split == "train" else self.gb))

    def written(self, split: Split) -> str:
        """Return the name of a split in tasks and records: "pets", "pets/train"."""
        return self.name if split == "test" else f"{self.name}/{split}"


@cache
def evaluation_sets() -> Mapping[str, EvaluationSet]:
    """Return all data sets of the catalogue by name."""
    rows = yaml.safe_load(CATALOGUE_FILE.read_text())
    return {name: EvaluationSet(name, **{**row, "fields": tuple(row.get("fields", ()))}) for name, row in rows.items()}


def known(name: str) -> EvaluationSet | None:
    """Return a data set of the catalogue, or the user's own: a folder wds_NAME with classnames.txt or captions."""
    from bench import data_folder  # here, because `bench.data` reads the catalogue itself

    folder = data_folder.evaluation_folder() / f"wds_{name}"
    own = OWN_SET_NAME.fullmatch(name) and os.path.isdir(folder)
    return evaluation_sets().get(name) or (_own(name, folder) if own else None)


def expected(name: str) -> EvaluationSet | None:
    """Return what `known` does, or an empty entry for a set that may be the user's own on another machine.

    Returns None if the name is a mistake.
    """
    if (entry := known(name)) is not None:
        return entry
    if name.startswith("wds_"):
        return None
    near = difflib.get_close_matches(name.lower(), evaluation_sets(), n=1, cutoff=0.8)
    return EvaluationSet(name, name, 0, publisher="") if OWN_SET_NAME.fullmatch(name) and not near else None


@cache
def _own(name: str, folder: Path) -> EvaluationSet:
    """Return the entry that a folder allows. Images are counted when they are read; until then a split has 1 or 0.

    Raises UserError if its class names cannot be read.
    """
    names = folder / "classnames.txt"
    classes = len(reading.text_lines(names)) if os.path.lexists(names) else 0
    test, train, validation = (int(any(os.path.isdir(folder / one) for one in FOLDERS[split])) for split in SPLITS)
    kind: DatasetKind = "classification" if classes else "retrieval"
    metric = "top1" if classes else "mean_r1"
    return EvaluationSet(name, name, test, classes, train, validation, kind, metric, publisher="")


def unknown_set(name: str) -> str:
    """Return what is wrong with a name; "" if the catalogue has it or it is a folder of the user's own."""
    if known(name):
        return ""
    if not name.startswith("wds_"):
        return f"{name!r} is not an evaluation data set{nearest(name, evaluation_sets())}"
    stem = name.removeprefix("wds_")  # "pets_test" and "pets" may both be pets
    stems = (stem, stem.removesuffix("_test"))
    sets = evaluation_sets().values()
    called = (entry.name for one in stems for entry in sets if one in (entry.name, entry.webdataset))
    return f"{name!r} is the name of a folder; the data set in it is called {next(called, stem)!r}"


def parse_dataset(dataset: str) -> tuple[EvaluationSet, Split]:
    """Map "pets" to its entry and "test", "pets/train" to its entry and "train". UserError for anything else."""
    name, slash, written = dataset.partition("/")
    entry = expected(name)
    if entry is None:
        raise UserError(unknown_set(name))
    for split in SPLITS:
        if written == split or not slash:
            return entry, split
    raise UserError(f"data set {dataset!r}: {written!r} should be one of {', '.join(SPLITS)}")
