"""How large a difference a paired t-test can show, by the noncentral t distribution.

Differences are in units of their own standard deviation over seeds. The integral is our own, because importing
scipy.stats takes longer than a report; tests compare it with scipy and statsmodels.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np

from reports.statistics.paired import LEVEL, Floats, t_limit

POWER = 0.8  #: the chance with which a detectable difference is shown
MOST = 1000  #: seeds beyond which nobody counts
_WIDE = 9.0  #: standard deviations beyond which a tail is below 1e-13
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_erf = np.vectorize(math.erf, otypes=[float])


def power(effect: float, n: int, level: float = LEVEL) -> float:
    """The chance that a two-sided paired t-test of n >= 2 seeds at `level` shows a mean difference of `effect` >= 0.

    T = (Z + e sqrt(n)) / U with U^2 = chi^2(n - 1) / (n - 1), hence P(T > c) is the mean of Phi(e sqrt(n) - c U).
    The integral over U is cut where its density ends and around the step of Phi, which is narrow where c is large.
    """
    freedom = n - 1
    limit, shift = t_limit(level, freedom), effect * math.sqrt(n)
    wide = _WIDE / math.sqrt(2 * freedom)
    low, high = max(0.0, 1 - wide), 1 + wide
    step = (shift - _WIDE) / limit, (shift + _WIDE) / limit
    edges = [low, *(min(max(edge, low), high) for edge in step), high]
    total = 0.0
    for a, b in pairwise(edges):
        if b > a:
            u = (a + b) / 2 + (b - a) / 2 * _NODES
            beyond = _phi(shift - limit * u) + _phi(-shift - limit * u)
            total += float((b - a) / 2 * (_WEIGHTS * _density(u, freedom)) @ beyond)
    return min(total, 1.0)


@lru_cache(maxsize=256)
def spread_limits(freedom: int) -> tuple[float, float]:
    """Return the shares of the true standard deviation between which a measured one lies with 95 % probability."""
    return _spread_quantile(LEVEL / 2, freedom), _spread_quantile(1 - LEVEL / 2, freedom)


def _spread_quantile(probability: float, freedom: int) -> float:
    low, high = 0.0, 1 + _WIDE / math.sqrt(2 * freedom)
    while high - low > 1e-12:
        middle = (low + high) / 2
        u = middle / 2 * (1 + _NODES)
        below = float(middle / 2 * _WEIGHTS @ _density(u, freedom))
        low, high = (middle, high) if below < probability else (low, middle)
    return high


def _phi(x: Floats) -> Floats:
    return np.asarray(0.5 * (1 + _erf(x / math.sqrt(2))))


def _density(u: Floats, freedom: int) -> Floats:
    """Of the root of chi^2 / freedom."""
    half = freedom / 2
    scale = math.log(2) + half * math.log(half) - math.lgamma(half)
    return np.asarray(np.exp(scale + (freedom - 1) * np.log(u) - half * u**2))


@lru_cache(maxsize=1024)
def detectable(n: int, level: float = LEVEL) -> float:
    """The smallest difference, in standard deviations of differences, that n >= 2 seeds show with `POWER`."""
    low, high = 0.0, 1.0
    while power(high, n, level) < POWER:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle, n, level) < POWER else (low, middle)
    return high


def seeds_for(effect: float, level: float = LEVEL) -> int | None:
    """The fewest seeds that show a difference of `effect` > 0 standard deviations with `POWER`; None beyond `MOST`."""
    low, high = 1, 2
    while power(effect, high, level) < POWER:
        low, high = high, 2 * high
        if low >= MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if power(effect, middle, level) < POWER else (low, middle)
    return high
