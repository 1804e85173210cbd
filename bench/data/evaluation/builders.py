"""Folders that the builders of clip-benchmark read, and a few for which it has no builder."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench import counter, reading
from bench.catalogue.evaluation_sets import Entry
from bench.data.evaluation.index import contradicted
from bench.data.evaluation.layouts import Found
from bench.data.evaluation.rows import CLASSES, Row, Rows, drawn_rows
from bench.errors import UserError, one_line

PLACES = ("part", "number")  #: number of the part of the split, and of the item in it
CSV_BYTES = 1 << 24  #: of HierarCaps' captions
LISTS, LIST_BYTES = (".csv", ".json", ".jsonl", ".tsv", ".txt"), 1 << 29
V2_IMAGES = 10_000  #: images of ImageNet-V2; its builder would download all of it if there were fewer
Transform = Callable[[Image.Image], Any]


@dataclass(frozen=True)
class Built:
    """One split of a data set in this layout. Nothing is downloaded."""

    found: Found

    @property
    def files(self) -> list[Path]:
        """The folder and its direct content; deeper changes go unnoticed, since there may be a million files."""
        return [self.found.path, *sorted(self.found.path.iterdir())]

    @property
    def places(self) -> frozenset[str]:
        """The names of a row's place."""
        return frozenset(PLACES)

    def scan(self) -> Rows:
        """Read all rows with the digests of their images, because builders give labels only with a decoded image.

        Raises UserError if the folder does not hold the data set, or an image or a label of it cannot be read.
        """
        parts = self._parts(_digest)
        rows = _listed(parts)
        places = zip(*(rows.places[name].tolist() for name in PLACES), strict=True)
        with ThreadPoolExecutor() as threads:
            items = list(threads.map(lambda place: self._item(parts, *place), places))
        rows = replace(rows, digests=tuple(digest for digest, _ in items))
        if self.found.entry.classes:
            rows = replace(rows, labels=np.array([label for _, label in items], np.int64))
        else:
            rows = replace(rows, captions=tuple(texts for _, texts in items))
        return self._own_share(rows)

    def agrees(self, rows: Rows) -> bool:
        """Whether the rows are as many as the builder's, of the same images. Raises UserError as `scan` does."""
        return rows.same_images(self._own_share(_listed(self._pictures)))

    def image(self, row: Row) -> Image.Image:
        """Return the RGB image of a row.

        Raises UserError if the builder cannot read it, or gives another image, label or captions.
        """
        image, value = self._read(row.place)
        own = row.label if self.found.entry.classes else row.captions
        if value != own or row.digest not in ("", _digest(image)):
            raise contradicted(self.found, row.key)
        return image

    def _read(self, place: Mapping[str, int]) -> tuple[Image.Image, Any]:
        return self._item(self._pictures, *(place[name] for name in PLACES))

    def check(self, name: str) -> None:
        """Raise UserError unless the folder holds the data set and a sample of its images and labels can be read.

        Unlike `scan`, it decodes a few images alone.
        """
        sizes = [len(part) for part in self._pictures]
        if not sum(sizes):
            raise UserError(f"{self.found.path}: holds no image of {self.found.entry.title}")
        indices = [(part, number) for part, size in enumerate(sizes) for number in drawn_rows(name, size)]
        labels = [self._item(self._pictures, *index)[1] for index in indices]
        classes = len(self.lines("classnames.txt")) or self.found.entry.classes
        if self.found.entry.classes and max(labels) >= classes:
            raise UserError(f"{self.found.path}: a label is {max(labels)}, but there are {classes} classes")

    def _item(self, parts: Sequence[Any], part: int, number: int) -> tuple[Any, Any]:
        """Return the transformed image and the label or captions of one item. Raises UserError if they are broken."""
        try:
            image, value = parts[part][number]
            if not self.found.entry.classes:
                if not value or not all(isinstance(text, str) for text in value):
                    raise ValueError("it has no caption, or one that is no text")
                return image, tuple(value)
            if float(value) != int(value) or not 0 <= int(value) < CLASSES:
                raise ValueError(f"its label is {value}")
            return image, int(value)
        except Exception as error:  # Pillow's plugins and builders raise many types for broken files
            fault = f"image {number} of {self.found.entry.title} cannot be read: {type(error).__name__}"
            raise UserError(f"{self.found.path}: {fault}: {one_line(error, 200)}; get it again") from error

    def digest(self, place: Mapping[str, int]) -> str:
        """Return the sha256 of decoded pixels, because builders hide the files."""
        return _digest(self._read(place)[0])

    def lines(self, name: str) -> tuple[str, ...]:
        """Return the builder's class names for "classnames.txt", and () for any other file."""
        classes = getattr(self._pictures[0], "classes", None) if name == "classnames.txt" else None
        return tuple(classes or ())

    @cached_property
    def _pictures(self) -> Sequence[Any]:
        return self._parts(_rgb)

    def _parts(self, transform: Transform) -> list[Any]:
        entry, split = self.found.entry, self.found.split
        names = ("test",) if entry.train_share else (entry.splits or {}).get(split, (split,))
        return [_build(_Wanted(entry, self.found.path, name, transform)) for name in names]

    def _own_share(self, rows: Rows) -> Rows:
        """Without an official split, the rows of the smallest hashes are for training and the others for tests."""
        share = self.found.entry.train_share
        if not share:
            return rows
        hashed = counter.words(counter.word(0, "evaluation split", self.found.entry.name), np.arange(len(rows)))[:, 0]
        order = np.argsort(hashed, kind="stable")
        count = round(share * len(rows))
        return rows.select(np.sort(order[:count] if self.found.split == "train" else order[count:]))


def _listed(parts: Sequence[Any]) -> Rows:
    """Return the keys and places of all items."""
    places = [(part, number) for part, data in enumerate(parts) for number in range(len(data))]
    columns = np.array(places, np.int64).reshape(-1, len(PLACES)).T
    keys = tuple(f"s{number:07d}" for number in range(len(places)))
    return Rows(keys, places=dict(zip(PLACES, columns, strict=True)))


def _rgb(image: Image.Image) -> Image.Image:
    return image.convert("RGB")


def _digest(image: Image.Image) -> str:
    image = _rgb(image)
    return hashlib.sha256(repr(image.size).encode() + image.tobytes()).hexdigest()


@dataclass(frozen=True)
class _Wanted:
    """A request to a builder for items of (transformed image, label or captions)."""

    entry: Entry
    root: Path
    split: str
    transform: Transform


def _build(wanted: _Wanted) -> Any:
    """Return a sequence of the requested items. Raises UserError if the folder does not hold them."""
    import bench.torchvision_fix  # noqa: F401  before torchvision

    entry = wanted.entry
    if not os.path.isdir(wanted.root):
        raise UserError(f"{wanted.root}: is not there any more")
    _refuse_endless(wanted.root)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # builders warn about splits that they do not have
            return _OWN.get(entry.builder, _clip_benchmark)(wanted)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # each builder reports missing files in its own way
        reason = one_line(error) or type(error).__name__
        fault = f"{wanted.root}: is not {entry.title} as the builder {entry.builder!r} reads it: {reason}"
        raise UserError(f"{fault}. It needs the files of {entry.source}") from error


def _refuse_endless(root: Path) -> None:
    """Raise UserError for what a builder would wait for or read without end, anywhere below a folder.

    That is a FIFO, a socket or a device, and a table or list that is far longer than any data set's.
    """
    folders = [os.fspath(root)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file() and not entry.is_dir() and os.path.exists(entry.path):
                        raise UserError(f"{entry.path}: is a FIFO or a device, not a file; remove it")
                    elif entry.name.endswith(LISTS) and entry.is_file() and entry.stat().st_size > LIST_BYTES:
                        raise UserError(f"{entry.path}: has more than {LIST_BYTES:,} bytes; get it again")
        except OSError as error:
            raise UserError(f"{error.filename}: cannot be listed: {error.strerror}") from error


def _clip_benchmark(wanted: _Wanted) -> Any:
    from clip_benchmark.datasets.builder import build_dataset

    return build_dataset(
        wanted.entry.builder,
        root=str(wanted.root),
        transform=wanted.transform,
        split=wanted.split,
        download=False,
        task="zeroshot_classification" if wanted.entry.classes else "zeroshot_retrieval",
    )


def _imagenet_v2(wanted: _Wanted) -> Any:
    images = sum(1 for _ in wanted.root.glob("ImageNetV2-matched-frequency/**/*.jpeg"))
    if images != V2_IMAGES:
        fault = f"{wanted.root}: has {images} images of {V2_IMAGES} of {wanted.entry.title}"
        raise UserError(f"{fault}; get them from {wanted.entry.source}")
    data = _clip_benchmark(wanted)
    data.fnames.sort()  # the builder leaves them in the order of the file system
    return data


def _svhn(wanted: _Wanted) -> Any:
    from torchvision.datasets import SVHN

    return SVHN(str(wanted.root), wanted.split, transform=wanted.transform)


def _folders(wanted: _Wanted) -> Any:
    from torchvision.datasets import ImageFolder

    data = ImageFolder(str(wanted.root), transform=wanted.transform)
    data.classes = [name.replace("_", " ") for name in data.classes]
    return data


class _HierarCaps:
    """HierarCaps from its CSV: id, captions from general to special separated by "=>", URL of the image."""

    def __init__(self, wanted: _Wanted) -> None:
        text = reading.content(wanted.root / "hierarcaps_test.csv", CSV_BYTES).decode("utf-8")
        rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
        self.root, self.transform = wanted.root, wanted.transform
        self.rows = [(url.rsplit("/", 1)[-1], captions.split("=>")) for _, captions, url in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[Any, list[str]]:
        name, captions = self.rows[number]
        with Image.open(self.root / name) as image:
            return self.transform(image), [text.strip() for text in captions]


_OWN: Mapping[str, Callable[[_Wanted], Any]] = {
    "imagenetv2": _imagenet_v2,
    "svhn": _svhn,
    "resisc45": _folders,
    "hierarcaps": _HierarCaps,
}
