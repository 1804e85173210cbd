"""`keep: oracle`: the pairs that the noise leaves as they were, an upper bound for any way of finding them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.catalogue.keep.entry import Asked, Keep

if TYPE_CHECKING:
    from bench.arrays import Ints


def clean(asked: Asked) -> Ints:
    """Return the rows that the manifest leaves alone; ValueError if the noise is new in every step."""
    if asked.corrupted is None:
        raise ValueError("resampled positives leave no fixed set of clean pairs")
    left = np.ones(len(asked.keys), bool)
    left[asked.corrupted] = False
    return np.flatnonzero(left).astype(np.int64)


ORACLE = Keep("oracle", "the pairs that are known to be clean", clean, uses="the truth", truth_alone=True)
