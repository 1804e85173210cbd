"""Statistics over many data sets: interquartile mean, probability of improvement, signed ranks over blocks.

The interquartile mean and the probability of improvement are those of Agarwal et al. (NeurIPS 2021, rliable). Their
bootstrap draws seeds anew for each data set, because each of their runs sees one; here one training gives the values of
all data sets, so a drawn seed brings all of its values along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import trim_mean

from reports.statistics.paired import LEVEL, Floats

DRAWS = 500  #: of a bootstrap over seeds


@lru_cache(maxsize=16)
def seed_draws(n: int, stream: int = 0) -> NDArray[np.int64]:
    """Return [DRAWS, n] places of n seeds drawn with replacement, the same in every report."""
    return np.random.default_rng((n, stream)).integers(n, size=(DRAWS, n))


def interquartile_mean(values: Floats) -> Floats:
    """The mean over the last axis without its lowest and highest quarter (as many whole values as fit in each)."""
    return np.asarray(trim_mean(values, 0.25, axis=-1))


def interquartile_interval(scores: Floats) -> tuple[float, float, float]:
    """The interquartile mean of [seeds, data sets] with its 95 % interval, bootstrapped over seeds."""
    drawn = scores[seed_draws(len(scores))].reshape(DRAWS, -1)
    return float(interquartile_mean(scores.reshape(-1))), *_percentiles(interquartile_mean(drawn))


def improvement_interval(a: Floats, b: Floats) -> tuple[float, float, float]:
    """The probability that a run of `a` is better than one of `b`, both [seeds, data sets], with its 95 % interval.

    The mean over data sets of the share of pairs of runs in which `a` is higher, a tie being half. Seeds of `a` and `b`
    are drawn apart: drawn together, runs of one seed would meet more often than they do in the value itself.
    """
    apart = a[:, None] - b[None]
    better = ((apart > 0) + 0.5 * (apart == 0)).mean(-1)
    drawn = better[seed_draws(len(a))[:, :, None], seed_draws(len(b), 1)[:, None, :]].mean((1, 2))
    return float(better.mean()), *_percentiles(drawn)


def _percentiles(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)


def signed_rank(differences: Sequence[float]) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test, exact with ties too; zeros are left out."""
    sizes = np.array([abs(one) for one in differences if one])
    if not len(sizes):
        return 1.0
    doubled = (sizes[:, None] > sizes).sum(1) * 2 + (sizes[:, None] == sizes).sum(1) + 1  # twice the mean rank
    positive = int(doubled[np.array([one > 0 for one in differences if one])].sum())
    chances = _rank_sums(tuple(sorted(doubled.tolist())))
    return float(min(1.0, 2 * min(chances[: positive + 1].sum(), chances[positive:].sum())))


@lru_cache(maxsize=1024)
def _rank_sums(ranks: tuple[int, ...]) -> Floats:
    """The probability of each sum of a subset of the ranks, all subsets being equally likely."""
    chances = np.zeros(sum(ranks) + 1)
    chances[0] = 1
    for rank in ranks:
        added = np.concatenate([np.zeros(rank), chances[:-rank]])
        chances = (chances + added) / 2
    return chances


def blocks_for(methods: int) -> int:
    """The independent blocks of data sets that it takes until a signed-rank test can pass Holm over all pairs."""
    pairs = methods * (methods - 1) // 2
    return max(1, math.ceil(1 + math.log2(pairs / LEVEL)))


def mean_over_first(values: Floats) -> Floats:
    """The mean over the first axis of what is not NaN; NaN where nothing is left."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0).sum(0) / known.sum(0))
