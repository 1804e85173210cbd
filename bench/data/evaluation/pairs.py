"""One split of an evaluation data set as pairs, whose images are decoded on every access."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from bench.arrays import Ints, Pixels
from bench.catalogue.evaluation_sets import CLASS
from bench.data import photo
from bench.data.evaluation import index, words
from bench.data.evaluation.hub import HubCache, Puzzle
from bench.data.evaluation.index import SplitReader, SplitRows
from bench.data.evaluation.layouts import Found
from bench.data.evaluation.webdataset import WebDataset
from bench.data.order import RandomOrder
from bench.data.photo import Resize
from bench.errors import UserError

TEMPLATES_FILE = "zeroshot_classification_templates.txt"


@dataclass(frozen=True, eq=False)
class EvaluationPairs(RandomOrder):
    """Implements `bench.data.Pairs`. In a data set of classes, the caption of a row is the name of its class."""

    name: str  #: "pets", "pets/train"
    description: str
    source: SplitReader
    rows: SplitRows
    classes: Mapping[str, tuple[str, ...]]
    templates: tuple[str, ...]  #: prompts with "{}" for the class name; () without classes
    size: int  #: width and height in pixels
    resize: Resize

    @classmethod
    def read(cls, source: SplitReader, size: int, resize: Resize) -> EvaluationPairs:
        """Read a split. Raises UserError for broken files, and if class names or prompts do not fit the labels."""
        found, rows = source.found, index.indexed_rows(source)
        entry = found.entry
        if not len(rows):
            raise UserError(f"{found.path}: holds no image; get {entry.title} again")
        names, templates = _words(source, rows) if entry.classes else ((), ())
        classes = {CLASS: names} if names else {}
        for group, values in rows.groups.items():
            classes[group] = tuple(f"{group} {value}" for value in range(int(values.max(initial=-1)) + 1))
        return cls(entry.written(found.split), entry.description, source, rows, classes, templates, size, resize)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.rows.keys

    @property
    def labels(self) -> Mapping[str, Ints]:
        return {**({} if self.rows.labels is None else {CLASS: self.rows.labels}), **self.rows.groups}

    def __len__(self) -> int:
        return len(self.rows)

    def captions(self, row: int) -> tuple[str, ...]:
        if self.rows.labels is None:
            return self.rows.captions[row]
        return (self.classes[CLASS][self.rows.labels[row]],)

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> Pixels:
        pictures = [photo.evaluation_pixels(self.image(row), self.size, self.resize) for row in rows.tolist()]
        return np.stack(pictures) if pictures else np.empty((0, self.size, self.size, 3), np.uint8)

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> Pixels:
        return np.stack(
            [photo.training_pixels(self.image(row), row, epoch, seed, view, recipe, self.size) for row in rows.tolist()]
        )

    @property
    def puzzles(self) -> tuple[Puzzle, ...]:
        """The puzzles of a data set of associations; () for any other."""
        return self.source.puzzles(self.rows) if isinstance(self.source, HubCache) else ()

    @cached_property
    def image_digests(self) -> Sequence[str]:
        """The sha256 of each image file; they are stored with the index."""
        images: Sequence[str] = self.rows.digests
        if not images and len(self):
            with ThreadPoolExecutor() as threads:
                read = threads.map(lambda row: _sha256(self.source.data(self.rows.place(row))), range(len(self)))
                images = list(read)
            index.with_digests(self.source, self.rows, images)
        return images

    @cached_property
    def content_hash(self) -> str:
        """sha256 over keys, captions, labels, digests of the images, prompts, size and the way of resizing."""
        digest = hashlib.sha256(repr((self.size, self.resize.label, self.templates)).encode())
        labels = {name: values.tolist() for name, values in self.labels.items()}
        for row, (key, image) in enumerate(zip(self.keys, self.image_digests, strict=True)):
            own = [labels[name][row] for name in sorted(labels)]
            digest.update(repr((key, self.captions(row), own, image)).encode())
        return digest.hexdigest()

    def image(self, row: int) -> Image.Image:
        """Return the RGB image of a row, as large as it is stored.

        Raises UserError if it cannot be read, or is not the one that was indexed.
        """
        found, place = self.source.found, self.rows.place(row)
        data = self.source.data(place)
        if self.rows.digests and _sha256(data) != self.rows.digests[row]:
            homes = [path for path in index.homes(found) if os.path.lexists(path)]
            fault = f"row {self.keys[row]!r} is not the image that {found.path} holds"
            raise UserError(f"{(homes or index.homes(found))[0]}: {fault}; delete the index, and it is made again")
        try:
            return photo.decode_image(data)
        except photo.Undecodable as error:
            where = f"{found.path}: image {self.keys[row]!r}"
            raise UserError(f"{where} cannot be read: {error}; get it again") from error


def source_of(found: Found) -> SplitReader:
    """Return the reader of the layout of `found`."""
    return HubCache(found) if found.entry.hub else WebDataset(found)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _words(source: SplitReader, rows: SplitRows) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return class names and prompts: the folder's own, or clip-benchmark's if it has one for each class."""
    entry, path = source.found.entry, source.found.path
    names = tuple(source.lines("classnames.txt"))
    if not names and len(names := words.class_names(entry)) != entry.classes:
        fault = f"is missing, and clip-benchmark's {len(names)} names are not those of {entry.classes} classes"
        raise UserError(f"{path.parent / 'classnames.txt'}: {fault}; get it with the set")
    assert rows.labels is not None
    most = int(rows.labels.max(initial=-1)) + 1
    if most > len(names):
        fault = f"labels go to {most - 1}, but there are {len(names)} class names"
        raise UserError(f"{path}: {fault}; {path.parent / 'classnames.txt'} should have one a line")
    own = words.single_braces(tuple(source.lines(TEMPLATES_FILE)))
    for line, template in enumerate(own, 1):
        if "{}" not in template:
            fault = f"line {line}, {template[:80]!r}, has no place for the class name; write {{c}} there"
            raise UserError(f"{path.parent / TEMPLATES_FILE}: {fault}")
    return names, own or words.published_templates(entry)
