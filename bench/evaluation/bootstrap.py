"""Bootstrap percentile intervals over examples, for one fixed checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.arrays import Floats, Ints

REPLICATES = 1000
_BLOCK = 1 << 18  # examples drawn at a time, few enough for the processor's cache
_KEPT = 1 << 22  # counts of all replicates that are kept for the next call, at most


def resamples(n: int, seed: int = 0, replicates: int = REPLICATES) -> Iterator[Floats]:
    """Yield counts of each of n examples in n draws with replacement: blocks [r, n], `replicates` rows in all."""
    blocks = _kept(n, seed, replicates) if n * replicates <= _KEPT else _drawn(n, seed, replicates)
    yield from (block.astype(np.float64) for block in blocks)


@lru_cache(maxsize=16)
def _kept(n: int, seed: int, replicates: int) -> tuple[npt.NDArray[np.integer[Any]], ...]:
    """Return the same counts in one or two bytes each, cached: a process needs them for few sizes."""
    small = np.min_scalar_type(n)
    return tuple(block.astype(small) for block in _drawn(n, seed, replicates))


def _drawn(n: int, seed: int, replicates: int) -> Iterator[Ints]:
    rng = np.random.default_rng(seed)
    size = max(1, _BLOCK // n)
    for start in range(0, replicates, size):
        rows = min(size, replicates - start)
        places = rng.integers(0, n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(places.ravel(), minlength=rows * n).reshape(rows, n)


def ratio_replicates(totals: Mapping[str, Floats], weights: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return by name the replicates [REPLICATES] of sum(total) / sum(weight), all from the same draws of the n units.

    totals, weights: [n] by name. A unit is drawn as a whole: an example (weight 1), or an image with all its captions
    (weight: their number).
    """
    names = list(totals)
    tops = np.stack([totals[name] for name in names], axis=1)
    bottoms = np.stack([weights[name] for name in names], axis=1)
    ratios = np.concatenate([(drawn @ tops) / (drawn @ bottoms) for drawn in resamples(len(tops))])
    return dict(zip(names, ratios.T, strict=True))


def mean_interval(values: Floats) -> tuple[float, float]:
    """Return the 95 % interval of the mean of values [n]."""
    return percentile_interval(ratio_replicates({"": values}, {"": np.ones(len(values))})[""])


def percentile_interval(replicates: Floats) -> tuple[float, float]:
    """Return the 95 % percentile interval of replicates [r]."""
    low, high = np.percentile(replicates, (2.5, 97.5))
    return float(low), float(high)
