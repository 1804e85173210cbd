"""How alike two suites, or two noises of one, rank their methods: intervals, reliability, pairs that differ."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import UserError
from bench.store import Store
from reports.reference.agreement import (
    Agreement,
    Ranking,
    agreement_page,
    agreement_text,
    compared,
    rank_correlation,
    reliability,
)

NOISE, OTHER = "40 % shuffled captions", "40 % edited captions"
BLOCKS = (("a", 9), ("a", 1), ("b", 9), ("b", 1))


def a_ranking(means: Mapping[str, float], spread: float, seeds: int, name: str = "one", key: int = 0) -> Ranking:
    rng = np.random.default_rng(key)
    own = {label: {s: mean + spread * float(rng.normal()) for s in range(seeds)} for label, mean in means.items()}
    return Ranking(name, "mean recall", {NOISE: ("shuffled_captions", 0.4)}, {NOISE: own})


def only(first: Ranking, second: Ranking) -> Agreement:
    (one,) = compared(first, second)
    return one


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=5, max_size=12))
def test_the_correlation_is_scipys_and_its_interval_holds_it(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    value, low, high = rank_correlation(a, b)
    if min(np.ptp(a), np.ptp(b)) == 0:
        assert value == 0
    else:
        assert value == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
    assert low <= value <= high


def test_the_interval_is_bonett_and_wrights() -> None:
    """r = 0.5 of 23 rows: tanh(atanh(0.5) -+ 1.96 sqrt(1.125 / 20))."""
    a = np.arange(23.0)
    rng = np.random.default_rng(3)
    b = a + 12 * rng.normal(size=23)
    value, low, high = rank_correlation(a, b)
    half = stats.norm.ppf(0.975) * np.sqrt((1 + value**2 / 2) / 20)
    assert (low, high) == pytest.approx((np.tanh(np.arctanh(value) - half), np.tanh(np.arctanh(value) + half)))


def test_reliability_is_the_correlation_with_other_seeds() -> None:
    """Means of 4 seeds with a spread of 2 around rows with a spread of 1: 1 / (1 + 4 / 4) = 0.5."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 1))
    one, other = (rows + 2 * rng.normal(size=(4000, 4)) for _ in range(2))
    assert reliability(one) == pytest.approx(0.5, abs=0.03)
    assert np.corrcoef(one.mean(1), other.mean(1))[0, 1] == pytest.approx(reliability(one), abs=0.05)
    assert reliability(np.ones((5, 3))) == 0


def test_pairs_told_apart_are_counted_by_their_order() -> None:
    up = {f"m{place}": float(place) for place in range(6)}
    down = {label: -value for label, value in up.items()}
    first, same, opposite = (a_ranking(up, 1e-3, 5), a_ranking(up, 1e-3, 4, key=1), a_ranking(down, 1e-3, 4, key=2))
    alike, turned = only(first, same), only(first, opposite)
    assert (alike.rho, alike.same, alike.opposite, alike.one, alike.neither) == (1, 15, 0, 0, 0)
    assert (turned.rho, turned.same, turned.opposite) == (-1, 0, 15)
    assert alike.rows == ("m5", "m4", "m3", "m2", "m1", "m0")
    assert alike.seeds == (5, 4)
    noisy = only(first, a_ranking(up, 100, 4, key=3))
    assert (noisy.same, noisy.opposite, noisy.one, noisy.neither) == (0, 0, 15, 0)
    assert noisy.reliability[0] > 0.99 > noisy.reliability[1]


def test_rows_with_too_few_seeds_are_left_out_and_too_few_rows_are_not_compared() -> None:
    means = {f"m{place}": float(place) for place in range(6)}
    first, second = a_ranking(means, 0.1, 4), a_ranking(means, 0.1, 4, "two", key=1)
    cut = {**second.values[NOISE], "m0": {0: 1.0}}
    assert "m0" not in only(first, Ranking("two", "x", second.noises, {NOISE: cut})).rows
    few = a_ranking({"m0": 1.0, "m1": 2.0}, 0.1, 4)
    assert compared(first, few) == []
    with pytest.raises(UserError, match="suites one and one: have no noise in common"):
        agreement_text(first, few)
    with pytest.raises(UserError, match="suite one: has no two noises under which the same 5 methods have 3 seeds"):
        agreement_text(first)
    assert "## " not in agreement_page(first, [few])


def test_two_noises_of_a_suite_are_compared() -> None:
    up = {f"m{place}": float(place) for place in range(6)}
    first, second = a_ranking(up, 1e-3, 4), a_ranking({**up, "m0": 9.0}, 1e-3, 3, key=1)
    noises = {**first.noises, OTHER: ("edited_captions", 0.4)}
    both = Ranking("one", "mean recall", noises, {**first.values, OTHER: second.values[NOISE]})
    (one,) = compared(both)
    assert (one.title, one.seeds, one.same, one.opposite) == (f"{NOISE}; {OTHER}", (4, 3), 10, 5)
    assert f"| {NOISE}; {OTHER} | 6 | 4 and 3 |" in agreement_text(both)


def test_budgets_of_a_noise_are_compared_and_of_two_suites_the_longest_ones() -> None:
    up = {f"m{place}": float(place) for place in range(6)}
    down = {name: -value for name, value in up.items()}
    own = {(name, days): a_ranking(up if days > 1 else down, 1e-3, 4, key=days).values[NOISE] for name, days in BLOCKS}
    noises = {f"{name}, {days}": (name, 0.4) for name, days in own}
    budgets = {f"{name}, {days}": float(days) for name, days in own}
    several = Ranking("two", "x", noises, {f"{name}, {days}": one for (name, days), one in own.items()}, budgets)
    assert [one.title for one in compared(several)] == ["a, 9; a, 1", "a, 9; b, 9", "a, 1; b, 1", "b, 9; b, 1"]
    first = Ranking("one", "x", {"a": ("a", 0.4)}, {"a": own["a", 9]}, {}, {"a": frozenset({"run"})})
    (one,) = compared(first, several)
    assert (one.title, one.opposite, one.same) == ("a; a, 9", 0, 15)
    assert compared(first, replace(several, runs={"a, 9": frozenset({"run", "other"})})) == []


def test_the_verb_and_the_page_print_a_line_for_each_noise(bounded: Store) -> None:
    asked = ["stats", "agreement", "emoji_noisy"]
    result = CliRunner().invoke(app, [*asked, "--results", str(bounded.root)])
    assert result.exit_code == 0, result.output
    assert "## emoji_noisy: its noises" in result.stdout
    assert "40 % shuffled captions" in result.stdout
    result = CliRunner().invoke(app, [*asked, "emoji_noisy", "--results", str(bounded.root)])
    assert isinstance(result.exception, UserError)
    assert "have no noise in common, with runs of their own" in str(result.exception)
    means = {f"m{place}": float(place) for place in range(5)}
    page = agreement_page(a_ranking(means, 0.1, 3), [a_ranking(means, 0.1, 3, "two", key=1)])
    assert page.startswith("# Do the comparisons rank the methods alike?")
    assert "## one and two" in page
    assert page.count("| 40 % shuffled captions |") == 1


def test_a_damaged_run_is_named_left_out_and_the_exit_code_says_so(bounded: Store, tmp_path: Path) -> None:
    shutil.copytree(bounded.root, tmp_path, dirs_exist_ok=True)
    broken = Store(tmp_path).run(bounded.plan("emoji_noisy")["cells"][0]["run"])
    broken.path("status.json").write_text("{")
    result = CliRunner().invoke(app, ["stats", "agreement", "emoji_noisy", "--results", str(tmp_path)])
    assert result.exit_code == 1, result.output
    assert "status.json" in result.stderr
    assert "40 % shuffled captions" in result.stdout
