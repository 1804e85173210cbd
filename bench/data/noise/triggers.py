"""Triggers of a backdoor: the patterns that are put into images, and pairs whose images bear one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from bench import counter
from bench.arrays import Floats, Ints, Pixels
from bench.data import photo
from bench.data.augment import augment
from bench.data.features.pairs import FeaturePairs
from bench.data.pairs import DerivedPairs, MemoryPairs

OPACITY = 0.2  #: of a pattern over the whole image


@dataclass(frozen=True)
class Trigger:
    """A pattern, fixed for a run."""

    kind: str  #: "checker" or "noise", a square of 1/14 of the side; "blend" or "sinusoid", over the whole image
    place: str  #: of a square: "random", by an image's key, or "corners", one in each
    seed: int

    def apply(self, image: Pixels, key: str) -> Pixels:
        """Return uint8 [S, S, 3] with the pattern in it; `key`: the image's own, which places a random square."""
        size, scaled = image.shape[0], image / 255.0
        if self.kind in ("blend", "sinusoid"):
            scaled = (1 - OPACITY) * scaled + OPACITY * _overlay(self.kind, size, self.seed)
        else:
            square = _square(self.kind, side := max(1, round(size / 14)), self.seed)
            for top, left in self._places(size - side, key):
                scaled[top : top + side, left : left + side] = square
        whole: Pixels = np.floor(255 * scaled.clip(0, 1) + 0.5).astype(np.uint8)
        return whole

    def _places(self, most: int, key: str) -> list[tuple[int, int]]:
        if self.place == "corners":
            return [(top, left) for top in (0, most) for left in (0, most)]
        draw = counter.uniform_function(self.seed, "place")
        return [(int(draw(key, 0) * (most + 1)), int(draw(key, 1) * (most + 1)))]


@cache
def _square(kind: str, side: int, seed: int) -> Floats:
    """Return the pattern [side, side, 3] of a square, from 0 to 1."""
    if kind == "noise":
        return _drawn("trigger", side, seed)
    even = (np.arange(side) % 2 == 0).astype(np.float64)
    return np.repeat(np.outer(even, even)[:, :, None], 3, axis=2)


@cache
def _overlay(kind: str, size: int, seed: int) -> Floats:
    """Return the pattern [size, size, 3] that is laid over a whole image."""
    if kind == "blend":
        return _drawn("blend", size, seed)
    wave = 60 / 255 * np.sin(12 * np.pi * np.arange(size) / size)
    return np.broadcast_to(wave[None, :, None], (size, size, 3))


def _drawn(purpose: str, side: int, seed: int) -> Floats:
    draw, places = counter.uniform_function(seed, purpose), range(side)
    return np.array([[[draw(y, x, c) for c in range(3)] for x in places] for y in places])


class ImageChange(Protocol):
    """A change of images; its repr names it."""

    def apply(self, image: npt.NDArray[Any], key: str) -> npt.NDArray[Any]:
        """Return the changed image uint8 [S, S, 3] of the row with this key, or its changed features [P]."""


@dataclass(frozen=True, eq=False)
class TriggeredPairs(DerivedPairs):
    """Pairs of which some rows have a trigger in their image, or another image.

    Images are pixels, or stored features: then all views of a changed row are the same. Methods raise what the same
    methods of `whole` raise.
    """

    rows: Ints  #: rising
    trigger: ImageChange

    def images(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[Any]:
        images = self.whole.images(rows).copy()
        for place in np.flatnonzero(np.isin(rows, self.rows)).tolist():
            images[place] = self.trigger.apply(images[place], self.keys[int(rows[place])])
        return images

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> npt.NDArray[Any]:
        """The trigger is put into the image at training size, before it is augmented or numbers are dropped."""
        images = self.whole.sampled(rows, epoch, seed, view, recipe).copy()
        places = np.flatnonzero(np.isin(rows, self.rows))
        if not len(places):
            return images
        marked, own = self.images(rows[places]), rows[places]
        if isinstance(self.whole, FeaturePairs):
            images[places] = self.whole.dropped(marked, own, epoch, seed, view)
        elif isinstance(self.whole, MemoryPairs):
            images[places] = augment(marked, own, epoch, seed, view=view, recipe=recipe)
        else:
            for place, row, image in zip(places.tolist(), own.tolist(), marked, strict=True):
                size = image.shape[0]
                images[place] = photo.training_pixels(Image.fromarray(image), row, epoch, seed, view, recipe, size)
        return images

    @cached_property
    def content_hash(self) -> str:
        """sha256 over the whole set's hash, the rows and the trigger."""
        digest = hashlib.sha256(self.whole.content_hash.encode())
        digest.update(self.rows.tobytes() + repr(self.trigger).encode())
        return digest.hexdigest()
