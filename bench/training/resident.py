"""A whole set of stored features on a GPU, so that a step copies row numbers and no features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bench.arrays import Ints
from bench.data.features.lookup import TextLookup
from bench.data.features.training import TrainingFeatures
from bench.data.kept import KeptPairs
from bench.data.pairs import Pairs

SHARE = 0.5  #: of the free memory of the device that features may take
BLOCK = 1 << 26  #: bytes that are copied at a time


@dataclass(frozen=True)
class Resident:
    """The features of a training set on a device, by the numbers of their rows."""

    pairs: TrainingFeatures
    images: Tensor  #: [N * V, P], the views of a row one after the other
    lookup: TextLookup | None  #: None if texts are no stored features
    texts: Tensor | None  #: [M, Q] of the lookup's own table

    @classmethod
    def of(cls, pairs: Pairs, tokenizer: object, device: torch.device, free: int) -> Resident | None:
        """Copy the features that `pairs` and `tokenizer` read to a device with `free` bytes.

        None if they are not stored, are changed on the host (dropout), or take more than SHARE of the free bytes.
        """
        while isinstance(pairs, KeptPairs):
            pairs = pairs.whole
        if not isinstance(pairs, TrainingFeatures) or pairs.dropout or pairs.image_array is None:
            return None
        lookup = tokenizer if isinstance(tokenizer, TextLookup) else None
        size = pairs.image_array.nbytes + (lookup.texts.array.nbytes if lookup else 0)
        if size > SHARE * free:
            return None
        images = pairs.image_array.reshape(-1, pairs.width)
        return cls(pairs, _copied(images, device), lookup, _copied(lookup.texts.array, device) if lookup else None)

    def image_rows(self, pairs: Pairs, rows: Ints, epoch: int, seed: int, view: int) -> Ints:
        """Map rows [b] of `pairs`, which are these or a part of them, to rows of `images`, int64 [b]."""
        while isinstance(pairs, KeptPairs):
            rows, pairs = pairs.rows[rows], pairs.whole
        views = len(self.images) // self.pairs.about.rows
        flat: Ints = self.pairs.whole_rows(rows) * views + self.pairs.view_of(rows, epoch, seed, view)
        return flat

    def text_rows(self, captions: list[str]) -> Ints | None:
        """Map captions [b] to rows of `texts`, int64 [b]; None if not all of them are there."""
        if self.lookup is None:
            return None
        rows = self.lookup.texts.find(captions)
        return rows if (rows >= 0).all() else None


def _copied(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array that is mapped from the disk, block by block."""
    copy = torch.empty(array.shape, dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype, device=device)
    rows = max(1, BLOCK // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        copy[start : start + rows] = torch.from_numpy(np.array(array[start : start + rows]))
    return copy
