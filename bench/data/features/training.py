"""The stored features that a run trains on: loaded once a process, with dropout where a suite asks for it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import counter
from bench.arrays import Ints
from bench.data.features.lookup import TextLookup
from bench.data.features.pairs import FeaturePairs
from bench.errors import UserError


class TrainingFeatures(FeaturePairs):
    """A feature set as training sees it: numbers of an image are dropped by draws keyed by (seed, row, epoch, view)."""

    def __init__(self, folder: Path | str, share: float = 1.0, dropout: float = 0.0) -> None:
        """dropout: share of an image's numbers that is zeroed; the others are divided by 1 - dropout."""
        super().__init__(folder, share)
        self.dropout = dropout
        if self.about.image is None:
            raise UserError(f"{folder}: has no image features; extract the set again with --images MODEL")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the place alone: another process maps the same files."""
        return TrainingFeatures, (self.folder, self.share, self.dropout)

    @property
    def width(self) -> int:
        """P, the numbers of an image."""
        assert self.about.image is not None
        return self.about.image.width

    def refuse_fewer_views(self, wanted: int) -> None:
        """Raise UserError if fewer views of an image than `wanted` are stored, and no numbers are dropped."""
        assert self.about.image is not None
        if self.about.image.views < wanted and not self.dropout:
            fault = f"{self.about.image.views} stored views of an image, and the method reads {wanted}"
            raise UserError(f"data.features: {fault}; store as many, or set data.feature_dropout")

    def lookup(self) -> TextLookup:
        """Return what finds the features of texts. Raises UserError if there are none."""
        return TextLookup(self)

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> npt.NDArray[Any]:
        """Map rows [b] to features [b, P]: a stored view, or float32 with numbers dropped."""
        return self.dropped(super().sampled(rows, epoch, seed, view, recipe), rows, epoch, seed, view)

    def dropped(self, stored: npt.NDArray[Any], rows: Ints, epoch: int, seed: int, view: int) -> npt.NDArray[Any]:
        """Return features [b, P] of rows [b] with the numbers dropped that `sampled` drops; as they are without."""
        if not self.dropout:
            return stored
        drawn = counter.uniforms(counter.word(seed, "feature dropout", epoch, view), rows, self.width)
        scale = np.float32(1 / (1 - self.dropout))
        dropped: npt.NDArray[Any] = stored.astype(np.float32) * np.where(drawn < self.dropout, np.float32(0), scale)
        return dropped


@lru_cache(maxsize=4)
def load(folder: Path, share: float, dropout: float, _changed: int) -> TrainingFeatures:
    """Open the features in `folder`, once a process for each time of change. Raises UserError if they are damaged."""
    return TrainingFeatures(folder, share, dropout)
