"""A subset of the rows of a set of pairs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.arrays import Ints, Pixels
from bench.data.noise.manifest import Noise, NoiseManifest
from bench.data.pairs import DerivedPairs, Pairs
from bench.data.strings import Strings


@dataclass(frozen=True, eq=False)
class KeptPairs(DerivedPairs):
    """Some rows of other pairs, renumbered 0..n'-1 in key order, with the captions that the noise gives them.

    Sample order and augmentation are those of the whole set without the other rows: if all rows are kept, training
    does not change. Methods raise what the same methods of `whole` raise.
    """

    rows: Ints  #: [n'] rows of the whole set, rising
    noise: Noise  #: noise of the whole set, if it is fixed for the run; `Noise()` changes nothing

    @cached_property
    def _seen(self) -> Pairs:
        """The whole set with the images that training sees."""
        return self.noise.applied(self.whole)

    @cached_property
    def keys(self) -> Sequence[str]:
        return Strings.of(self.whole.keys).take(self.rows)

    @property
    def labels(self) -> Mapping[str, Ints]:
        return {name: values[self.rows] for name, values in self.whole.labels.items()}

    def __len__(self) -> int:
        return len(self.rows)

    def captions(self, row: int) -> tuple[str, ...]:
        (texts,) = self.noise.texts(self.whole, self.rows[row : row + 1])
        return texts

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> Pixels:
        return self._seen.images(self.rows[rows])

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> Pixels:
        return self._seen.sampled(self.rows[rows], epoch, seed, view, recipe)

    def order(self, epoch: int, seed: int) -> Ints:
        new_rows = np.full(len(self.whole), -1, np.int64)
        new_rows[self.rows] = np.arange(len(self.rows))
        order = new_rows[self.whole.order(epoch, seed)]
        return order[order >= 0]

    @cached_property
    def content_hash(self) -> str:
        """sha256 over the whole set's hash, the kept rows and the noise manifest's hash."""
        digest = hashlib.sha256(self.whole.content_hash.encode())
        fixed = self.noise.content_hash if isinstance(self.noise, NoiseManifest) else ""
        digest.update(self.rows.tobytes() + fixed.encode())
        return digest.hexdigest()

    @cached_property
    def keys_hash(self) -> str:
        """sha256 over the kept keys."""
        digest = hashlib.sha256(repr(len(self)).encode())
        for piece in Strings.of(self.keys).joined("\0"):
            digest.update(piece)
        return digest.hexdigest()
