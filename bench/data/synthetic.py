"""Synthetic, meaningless pairs, to count and time steps without the real data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from bench.arrays import Ints, Pixels
from bench.data.order import RandomOrder
from bench.data.strings import Strings
from bench.errors import UserError
from bench.suite.settings import SYNTHETIC, DataSettings

_DIFFERENT = 64  #: number of different images or vectors; row r has number r % 64


@dataclass(frozen=True, eq=False)
class SyntheticPairs(RandomOrder):
    """`n` pairs of random images of `size` x `size` px and numbered captions. No method raises a UserError."""

    name: str
    n: int
    size: int
    description: str = "Noise and numbered captions: for counting and timing only."
    labels: ClassVar[Mapping[str, Ints]] = {}
    classes: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @cached_property
    def keys(self) -> Sequence[str]:
        """Row numbers as text of ten digits."""
        return Strings(pc.utf8_lpad(pa.array(np.arange(self.n)).cast(pa.large_string()), 10, "0"))

    def __len__(self) -> int:
        return self.n

    def captions(self, row: int) -> tuple[str, ...]:
        return (f"a picture of something that has the number {row}",)

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> Pixels:
        picked: Pixels = self._pictures[rows % _DIFFERENT]
        return picked

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> Pixels:
        return self.images(rows)

    @cached_property
    def _pictures(self) -> Pixels:
        draws = np.random.default_rng(0).integers(0, 256, (_DIFFERENT, self.size, self.size, 3), np.uint8)
        draws.flags.writeable = False
        return draws

    @property
    def content_hash(self) -> str:
        return hashlib.sha256(f"{SYNTHETIC}{self.n}:{self.size}".encode()).hexdigest()


def make_synthetic_pairs(name: str, shards: str, size: int) -> SyntheticPairs:
    """Make the N pairs of `shards` = "synthetic:N". Raises UserError unless N is a whole number of at least 2."""
    number = shards.removeprefix(SYNTHETIC)
    if not number.isdecimal() or int(number) < 2:
        raise UserError(f"data.shards: {shards!r} should be {SYNTHETIC}N with the number of pairs, at least 2")
    return SyntheticPairs(name, int(number), size)


class SyntheticLookup:
    """Gives every text a vector of `size` numbers."""

    def __init__(self, size: int) -> None:
        self.size = self.context_length = size

    def check_training(self, _texts: list[str]) -> None:
        """Every text has a vector."""

    def __call__(self, texts: list[str]) -> Tensor:
        """n strings -> [n, Q]."""
        return torch.from_numpy(_vectors(self.size)[[len(text) % _DIFFERENT for text in texts]])


@dataclass(frozen=True, eq=False)
class SyntheticFeatures(SyntheticPairs):
    """`n` pairs of random vectors and numbered captions. No method raises a UserError."""

    width: int = 0  #: P
    text_width: int = 0  #: Q

    def lookup(self) -> SyntheticLookup:
        """Return what gives texts their vectors."""
        return SyntheticLookup(self.text_width)

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        vectors: npt.NDArray[Any] = _vectors(self.width)[rows % _DIFFERENT]
        return vectors

    @property
    def content_hash(self) -> str:
        return f"{super().content_hash}-{self.width}-{self.text_width}"


def _vectors(width: int) -> npt.NDArray[Any]:
    return np.random.default_rng(0).standard_normal((_DIFFERENT, width), np.float32)


def make_synthetic_features(settings: DataSettings) -> SyntheticFeatures:
    """Make the pairs of `data.shards` = "synthetic:N". UserError if `data.widths` does not say how wide they are."""
    if settings.widths is None or settings.widths[0] is None:
        lacking = f"{settings.name} is not there and its widths are not stated"
        raise UserError(f"data.widths: {lacking}; add data.widths: [numbers of an image, of a text]")
    plain = make_synthetic_pairs(settings.name, str(settings.shards), settings.size)
    return SyntheticFeatures(plain.name, plain.n, plain.size, width=settings.widths[0], text_width=settings.widths[1])
