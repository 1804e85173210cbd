"""How large a difference a paired t-test can detect, by the noncentral t distribution.

Differences are in units of their own standard deviation over seeds.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincinv, nctdtr

from reports.statistics.paired import LEVEL, MINIMUM, t_limit

POWER = 0.8  #: the probability with which a detectable difference is detected
MAX_SEEDS = 1000  #: largest number of seeds that is searched


def power(effect: float, n: int, level: float = LEVEL) -> float:
    """The chance that a two-sided paired t-test of n >= 2 seeds at `level` shows a mean difference of `effect` >= 0."""
    limit, shift = t_limit(level, n - 1), effect * math.sqrt(n)
    within, below = np.nan_to_num(nctdtr(n - 1, shift, [limit, -limit]))  # scipy returns NaN for some tails that are 0
    return float(1 - within + below)


def spread_limits(freedom: int) -> tuple[float, float]:
    """Return the shares of the true standard deviation between which a measured one lies with 95 % probability."""
    low, high = np.sqrt(2 / freedom * gammaincinv(freedom / 2, [LEVEL / 2, 1 - LEVEL / 2]))
    return float(low), float(high)


@lru_cache(maxsize=1024)
def detectable(n: int, level: float = LEVEL) -> float:
    """The smallest difference, in standard deviations of differences, that n >= 2 seeds detect with `POWER`."""
    high = 1.0
    while power(high, n, level) < POWER:
        high *= 2
    return float(brentq(lambda effect: power(effect, n, level) - POWER, 0.0, high, xtol=1e-14, rtol=1e-14))


def seeds_for(effect: float, level: float = LEVEL) -> int | None:
    """Return the fewest seeds that detect a difference of `effect` > 0 standard deviations with `POWER`.

    At least `MINIMUM`; None if it takes more than `MAX_SEEDS`.
    """
    return next((n for n in range(MINIMUM, MAX_SEEDS + 1) if power(effect, n, level) >= POWER), None)
