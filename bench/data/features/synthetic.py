"""Any number of meaningless stored features, to count and time steps without the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bench.arrays import Ints
from bench.data import synthetic
from bench.data.synthetic import SyntheticPairs
from bench.errors import UserError
from bench.suite.settings import DataSettings

_VECTORS = 64  #: number of different vectors; row r has vector r % 64


@dataclass(frozen=True)
class SyntheticLookup:
    """Gives every text a vector."""

    size: int  #: Q

    @property
    def context_length(self) -> int:
        """Q as well."""
        return self.size

    def check(self, _texts: list[str]) -> None:
        """Every text has a vector."""

    check_training = check

    def __call__(self, texts: list[str]) -> Tensor:
        """n strings -> [n, Q]."""
        return torch.from_numpy(_vectors(self.size)[[len(text) % _VECTORS for text in texts]])


@dataclass(frozen=True, eq=False)
class SyntheticFeatures(SyntheticPairs):
    """`n` pairs of random vectors and numbered captions. No method raises a UserError."""

    width: int = 0  #: P
    text_width: int = 0  #: Q

    def lookup(self) -> SyntheticLookup:
        """Return what gives texts their vectors."""
        return SyntheticLookup(self.text_width)

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        vectors: npt.NDArray[Any] = _vectors(self.width)[rows % _VECTORS]
        return vectors

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> npt.NDArray[Any]:
        return self.images(rows)

    @property
    def content_hash(self) -> str:
        return f"{super().content_hash}-{self.width}-{self.text_width}"


def _vectors(width: int) -> npt.NDArray[Any]:
    return np.random.default_rng(0).standard_normal((_VECTORS, width), np.float32)


def load(settings: DataSettings) -> SyntheticFeatures:
    """Make the pairs of `data.shards` = "synthetic:N". UserError if `data.widths` does not say how wide they are."""
    if settings.widths is None or settings.widths[0] is None:
        lacking = f"{settings.name} is not there and its widths are not stated"
        raise UserError(f"data.widths: {lacking}; add data.widths: [numbers of an image, of a text]")
    plain = synthetic.load(settings.name, str(settings.shards), settings.size)
    return SyntheticFeatures(plain.name, plain.n, plain.size, width=settings.widths[0], text_width=settings.widths[1])
