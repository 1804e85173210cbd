"""The power of the paired t-test, and intervals of ratios, against scipy, statsmodels and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from reports.statistics.paired import LEVEL, t_test
from reports.statistics.power import POWER, detectable, power, seeds_for, spread_limits
from reports.statistics.ratio import fieller, over_spread


@pytest.mark.parametrize("n", [2, 3, 4, 5, 10, 30, 200])
@pytest.mark.parametrize("level", [0.05, 0.05 / 22, 0.05 / 253])
def test_power_is_that_of_scipys_noncentral_t(n: int, level: float) -> None:
    limit = stats.t.ppf(1 - level / 2, n - 1)
    for effect in (0, 0.1, 0.5, 1, 3, 20):
        shift = effect * math.sqrt(n)
        if shift < 37:  # scipy's series ends there, and its far tails may be NaN
            tails = np.nan_to_num([stats.nct.cdf(limit, n - 1, shift), stats.nct.cdf(-limit, n - 1, shift)])
            assert power(effect, n, level) == pytest.approx(1 - tails[0] + tails[1], abs=1e-10)
    assert power(0, n, level) == pytest.approx(level)


def test_the_detectable_difference_and_the_seeds_are_statsmodels() -> None:
    for n in (3, 4, 5, 10, 20):
        assert detectable(n) == pytest.approx(TTestPower().solve_power(nobs=n, alpha=0.05, power=POWER), rel=1e-5)
        assert power(detectable(n, 0.01), n, 0.01) == pytest.approx(POWER)
    for effect in (0.2, 0.5, 1.0, 1.9):
        n = seeds_for(effect)
        assert n == math.ceil(TTestPower().solve_power(effect_size=effect, alpha=0.05, power=POWER))
        assert power(effect, n) >= POWER > power(effect, n - 1)
    assert seeds_for(1000.0) == 3
    assert seeds_for(0.01) is None


@pytest.mark.parametrize("freedom", [1, 2, 4, 9, 40])
def test_spreads_have_chi_square_limits(freedom: int) -> None:
    oracle = np.sqrt(stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], freedom) / freedom)
    assert spread_limits(freedom) == pytest.approx(tuple(oracle), rel=1e-6)


@pytest.mark.parametrize(
    ("method", "baseline", "oracle", "gap", "level", "ends"),
    [
        ([31.2, 30.8, 31.9], [28.0, 28.4, 27.9], [34.1, 33.6, 34.4], 5.933333333333, 0.5393258426966,
         (0.2800438056287, 0.6918335251307)),
        ([40.1, 40.9, 40.2], [40.0, 40.6, 40.3], [40.2, 40.5, 40.6], 0.1333333333333, 0.75, None),
        ([20.0, 21.0, 25.0, 22.0], [19.0, 18.0, 20.5, 19.5], [21.0, 20.5, 19.9, 22.5], 1.725, 1.594202898551, None),
        ([33.0, 32.5, 34.2], [33.4, 33.0, 34.1], [33.5, 33.2, 34.0], 0.06666666666667, -4.0, None),
    ],
)  # fmt: skip
def test_a_recovered_gap_has_fiellers_interval_or_none(
    method: list[float],
    baseline: list[float],
    oracle: list[float],
    gap: float,
    level: float,
    ends: tuple[float, float] | None,
) -> None:
    """Where the set is unbounded (the outside of two roots, twice, and everything) no ratio and no end is given."""
    tops, bottoms = np.subtract(method, baseline).tolist(), np.subtract(oracle, baseline).tolist()
    assert (np.mean(bottoms), np.mean(tops) / np.mean(bottoms)) == pytest.approx((gap, level))
    ratio = fieller(tops, bottoms)
    assert (ratio is None) == (ends is None) == (stats.ttest_1samp(bottoms, 0).pvalue > LEVEL)
    if ratio is not None:
        assert (ratio.value, ratio.n) == (pytest.approx(level), len(tops))
        assert (ratio.low, ratio.high) == pytest.approx(ends)


def test_fiellers_interval_holds_the_ratios_that_a_t_test_does_not_reject() -> None:
    rng = np.random.default_rng(0)
    bottoms = rng.normal(2, 0.5, 6)
    tops = 0.4 * bottoms + rng.normal(0, 0.3, 6)
    ratio = fieller(tops.tolist(), bottoms.tolist())
    for end, outward in ((ratio.low, -1e-6), (ratio.high, 1e-6)):
        p_outside, p_inside = (stats.ttest_1samp(tops - (end + d) * bottoms, 0).pvalue for d in (outward, -outward))
        assert p_outside < LEVEL < p_inside


@pytest.mark.parametrize(("n", "truth"), [(3, 0.0), (3, 2.0), (5, 2.0), (5, 8.0), (10, 0.2), (10, 8.0)])
def test_a_ratio_to_a_spread_is_covered_on_both_sides(n: int, truth: float) -> None:
    rng, draws = np.random.default_rng(n), 800
    above, below = 0, 0
    for _ in range(draws):
        ratio = over_spread(t_test((truth + rng.normal(size=n)).tolist()), rng.normal(size=n).std(ddof=1), n)
        assert ratio.low <= ratio.value <= ratio.high
        above += ratio.low > truth
        below += ratio.high < truth
    assert max(above, below) / draws <= 0.04
