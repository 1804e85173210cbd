"""Writes evaluation sets of emoji under the names of other sets, in the layouts that those are read from.

A suite of a paper then runs on a laptop, with every one of its tables and figures. Numbers on such sets say nothing
about the sets whose names they have: keep them in a folder of their own.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

from bench import data
from bench.catalogue.evaluation_sets import FOLDERS, Entry, entries
from bench.data.pairs import Pairs
from bench.evaluation.probabilistic.hierarchy import levels

LABEL = "group"  #: of the emoji, whose six classes stand in for any
TEMPLATES = ("a drawing of {c}.", "{c}")
CANDIDATES = 10  #: images of a puzzle
PUZZLES = 4
Members = list[tuple[str, bytes]]


@dataclass(frozen=True)
class Emoji:
    """Some emoji of the evaluation set, the same number of each class."""

    size: int  #: pixels a side
    each: int  #: of a class
    turn: int  #: another one takes other emoji while they last

    @cached_property
    def pairs(self) -> Pairs:
        return data.load("emoji/iid", self.size)

    @cached_property
    def rows(self) -> list[int]:
        labels = self.pairs.labels[LABEL]
        of_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        return [row for rows in of_class for row in np.roll(rows, -self.turn * self.each)[: self.each].tolist()]

    @property
    def classes(self) -> Sequence[str]:
        return self.pairs.classes[LABEL]

    def label(self, row: int) -> int:
        return int(self.pairs.labels[LABEL][row])

    def png(self, row: int) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(self.pairs.images(np.array([row]))[0]).save(buffer, "PNG")
        return buffer.getvalue()


def write(home: Path, size: int, each: int, names: Iterable[str] = ()) -> None:
    """Write sets of the catalogue, by default all of them, below `home`, the `evaluation` of a data folder.

    size: pixels a side; each: images of a class, at least two. All splits of a set are the same images.
    """
    for turn, name in enumerate(names or entries()):
        entry = entries()[name]
        _WRITERS[entry.kind](home, entry, Emoji(size, each, turn))


def _classes(home: Path, entry: Entry, emoji: Emoji) -> None:
    folder = home / f"wds_{entry.webdataset or entry.name}"
    samples: list[Members] = []
    for place, row in enumerate(emoji.rows):
        members = [("png", emoji.png(row)), ("cls", str(emoji.label(row)).encode())]
        if entry.fields:
            buffer = io.BytesIO()
            np.save(buffer, np.full(len(entry.fields), place % 2, np.int64))
            members.append(("npy", buffer.getvalue()))
        samples.append(members)
    _shards(folder, samples)
    (folder / "classnames.txt").write_text("".join(f"{name}\n" for name in emoji.classes))
    (folder / "zeroshot_classification_templates.txt").write_text("".join(f"{text}\n" for text in TEMPLATES))


def _captions(home: Path, entry: Entry, emoji: Emoji) -> None:
    folder = home / f"wds_{entry.webdataset or entry.name}"
    texts = {row: "\n".join(emoji.pairs.captions(row)[:5]).encode() for row in emoji.rows}
    _shards(folder, [[("png", emoji.png(row)), ("txt", texts[row])] for row in emoji.rows])
    (folder / "dataset_type.txt").write_text("retrieval\n")


def _hierarchy(home: Path, entry: Entry, emoji: Emoji) -> None:
    own = levels(emoji.pairs)
    texts = {row: "\n".join(own[row]).encode() for row in emoji.rows}
    _shards(home / f"wds_{entry.name}", [[("png", emoji.png(row)), ("txt", texts[row])] for row in emoji.rows])


def _puzzles(home: Path, entry: Entry, emoji: Emoji) -> None:
    rows = emoji.rows
    puzzles = []
    for place in range(PUZZLES):
        among = [rows[(place + step * len(rows) // CANDIDATES) % len(rows)] for step in range(CANDIDATES)]
        label = emoji.label(among[0])
        names = {row: emoji.pairs.keys[row] for row in among}
        images = [{"bytes": emoji.png(row), "path": None} for row in names]
        right = [name for row, name in names.items() if emoji.label(row) == label]
        puzzles.append((list(names.values()), images, emoji.classes[label], right))
    columns = ("candidates", "candidate_images", "cue", "associations")
    table = pa.table(dict(zip(columns, map(list, zip(*puzzles, strict=True)), strict=True)))
    folder = home / "hf_cache" / f"nlphuji___{entry.hub}" / "TEST"
    folder.mkdir(parents=True)
    with pa.ipc.new_stream(str(folder / f"{entry.hub}-test.arrow"), table.schema) as out:
        out.write_table(table)


_WRITERS = {"classification": _classes, "retrieval": _captions, "hierarchy": _hierarchy, "association": _puzzles}


def _shards(folder: Path, samples: Sequence[Members]) -> None:
    """Write the samples as one tar into every split of a set."""
    for names in FOLDERS.values():
        split = folder / names[0]
        split.mkdir(parents=True)
        with tarfile.open(split / "0.tar", "w") as tar:
            for number, members in enumerate(samples):
                for extension, content in members:
                    member = tarfile.TarInfo(f"s{number:05d}.{extension}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
