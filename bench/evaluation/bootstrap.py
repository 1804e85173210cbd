"""Percentile intervals over examples: how far a number would move with other examples, for this checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
REPLICATES = 1000
_BLOCK = 1 << 18  # drawn examples at a time: what is done with them stays in the cache


def resamples(n: int, seed: int = 0, replicates: int = REPLICATES) -> Iterator[Floats]:
    """How often each of n examples is drawn when n are drawn with replacement: [r, n] blocks of `replicates` rows."""
    rng = np.random.default_rng(seed)
    size = max(1, _BLOCK // n)
    for start in range(0, replicates, size):
        rows = min(size, replicates - start)
        places = rng.integers(0, n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(places.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def ratio_replicates(totals: Mapping[str, Floats], weights: Mapping[str, Floats], seed: int = 0) -> dict[str, Floats]:
    """[replicates] of sum(total) / sum(weight) by name, all from the same draws of the n units.

    A unit is what is drawn as a whole: an example (weight 1), or an image with all its captions (weight their number).
    """
    names = list(totals)
    tops = np.stack([totals[name] for name in names], axis=1)
    bottoms = np.stack([weights[name] for name in names], axis=1)
    found = np.concatenate([(drawn @ tops) / (drawn @ bottoms) for drawn in resamples(len(tops), seed)])
    return dict(zip(names, found.T, strict=True))


def mean_interval(values: Floats, seed: int = 0) -> tuple[float, float]:
    """95 % interval of the mean of [n] values."""
    return interval(ratio_replicates({"": values}, {"": np.ones(len(values))}, seed)[""])


def interval(replicates: Floats) -> tuple[float, float]:
    """95 % percentile interval."""
    low, high = np.percentile(replicates, (2.5, 97.5))
    return float(low), float(high)
