"""The numbers of the statistics against other ways to get them."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from reports.measure import in_bold
from reports.statistics.paired import (
    LEVEL,
    adjusted,
    difference,
    holm,
    mean,
    pairwise,
    std,
    t_limit,
    t_tails,
    t_test,
    unbeaten,
)
from reports.tables.table import Cell, Column, Measured, Row


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
    for t in (0.0, 0.3, -1.0, 2.5, 40.0, 1e4):
        assert t_tails(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), rel=1e-12)
    assert t_tails([np.inf, 1e200], freedom).tolist() == [0, 0]
    assert t_tails(15.0, 1000) == pytest.approx(5.0102389369956564e-46, rel=1e-9, abs=0)
    assert t_limit(0.05, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-12)


def test_the_numbers_are_the_same_in_twelve_digits_on_a_processor_with_other_instructions(tmp_path: Path) -> None:
    """Functions of numpy, scipy and C differ in the last digit between machines; committed tables may not."""
    script = tmp_path / "tails.py"
    script.write_text(
        "import numpy as np\n"
        "from reports.statistics.paired import std, t_limit, t_tails\n"
        "t = np.linspace(0.001, 12, 3000)\n"
        "print([[f'{p:.12g}' for p in t_tails(t, n)] for n in (2, 3, 9, 23)], f'{t_limit(0.05, 9):.12g}')\n"
        "print([std(row) for row in np.random.default_rng(0).normal(size=(999, 5)).tolist()])\n"
    )
    features = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    assert features, "numpy found no instructions beyond its baseline"
    plain = {"NPY_DISABLE_CPU_FEATURES": ",".join(features), "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-FMA4"}
    printed = [
        subprocess.run(
            [sys.executable, "-W", "ignore", script],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | changed,
        ).stdout
        for changed in ({}, plain)
    ]
    assert printed[0] == printed[1]


def test_a_difference_is_scipys_paired_t_test_over_the_seeds_that_both_have() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 6)) + rng.normal(size=6)
    of_a = dict(enumerate(a.tolist()))
    of_b = dict(enumerate(b.tolist())) | {7: 0.0}
    del of_a[2]
    keep = [0, 1, 3, 4, 5]
    test, oracle = difference(of_a, of_b), stats.ttest_rel(a[keep], b[keep])
    interval = oracle.confidence_interval(0.95)
    assert (test.n, test.value) == (5, pytest.approx(np.mean(a[keep] - b[keep])))
    assert (test.p, test.low, test.high) == pytest.approx((oracle.pvalue, interval.low, interval.high))
    assert test.std == pytest.approx(np.std(a[keep] - b[keep], ddof=1))
    assert difference({0: 1.0, 1: 2.0, 2: 0.0}, {1: 1.0, 2: 5.0, 3: 0.0}) is None  # two seeds in common


def test_pairs_of_a_column_are_scipys_paired_t_tests_with_statsmodels_holm() -> None:
    rng = np.random.default_rng(2)
    y = rng.normal(size=(7, 6)) * np.geomspace(0.3, 3, 7)[:, None] + np.arange(7)[:, None]
    values = column(y)
    del values["m3"][0], values["m5"][1], values["m6"][2]
    tests = pairwise(values)
    pairs = list(combinations(range(7), 2))
    oracle = []
    for a, b in pairs:
        shared = sorted(values[f"m{a}"].keys() & values[f"m{b}"].keys())
        oracle.append(stats.ttest_rel(y[a, shared], y[b, shared]).pvalue)
        assert tests.gap[a, b] == -tests.gap[b, a] == pytest.approx(np.mean(y[a, shared] - y[b, shared]))
        assert tests.p[a, b] == tests.p[b, a] == pytest.approx(oracle[-1])
    rejected, steps, *_ = multipletests(oracle, LEVEL, "holm")
    assert 0 < sum(rejected) < len(pairs)
    assert adjusted(oracle) == pytest.approx(steps)
    for (a, b), differs in zip(pairs, rejected, strict=True):
        assert (tests.shown[a, b], tests.shown[b, a]) == (False, differs)  # a later method is higher by a whole number


@pytest.mark.parametrize(("seeds", "methods"), [(5, 8), (10, 8), (10, 20)])
def test_equal_methods_with_unequal_spreads_are_told_apart_in_at_most_six_percent_of_tables(
    seeds: int, methods: int
) -> None:
    """The familywise error, simulated: bold, wins and the comparison with a baseline all rest on these tests."""
    rng, tables = np.random.default_rng(seeds * methods), 2000
    spreads = np.geomspace(0.1, 3, methods)[:, None]
    wrong, wrong_against_baseline = 0, 0
    for _ in range(tables):
        tests = pairwise(column(rng.normal(size=(methods, seeds)) * spreads + rng.normal(size=seeds)))
        wrong += tests.shown.any()
        wrong_against_baseline += min(adjusted(tests.p[methods // 2][np.arange(methods) != methods // 2])) <= LEVEL
    assert 0.01 < wrong / tables <= 0.06
    assert 0.01 < wrong_against_baseline / tables <= 0.06


def test_a_difference_without_spread_has_the_p_of_the_sign_test() -> None:
    """Shares of a few examples may differ by as much in every seed; rounding does not count as their spread."""
    base = {seed: value / 16 for seed, value in enumerate((3, 5, 2, 7))}
    same = {seed: value + 0.1 for seed, value in base.items()}
    assert len({same[seed] - base[seed] for seed in base}) > 1, "no rounding"
    equal, test = difference(base, base), difference(same, base)
    sign = stats.binomtest(0, 4).pvalue
    assert (equal.p, test.p) == (1, pytest.approx(sign))
    assert pairwise({"base": base, "same": same, "twin": base}).p[1] == pytest.approx([sign, np.nan, sign], nan_ok=True)


def test_methods_of_equal_success_on_sixteen_images_are_told_apart_in_at_most_six_percent_of_tables() -> None:
    rng, tables = np.random.default_rng(16), 1000
    wrong = [pairwise(column(rng.binomial(16, 0.5, size=(13, 3)) / 16)).shown.any() for _ in range(tables)]
    assert sum(wrong) / tables <= 0.06


def test_holm_steps_down_and_stops() -> None:
    assert (adjusted([0.01, 0.04, 0.03]) <= LEVEL).tolist() == [True, False, False]  # 0.01 <= 0.05/3, 0.03 > 0.05/2
    assert (adjusted([0.01, 0.024, 0.05]) <= LEVEL).all()
    assert not (adjusted([0.02, 0.02, 0.02]) <= LEVEL).any()
    assert adjusted([]).tolist() == []


def test_seeds_that_move_all_methods_alike_do_not_hide_a_difference() -> None:
    shift = np.array([0.0, 0.2, -0.1])
    noise = np.array([[0.001, -0.001, 0.0], [-0.001, 0.0, 0.001], [0.0, 0.001, -0.001]])
    y = np.array([0.30, 0.32, 0.3205])[:, None] + shift + noise
    assert unbeaten(column(y), higher_is_better=True) == {"m1", "m2"}
    assert unbeaten(column(y), higher_is_better=False) == {"m0"}


def test_noise_larger_than_the_difference_leaves_a_tie() -> None:
    y = np.array([[0.30, 0.36, 0.28], [0.35, 0.29, 0.33], [0.31, 0.30, 0.35]])
    assert unbeaten(column(y), higher_is_better=True) == {"m0", "m1", "m2"}


def test_nothing_is_bold_below_three_seeds_or_alone() -> None:
    assert unbeaten(column(np.array([[0.1, 0.1], [0.9, 0.9]])), True) == set()
    assert unbeaten(column(np.array([[0.1, 0.2, 0.3]])), True) == set()
    assert unbeaten({}, True) == set()


def test_a_method_with_fewer_seeds_neither_wins_nor_spoils() -> None:
    values = column(np.array([[0.30, 0.31, 0.30], [0.10, 0.12, 0.10]]))
    values["new"] = {0: 0.9, 1: 0.9}
    assert unbeaten(values, True) == {"m0"}
    apart = {"a": {0: 0.1, 1: 0.1, 2: 0.1}, "b": {1: 0.2, 2: 0.2, 3: 0.2}}
    assert np.isnan(pairwise(apart).p).all()  # only two seeds in common
    assert unbeaten(apart, True) == set()


@pytest.mark.parametrize(("seeds", "best"), [(3, {"m0", "m1", "m2"}), (10, {"m0"})])
def test_identical_values_tie_and_exact_differences_take_seeds(seeds: int, best: set[str]) -> None:
    same = np.full((3, seeds), 0.5)
    assert unbeaten(column(same), True) == {"m0", "m1", "m2"}
    same[0] += 0.25
    assert unbeaten(column(same), True) == best


@given(st.lists(st.lists(st.integers(0, 1000), min_size=3, max_size=3), min_size=2, max_size=6))
def test_the_best_is_always_bold_and_direction_is_a_mirror(rows: list[list[int]]) -> None:
    y = np.array(rows) / 1000
    bold = unbeaten(column(y), True)
    assert any(f"m{i}" in bold for i in np.flatnonzero(np.sum(rows, 1) == np.max(np.sum(rows, 1))))
    assert unbeaten(column(-y), False) == bold


def test_an_interval_leaves_out_zero_where_its_difference_is_significant_and_only_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gc.collect", int)  # multipletests calls it each time, and it looks at all that tests have left
    rng = np.random.default_rng(5)
    for methods, seeds in ((1, 3), (7, 5), (36, 3), (36, 10)):
        for _ in range(50):
            shifts = rng.choice([0, 1, 4], methods)[:, None]
            values = (rng.normal(size=(methods, seeds)) + shifts).tolist()
            made = holm({place: t_test(row) for place, row in enumerate(values)})
            rejected, steps, *_ = multipletests([test.p for test in made.values()], LEVEL, "holm")
            assert [test.adjusted for test in made.values()] == pytest.approx(steps)
            assert [test.low > 0 or test.high < 0 for test in made.values()] == rejected.tolist()
            assert [test.is_significant for test in made.values()] == rejected.tolist()


@pytest.mark.parametrize("different", [0.0, 1.0])
def test_adjusted_intervals_hold_the_truth(different: float) -> None:
    """Of equal methods all do in 95 % of families; of different ones at least 95 % of the intervals of a family."""
    rng, methods, seeds = np.random.default_rng(6), 12, 5
    truths = different * np.linspace(-8, 8, methods)
    missed = []
    for _ in range(1000):
        values = (rng.normal(size=(methods, seeds)) + truths[:, None]).tolist()
        made = holm({place: t_test(row) for place, row in enumerate(values)}).values()
        missed.append([not test.low <= truth <= test.high for test, truth in zip(made, truths, strict=True)])
    assert np.mean(missed if different else np.any(missed, axis=1)) <= 0.06


def test_an_interval_ends_where_differences_end_and_without_a_spread_the_sign_test_speaks() -> None:
    wide = t_test([0.9, -0.8, 0.1]).within(1.0)
    assert (wide.low, wide.high) == (-1.0, 1.0)
    few, many = t_test([0.25] * 3).within(1.0), t_test([0.25] * 10).within(1.0)
    assert (few.low, few.high) == (-1.0, 1.0), "a sign test of three seeds rejects nothing"
    assert (many.low, many.high) == (0.25, 0.25)


@given(st.lists(st.lists(st.integers(0, 20), min_size=5, max_size=5), min_size=2, max_size=8))
def test_bold_agrees_with_the_verdict_on_the_baseline(rows: list[list[int]]) -> None:
    """What it calls worse is never bold, nor is the baseline beside something better."""
    values = column(np.array(rows) / 20)
    bold = unbeaten(values, True, "m0")
    others = (label for label in values if label != "m0")
    tests = holm({label: test for label in others if (test := difference(values[label], values["m0"]))})
    assert not {label for label, test in tests.items() if test.is_significant and test.value < 0} & bold
    assert "m0" not in bold or not any(test.is_significant and test.value > 0 for test in tests.values())
    assert unbeaten(column(-np.array(rows) / 20), False, "m0") == bold


def test_the_verdict_corrects_over_fewer_tests_than_bold_so_it_decides() -> None:
    """36 rows and ten seeds: one is below the baseline by what 35 tests show and 630 do not."""
    rng = np.random.default_rng(0)
    y = 0.5 + 0.1 * rng.normal(size=(36, 10))
    noise = rng.normal(size=10)
    y[1] = y[0] - 0.01 - 0.01 * 10**0.5 * (noise - noise.mean()) / noise.std(ddof=1) / 4.6
    assert "m1" in unbeaten(column(y), True)
    assert "m1" not in unbeaten(column(y), True, "m0")
    assert "m0" in unbeaten(column(-y), True)
    assert "m0" not in unbeaten(column(-y), True, "m0"), "nor is the baseline beside what is better than it"


def test_where_more_than_a_third_of_a_block_ties_nothing_is_bold() -> None:
    def bold(count: int) -> tuple[list[str], int]:
        """Six rows, of which so many lead."""
        y = np.random.default_rng(1).normal(0, 1e-3, (6, 8)) + np.where(np.arange(6) < count, 0.5, 0.1)[:, None]
        rows = []
        for label, own in column(y).items():
            measured = tuple(Measured("r", seed, one) for seed, one in own.items())
            rows.append(Row(label, (Cell("value", measured=measured),), "", label))
        made, tied = in_bold(rows, [Column("c", "c")], [True], "m0")
        return [row.label for row in made if row.cells[0].bold], tied

    assert bold(1) == (["m0"], 0)
    assert bold(2) == (["m0", "m1"], 0)
    assert bold(3) == ([], 1)
    assert bold(6) == ([], 1)
