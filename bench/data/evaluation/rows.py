"""What a reader of a layout gives: the rows of a split, and the images of single rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from bench import counter
from bench.arrays import Ints
from bench.data.evaluation.layouts import Found

SAMPLE = 6  #: images that are opened besides the first and the last
CLASSES = 10**6  #: classes of a data set, and values of a field of its metadata


@dataclass(frozen=True)
class Row:
    """One row of a split."""

    key: str
    label: int | None  #: the class; None if the data set has captions
    captions: tuple[str, ...]
    groups: Mapping[str, int]  #: field of the metadata -> value
    place: Mapping[str, int]  #: position of the image in its source
    digest: str = ""  #: sha256 of the image; "" if it is not known yet


@dataclass(frozen=True)
class Rows:
    """Columns of length n, in byte order of the keys. A column is empty if the data set does not have it."""

    keys: tuple[str, ...]
    labels: Ints | None = None  #: int64 [n], the class
    captions: tuple[tuple[str, ...], ...] = ()
    groups: Mapping[str, Ints] = field(default_factory=dict)  #: field of the metadata -> int64 [n]
    #: position of an image in its source: name -> int64 [n]
    places: Mapping[str, Ints] = field(default_factory=dict)
    digests: tuple[str, ...] = ()  #: sha256 of each image

    def __len__(self) -> int:
        return len(self.keys)

    def row(self, number: int) -> Row:
        """Return one row."""
        return Row(
            self.keys[number],
            None if self.labels is None else int(self.labels[number]),
            self.captions[number] if self.captions else (),
            {name: int(values[number]) for name, values in self.groups.items()},
            {name: int(values[number]) for name, values in self.places.items()},
            self.digests[number] if self.digests else "",
        )

    def ordered(self) -> Rows:
        """Return the same rows in byte order of their keys."""
        order = sorted(range(len(self)), key=lambda row: self.keys[row].encode())
        return self.select(np.array(order, dtype=np.int64))

    def select(self, rows: Ints) -> Rows:
        """Return `rows` [m], in this order."""
        listed = rows.tolist()
        return Rows(
            tuple(self.keys[row] for row in listed),
            None if self.labels is None else self.labels[rows],
            tuple(self.captions[row] for row in listed) if self.captions else (),
            {name: values[rows] for name, values in self.groups.items()},
            {name: values[rows] for name, values in self.places.items()},
            tuple(self.digests[row] for row in listed) if self.digests else (),
        )

    def same_images(self, other: Rows) -> bool:
        """Whether both have the same keys, and their images the same positions."""
        return self.keys == other.keys and all(
            np.array_equal(values, other.places[name]) for name, values in self.places.items()
        )


class Source(Protocol):
    """The reader of one layout."""

    @property
    def found(self) -> Found: ...

    @property
    def files(self) -> list[Path]:
        """The files whose names, sizes and times show whether a stored index is still valid."""

    @property
    def places(self) -> frozenset[str]:
        """The names of `Rows.places`."""

    def scan(self) -> Rows:
        """Read all rows, in byte order of their keys. Raises UserError for files that cannot be read."""

    def agrees(self, rows: Rows) -> bool:
        """Whether rows of a stored index can be those of `scan`, as far as can be told without reading all of it.

        `image` compares the rest. Raises UserError for files that cannot be read.
        """

    def image(self, row: Row) -> Image.Image:
        """Return the RGB image of a row.

        Raises UserError if it is broken, or if the files hold another image, label or caption than the row says.
        """

    def digest(self, place: Mapping[str, int]) -> str:
        """Return the sha256 of a row's image."""

    def lines(self, name: str) -> Sequence[str]:
        """Return the lines of a text file that comes with the data set; empty if there is none."""


def drawn_rows(name: str, n: int) -> list[int]:
    """Return the rows whose images are opened before anything trains: the first, the last and a few of `n` between."""
    if not n:
        return []
    drawn = counter.words(counter.word(0, "opened before training", name), np.arange(SAMPLE))[:, 0]
    return sorted({0, n - 1, *counter.below(np.full(SAMPLE, n), drawn).tolist()})
