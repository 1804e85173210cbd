"""The numbers of the statistics against other ways to get them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reports.statistics import blocks, difference, holm, mean, not_worse_than_best, std, t_limit, t_tails


def column(matrix: np.ndarray) -> dict[str, dict[int, float]]:
    """Methods m0, m1, ... from the rows of [methods, seeds]."""
    return {f"m{i}": dict(enumerate(map(float, row))) for i, row in enumerate(matrix)}


def test_mean_and_std_are_the_samples() -> None:
    values = [0.2, 0.4, 0.9]
    assert mean(values) == pytest.approx(np.mean(values))
    assert std(values) == pytest.approx(np.std(values, ddof=1))
    assert std([0.2]) is None


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 12, 33])
def test_students_t_equals_scipys(freedom: int) -> None:
    for t in (0.0, 0.3, -1.0, 2.5, 40.0):
        assert t_tails(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), abs=1e-14)
    assert t_limit(0.05, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-12)


def test_the_difference_is_that_of_a_linear_model() -> None:
    """Least squares on method and seed indicators: an independent road to the same interval."""
    rng = np.random.default_rng(0)
    methods, seeds = 4, 5
    y = rng.normal(size=(methods, seeds)) + np.arange(methods)[:, None] + 3 * rng.normal(size=seeds)
    design = np.zeros((methods * seeds, methods + seeds - 1))
    for i in range(methods):
        for j in range(seeds):
            design[i * seeds + j, i] = 1
            if j:
                design[i * seeds + j, methods + j - 1] = 1
    beta, (rss,), *_ = np.linalg.lstsq(design, y.ravel())
    freedom = y.size - design.shape[1]
    contrast = np.zeros(design.shape[1])
    contrast[[3, 0]] = 1, -1
    error = math.sqrt(rss / freedom * contrast @ np.linalg.inv(design.T @ design) @ contrast)
    found = blocks(column(y))
    assert found is not None
    assert found.freedom == freedom == 12
    test = difference(found, "m3", "m0")
    assert test.value == pytest.approx(contrast @ beta)
    assert test.p == pytest.approx(2 * stats.t.sf(abs(contrast @ beta) / error, freedom))
    assert test.high - test.low == pytest.approx(2 * stats.t.ppf(0.975, freedom) * error)


def test_two_methods_give_the_paired_t_test() -> None:
    y = np.random.default_rng(1).normal(size=(2, 4))
    found = blocks(column(y))
    assert found is not None
    assert difference(found, "m0", "m1").p == pytest.approx(stats.ttest_rel(y[0], y[1]).pvalue)


def test_holm_steps_down_and_stops() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == {"a"}  # 0.01 <= 0.05/3, but 0.03 > 0.05/2
    assert holm({"a": 0.01, "b": 0.024, "c": 0.05}) == {"a", "b", "c"}
    assert holm({"a": 0.02, "b": 0.02, "c": 0.02}) == set()
    assert holm({}) == set()


def test_seeds_that_move_all_methods_alike_do_not_hide_a_difference() -> None:
    shift = np.array([0.0, 0.2, -0.1])
    noise = np.array([[0.001, -0.001, 0.0], [-0.001, 0.0, 0.001], [0.0, 0.001, -0.001]])
    y = np.array([0.30, 0.32, 0.3205])[:, None] + shift + noise
    assert not_worse_than_best(column(y), higher_is_better=True) == {"m1", "m2"}
    assert not_worse_than_best(column(y), higher_is_better=False) == {"m0"}


def test_noise_larger_than_the_difference_leaves_a_tie() -> None:
    y = np.array([[0.30, 0.36, 0.28], [0.35, 0.29, 0.33], [0.31, 0.30, 0.35]])
    assert not_worse_than_best(column(y), higher_is_better=True) == {"m0", "m1", "m2"}


def test_nothing_is_bold_below_three_seeds_or_alone() -> None:
    assert not_worse_than_best(column(np.array([[0.1, 0.1], [0.9, 0.9]])), True) == set()
    assert not_worse_than_best(column(np.array([[0.1, 0.2, 0.3]])), True) == set()
    assert not_worse_than_best({}, True) == set()


def test_a_method_with_fewer_seeds_neither_wins_nor_spoils() -> None:
    values = column(np.array([[0.30, 0.31, 0.30], [0.10, 0.11, 0.10]]))
    values["new"] = {0: 0.9, 1: 0.9}
    assert not_worse_than_best(values, True) == {"m0"}
    apart = {"a": {0: 0.1, 1: 0.1, 2: 0.1}, "b": {1: 0.2, 2: 0.2, 3: 0.2}}
    assert blocks(apart) is None  # only two seeds in common


def test_identical_values_tie_and_exact_differences_do_not() -> None:
    same = np.full((3, 3), 0.5)
    assert not_worse_than_best(column(same), True) == {"m0", "m1", "m2"}
    same[0] += 0.25
    assert not_worse_than_best(column(same), True) == {"m0"}


@given(st.lists(st.lists(st.integers(0, 1000), min_size=3, max_size=3), min_size=2, max_size=6))
def test_the_best_is_always_bold_and_direction_is_a_mirror(rows: list[list[int]]) -> None:
    y = np.array(rows) / 1000
    bold = not_worse_than_best(column(y), True)
    assert any(f"m{i}" in bold for i in np.flatnonzero(np.sum(rows, 1) == np.max(np.sum(rows, 1))))
    assert not_worse_than_best(column(-y), False) == bold
