"""Intervals of ratios over few seeds: Fieller's for two paired means, MOVER for a mean over a standard deviation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.statistics.paired import LEVEL, Difference, mean, t_limit
from reports.statistics.power import spread_limits


@dataclass(frozen=True)
class Ratio:
    """A ratio with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int  #: seeds


def fieller(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio | None:
    """The ratio of two means over the same seeds, at least two (Fieller 1954).

    The interval holds every r that a paired t-test of numerator - r * denominator does not reject. None if the
    denominator is not distinguishable from 0: then that set is unbounded, and the ratio says nothing.
    """
    n = len(numerators)
    top, bottom = mean(numerators), mean(denominators)
    (of_top, of_both), (_, of_bottom) = (np.cov(numerators, denominators) * (t_limit(LEVEL, n - 1) ** 2 / n)).tolist()
    square, linear, constant = bottom * bottom - of_bottom, top * bottom - of_both, top * top - of_top
    if square <= 0:
        return None
    root = math.sqrt(max(0.0, linear * linear - square * constant))
    return Ratio(top / bottom, (linear - root) / square, (linear + root) / square, n)


def over_spread(top: Difference, bottom: float, n: int) -> Ratio:
    """The ratio of a mean difference to `bottom` > 0, a multiple of a standard deviation over n seeds.

    MOVER (Donner and Zou 2012) of the difference's t-interval and the standard deviation's chi-square interval. Where
    `bottom` is a median over methods it is more certain than one standard deviation, so the interval is wide rather
    than narrow: simulated coverage is 99 % and above.
    """
    shares = spread_limits(n - 1)
    spreads = bottom / shares[1], bottom / shares[0]
    low = _lower_limit(top.value, top.low, bottom, spreads)
    return Ratio(top.value / bottom, low, -_lower_limit(-top.value, -top.high, bottom, spreads), n)


def _lower_limit(top: float, end: float, bottom: float, spreads: tuple[float, float]) -> float:
    """The r below top / bottom with (top - end)^2 + r^2 (other - bottom)^2 = (top - r bottom)^2.

    `other` is the limit of the denominator that takes r farthest: the short one if r is negative.
    """
    other = spreads[0] if end < 0 else spreads[1]
    square, constant = other * (2 * bottom - other), end * (2 * top - end)
    if abs(square) < 1e-9 * bottom**2:
        return constant / (2 * top * bottom)
    return (top * bottom - math.sqrt(max(0.0, (top * bottom) ** 2 - square * constant))) / square
