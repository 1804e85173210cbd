"""Uncertainty over seeds and test concepts together, by a model of variance components.

A difference between two methods is measured for every seed k on every concept i: d_ik = D + a_k + b_i + e_ik, with
seeds and concepts drawn from populations of their own. The estimators are those of the analysis of variance of a
crossed layout (Searle, Casella and McCulloch 1992, chapter 4), negative components set to 0; the degrees of freedom are
Satterthwaite's (1946). A crossed bootstrap of seeds and concepts understates the variance with few seeds.
"""

from __future__ import annotations

import math

from reports.statistics.paired import LEVEL, Floats, t_limit


def interval_over_both(values: Floats) -> tuple[float, float]:
    """The 95 % interval, over seeds and concepts, of the mean of values [n seeds, m concepts].

    ValueError unless there are two seeds and two concepts at least.
    """
    n, m = values.shape
    if min(n, m) < 2:
        raise ValueError(f"{n} seeds and {m} concepts: two of each are needed")
    value, by_seed, by_concept = float(values.mean()), values.mean(axis=1), values.mean(axis=0)
    rest = values - by_seed[:, None] - by_concept[None, :] + value
    freedom = n - 1, m - 1, (n - 1) * (m - 1)
    squares = m * ((by_seed - value) ** 2).sum(), n * ((by_concept - value) ** 2).sum(), (rest**2).sum()
    of_seeds, of_concepts, of_rest = (float(sum_ / free) for sum_, free in zip(squares, freedom, strict=True))
    # The variance of the mean is (of_seeds + of_concepts - of_rest) / nm, or a part of it where a component is 0.
    positive = [1.0 if of_one > of_rest else 0.0 for of_one in (of_seeds, of_concepts)]
    signs = (*positive, 1.0 - sum(positive))
    used = [sign * square / (n * m) for sign, square in zip(signs, (of_seeds, of_concepts, of_rest), strict=True)]
    variance = sum(used)
    spread = sum(part**2 / free for part, free in zip(used, freedom, strict=True))
    free = max(1, math.floor(variance**2 / spread)) if spread else n - 1
    half = t_limit(LEVEL, free) * math.sqrt(variance)
    return value - half, value + half
