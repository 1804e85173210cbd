"""The protocol of a data set of pairs, and the implementation that holds its pixels in memory."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from bench.arrays import Ints, Pixels
from bench.data.augment import augment
from bench.data.order import RandomOrder
from bench.data.photo import CROP, Resize, evaluation_pixels
from bench.errors import UserError


@runtime_checkable
class Pairs(Protocol):
    """Images with their captions. A pair's row is its key's rank in byte order: 0..n-1, whatever the files' order."""

    @property
    def name(self) -> str:
        """The name that suites use: "emoji/train"."""

    @property
    def description(self) -> str:
        """One line that describes the data and its overlap with the training pairs."""

    @property
    def keys(self) -> Sequence[str]:
        """Unique, in byte order; row r has key keys[r]."""

    @property
    def labels(self) -> Mapping[str, Ints]:
        """Label name -> int64 [n], indices into `classes`."""

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """Label name -> class names as text."""

    def __len__(self) -> int: ...

    def __hash__(self) -> int:
        """Hash of the object's identity, so that caches can use pairs as keys."""

    def captions(self, row: int) -> tuple[str, ...]:
        """Return all texts of a row, at least one, in a fixed order; the first is the plainest."""

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> Pixels:
        """Map rows [b] to uint8 [b, H, W, 3] as evaluation sees them. Raises UserError if an image cannot be read."""

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> Pixels:
        """Map rows [b] to uint8 [b, H, W, 3] as training sees them: augmented, keyed by (seed, row, epoch, view).

        Raises UserError if an image cannot be read or `recipe` does not fit the data.
        """

    def order(self, epoch: int, seed: int) -> Ints:
        """Return int64 [n]: the permutation of rows that one epoch follows."""

    @property
    def content_hash(self) -> str:
        """sha256 over keys, captions, labels and decoded pixels: the same data gives the same hash in any file."""


@runtime_checkable
class StoredFeatures(Protocol):
    """Training pairs whose images are stored features."""

    @property
    def width(self) -> int:
        """P, the numbers of an image."""

    def lookup(self) -> Any:
        """Return what finds the features of texts. Raises UserError if there are none."""


@dataclass(frozen=True, eq=False)
class DerivedPairs:
    """Pairs made from others: the same in all that a subclass does not change."""

    whole: Pairs

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def description(self) -> str:
        return self.whole.description

    @property
    def keys(self) -> Sequence[str]:
        return self.whole.keys

    @property
    def labels(self) -> Mapping[str, Ints]:
        return self.whole.labels

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        return self.whole.classes

    def __len__(self) -> int:
        return len(self.whole)

    def captions(self, row: int) -> tuple[str, ...]:
        return self.whole.captions(row)

    def order(self, epoch: int, seed: int) -> Ints:
        return self.whole.order(epoch, seed)


@dataclass(frozen=True, eq=False)
class MemoryPairs(RandomOrder):
    """Pairs whose decoded pixels lie in memory as uint8. `MemoryPairs.build` sorts rows by key."""

    name: str
    description: str
    keys: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    labels: Mapping[str, Ints]
    classes: Mapping[str, tuple[str, ...]]
    pixels: Pixels  #: [n, H, W, 3]

    @classmethod
    def build(
        cls,
        name: str,
        description: str,
        keys: Sequence[str],
        texts: Sequence[Sequence[str]],
        labels: Mapping[str, Sequence[int] | Ints],
        classes: Mapping[str, Sequence[str]],
        pixels: Pixels,
    ) -> MemoryPairs:
        """Make pairs from columns of length n, in any order of rows.

        pixels: uint8 [n, H, W, 3]. Raises UserError for a repeated key and for a row without a text.
        """
        order = sorted(range(len(keys)), key=lambda i: keys[i].encode())
        ordered = tuple(keys[i] for i in order)
        for before, after in pairwise(ordered):
            if before == after:
                raise UserError(f"{name}: key {after!r} is a duplicate; keys must be unique")
        for key, captions in zip(keys, texts, strict=True):
            if not captions:
                raise UserError(f"{name}: key {key!r} has no caption; every pair needs at least one")
        sorted_pixels = np.ascontiguousarray(pixels[order])
        sorted_pixels.flags.writeable = False
        return cls(
            name,
            description,
            ordered,
            tuple(tuple(texts[i]) for i in order),
            {label: np.asarray(values, dtype=np.int64)[order] for label, values in labels.items()},
            {label: tuple(names) for label, names in classes.items()},
            sorted_pixels,
        )

    def __len__(self) -> int:
        return len(self.keys)

    def captions(self, row: int) -> tuple[str, ...]:
        return self.texts[row]

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> Pixels:
        picked: Pixels = self.pixels[rows]
        return picked

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> Pixels:
        return augment(self.images(rows), rows, epoch, seed, view=view, recipe=recipe)

    def select(self, mask: npt.NDArray[np.bool_]) -> MemoryPairs:
        """Return the rows whose entry of `mask` [n] is true, renumbered, with the same classes."""
        rows = np.flatnonzero(mask).tolist()
        labels = {label: values[rows] for label, values in self.labels.items()}
        keys, texts = [self.keys[r] for r in rows], [self.texts[r] for r in rows]
        return self.build(self.name, self.description, keys, texts, labels, self.classes, self.pixels[rows])

    @cached_property
    def content_hash(self) -> str:
        digest = hashlib.sha256()
        for key, captions in zip(self.keys, self.texts, strict=True):
            digest.update(repr((key, captions)).encode())
        for label in sorted(self.labels):
            names = self.classes[label]
            digest.update(repr((label, [names[i] for i in self.labels[label].tolist()])).encode())
        digest.update(repr(self.pixels.shape).encode())
        digest.update(self.pixels.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ResizedPairs(MemoryPairs):
    """The same pairs at a model's input size. Images are resized on access; only evaluation uses this class."""

    size: int = 0  #: width and height in pixels
    resize: Resize = CROP

    @classmethod
    def of(cls, pairs: MemoryPairs, size: int, resize: Resize) -> ResizedPairs:
        """Return `pairs` at `size` px."""
        return cls(**{field.name: getattr(pairs, field.name) for field in fields(pairs)}, size=size, resize=resize)

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> Pixels:
        pictures = [evaluation_pixels(Image.fromarray(one), self.size, self.resize) for one in self.pixels[rows]]
        return np.stack(pictures) if pictures else np.empty((0, self.size, self.size, 3), np.uint8)

    @cached_property
    def content_hash(self) -> str:
        own = super().content_hash
        return hashlib.sha256(repr((own, self.size, self.resize.label)).encode()).hexdigest()


def webp_images(pairs: Pairs, rows: Ints) -> list[bytes]:
    """Return the images of some rows as WebP. Raises UserError if they are stored features, or cannot be read."""
    images = pairs.images(rows)
    if images.ndim != 4:
        raise UserError(f"{pairs.name}: its images are stored features, which have no pictures")
    files = [io.BytesIO() for _ in rows]
    for pixels, file in zip(images, files, strict=True):
        Image.fromarray(pixels).save(file, "WEBP", lossless=True)
    return [file.getvalue() for file in files]
