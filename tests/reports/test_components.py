"""Variance components of seeds and concepts: against statsmodels' analysis of variance, and by simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from reports.statistics.components import interval_over_both


def crossed(seed: int, n: int, m: int, spreads: tuple[float, float, float], mean: float = 0.0) -> np.ndarray:
    """Values [n, m] of the model with these standard deviations of seeds, concepts and the rest."""
    random = np.random.default_rng(seed)
    of_seeds, of_concepts, rest = spreads
    values = mean + of_seeds * random.normal(size=(n, 1)) + of_concepts * random.normal(size=(1, m))
    return np.asarray(values + rest * random.normal(size=(n, m)))


def test_the_interval_is_that_of_an_analysis_of_variance_with_satterthwaites_degrees_of_freedom() -> None:
    values = crossed(1, 4, 9, (1.0, 2.0, 0.5))
    n, m = values.shape
    lines = [(k, i, values[k, i]) for k in range(n) for i in range(m)]
    frame = pd.DataFrame(lines, columns=["seed", "concept", "value"])
    table = anova_lm(ols("value ~ C(seed) + C(concept)", frame).fit())
    squares = (table["sum_sq"] / table["df"]).to_dict()
    assert min(squares["C(seed)"], squares["C(concept)"]) > squares["Residual"], "no component is 0"
    variance = (squares["C(seed)"] + squares["C(concept)"] - squares["Residual"]) / (n * m)
    freedom = {"C(seed)": n - 1, "C(concept)": m - 1, "Residual": (n - 1) * (m - 1)}
    spread = sum((squares[name] / (n * m)) ** 2 / free for name, free in freedom.items())
    half = stats.t.ppf(0.975, int(variance**2 / spread)) * variance**0.5
    assert interval_over_both(values) == pytest.approx((values.mean() - half, values.mean() + half))


@pytest.mark.parametrize(
    ("n", "spreads"), [(3, (1.0, 4.0, 4.0)), (5, (1.0, 4.0, 4.0)), (3, (0.0, 4.0, 4.0)), (10, (1.0, 0.0, 1.0))]
)
def test_the_interval_holds_the_mean_as_often_as_it_says(n: int, spreads: tuple[float, float, float]) -> None:
    """In 1000 simulated comparisons. With one component alone it is wider than it need be."""
    held = 0
    for seed in range(1000):
        low, high = interval_over_both(crossed(seed, n, 60, spreads, mean=2.0))
        held += low <= 2.0 <= high
    assert 0.93 <= held / 1000 <= 0.995


def test_one_source_alone_is_the_t_interval_over_it() -> None:
    seeds = np.array([0.3, 1.1, 0.2, 0.9])
    interval = stats.t.interval(0.95, 3, seeds.mean(), stats.sem(seeds))
    assert interval_over_both(np.repeat(seeds[:, None], 50, axis=1)) == pytest.approx(interval)
    assert interval_over_both(np.full((3, 4), 0.25)) == (0.25, 0.25)


@pytest.mark.parametrize("shape", [(1, 9), (9, 1)])
def test_one_seed_or_one_concept_says_nothing(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="two of each are needed"):
        interval_over_both(np.zeros(shape))
