"""Statistics over many data sets against rliable, scipy and scikit-posthocs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest
import scikit_posthocs
from rliable import metrics
from scipy import stats

from bench.store import Store
from reports.measure import Measure
from reports.results import Results, load
from reports.statistics.many_sets import (
    blocks_for,
    improvement_interval,
    interquartile_interval,
    mean_over_first,
    seed_draws,
    signed_rank,
)
from reports.statistics.paired import LEVEL, Values
from reports.tables.over_sets import Scored, above_chance, block_of, main_scores
from reports.tables.pairs import PairsOfMethods
from reports.tables.suite_tables import tables
from reports.tables.table import Column, Table

SUITE = "emoji_noisy"
CLEAN, NOISY = "0 % shuffled captions", "40 % shuffled captions"


def scored(dataset: str, values: dict[str, list[float]], chance: float | None = None) -> Scored:
    measure = Measure(Column(dataset, dataset, chance=chance), lambda *_: None)
    return Scored(dataset, measure, {label: dict(enumerate(own)) for label, own in values.items()}, False)


@pytest.mark.parametrize("shape", [(3, 1), (3, 5), (5, 7), (10, 14)])
def test_means_and_probabilities_are_rliables(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[0])
    a, b = np.round(rng.normal(size=(2, *shape)), 1)
    value, low, high = interquartile_interval(a)
    assert value == pytest.approx(metrics.aggregate_iqm(a)) == pytest.approx(stats.trim_mean(a, 0.25, axis=None))
    assert low <= value <= high
    value, low, high = improvement_interval(a, b)
    assert value == pytest.approx(metrics.probability_of_improvement(a, b))
    assert low <= value <= high


def test_sets_that_share_images_are_one_block() -> None:
    names = ("drawings", "drawings_captions", "emoji/iid", "emoji/openmoji", "emoji-a/iid", "pets")
    assert [block_of(name) for name in names] == ["drawings", "drawings", "emoji", "emoji", "emoji-a", "pets"]


def test_intervals_are_percentiles_over_whole_seeds() -> None:
    scores = np.random.default_rng(0).normal(size=(5, 6)) + np.arange(5)[:, None]
    means = [stats.trim_mean(scores[draw], 0.25, axis=None) for draw in seed_draws(5)]
    assert interquartile_interval(scores)[1:] == pytest.approx(np.quantile(means, [0.025, 0.975]))
    assert interquartile_interval(scores) == interquartile_interval(scores)


@pytest.mark.parametrize("n", [1, 3, 6, 9, 14, 30])
def test_signed_ranks_are_scipys_exact_test(n: int) -> None:
    rng = np.random.default_rng(n)
    for shift in (0, 0.4, 2):
        values = rng.normal(shift, size=n)
        assert signed_rank(values.tolist()) == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)


def test_signed_ranks_with_ties_and_zeros_count_all_signs() -> None:
    values = [0.5, -0.5, 1.0, 1.0, -0.2, 0.0, 2.0, 0.5]
    sizes = np.abs([one for one in values if one])
    ranks = stats.rankdata(sizes)
    sums = np.array([ranks @ signs for signs in product((0, 1), repeat=len(sizes))])
    own = ranks @ (np.array([one for one in values if one]) > 0)
    assert signed_rank(values) == pytest.approx(min(1, 2 * min((sums <= own).mean(), (sums >= own).mean())))
    assert signed_rank([0.0, 0.0]) == 1


def test_the_blocks_that_it_takes_are_the_first_number_that_can_pass_holm() -> None:
    for methods in (2, 3, 7, 23):
        needed, pairs = blocks_for(methods), methods * (methods - 1) / 2
        assert signed_rank([1.0 + i for i in range(needed)]) <= LEVEL / pairs
        assert signed_rank([1.0 + i for i in range(needed - 1)]) > LEVEL / pairs


def test_pairs_over_enough_blocks_have_holms_p_of_signed_ranks() -> None:
    rng = np.random.default_rng(5)
    labels, blocks = ["a", "b", "c"], 9
    means = rng.normal(size=(3, blocks)) + np.array([0, 0.1, 3])[:, None]
    scores = [
        scored(f"block{k}/{name}", {label: [means[i, k] + shift] * 3 for i, label in enumerate(labels)})
        for k in range(blocks)
        for name, shift in (("one", 0.0), ("two", 1.0))  # two sets of a block share its images
    ]
    pairs = PairsOfMethods(labels, scores)
    oracle = scikit_posthocs.posthoc_wilcoxon(means, p_adjust="holm", method="exact")
    for a in range(3):
        for b in range(3):
            if a != b:
                assert pairs.p[a, b] == pytest.approx(oracle.iloc[a, b])
                assert pairs.mean[a, b] == pytest.approx((means[a] - means[b]).mean())
                assert pairs.better[a, b] == 2 * (means[a] > means[b]).sum()
    assert {pair for pair, p in pairs.p.items() if p <= LEVEL} == {(0, 2), (2, 0), (1, 2), (2, 1)}
    assert "over 9 independent blocks" in pairs.about
    few = PairsOfMethods(labels, scores[:10])
    assert few.p == {}
    assert "5 independent blocks" in few.about
    assert "takes 7" in few.about


def test_scores_above_chance_use_the_data_sets_that_all_methods_have() -> None:
    both = scored("a", {"x": [0.5, 0.6, 0.7], "y": [0.1, 0.2, 0.3]}, chance=0.1)
    without_chance = scored("b", {"x": [1.0, 2.0, 3.0], "y": [1.0, 1.0]})
    alone = scored("c", {"x": [0.1, 0.2, 0.3]})
    matrices = above_chance([both, without_chance, alone])
    assert matrices["x"][0] == [0, 1, 2]
    assert matrices["x"][1] == pytest.approx(np.array([[4 / 9, 1], [5 / 9, 2], [6 / 9, 3]]))
    assert matrices["y"][0] == [0, 1]
    assert above_chance([alone.__class__(**{**vars(alone), "about_pairs": True})]) == {}


def test_a_mean_without_anything_is_nan() -> None:
    assert mean_over_first(np.array([[1.0, np.nan], [3.0, np.nan]])) == pytest.approx([2.0, np.nan], nan_ok=True)


def mean_of(values: Mapping[int, float]) -> float:
    return float(np.mean(list(values.values())))


def values_of(results: Results) -> list[Values]:
    return [one.values for one in main_scores(results, NOISY)]


def table_of(store: Store, name: str) -> Table:
    return {table.name: table for table in tables(load(SUITE, store))}[name]


def test_the_tables_over_data_sets_show_these_numbers(three: Store, one: Store) -> None:
    results = load(SUITE, three)
    matrices = above_chance(main_scores(results, NOISY))
    means = {row.label: row.cells for row in table_of(three, "means").rows if row.group == NOISY}
    assert matrices["bayes"][1].shape == (3, 14)
    value, low, high = interquartile_interval(matrices["bayes"][1])
    assert (means["bayes"][0].value, means["bayes"][0].also) == (value, {"low": low, "high": high, "n": 3})
    assert means["bayes"][1].value == improvement_interval(matrices["bayes"][1], matrices["clip"][1])[0]
    assert means["clip"][1].text == "–"
    pairs = table_of(three, "pairs")
    (row,) = [row for row in pairs.rows if (row.label, row.group) == ("sogclr", NOISY)]
    gaps = [mean_of(of["sogclr"]) - mean_of(of["clip"]) for of in values_of(results)]
    assert row.cells[0].also["mean difference"] == pytest.approx(np.mean(gaps))
    assert row.cells[0].text == f"{100 * np.mean(gaps):+.1f}, {sum(gap > 0 for gap in gaps)}/15"
    assert any("2 independent blocks of data sets (emoji, digits)" in note for note in pairs.footnotes)
    alone = {row.label: row.cells for row in table_of(one, "means").rows if row.group == CLEAN}
    assert alone["bayes"][0].small == "", "one seed has no interval"
