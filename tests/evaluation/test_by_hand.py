"""Measurements written once more with loops over plain numbers, and the places where examples are few or alike."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bench import data
from bench.data.evaluation.hub import Puzzle
from bench.evaluation import pixels
from bench.evaluation.bootstrap import REPLICATES, mean_interval, percentile_interval, ratio_replicates, resamples
from bench.evaluation.diagnostics import pair_similarities
from bench.evaluation.grouped import macro_f1, mean_per_class, worst_group
from bench.evaluation.measures import available_scores, held_back
from bench.evaluation.puzzles import SIZES, solve
from bench.evaluation.ranks import offsets, rank, require_finite
from bench.evaluation.workload import Workload
from bench.evaluation.zero_shot import class_prompts, class_vectors, classify, predictions

few = settings(max_examples=30, deadline=None)


def gaussians(seed: int, rows: int, dim: int = 5) -> dict[str, torch.Tensor]:
    draws = torch.Generator().manual_seed(seed)
    mean, logvar = torch.randn(2, rows, dim, generator=draws, dtype=torch.float64)
    return {"embedding": F.normalize(mean, dim=1), "logvar": logvar - 2}


def distance(a: dict[str, torch.Tensor], i: int, b: dict[str, torch.Tensor], j: int) -> float:
    """CSD: squared distance of the means and all variances."""
    means = zip(a["embedding"][i].tolist(), b["embedding"][j].tolist(), strict=True)
    variances = (*a["logvar"][i].tolist(), *b["logvar"][j].tolist())
    return math.fsum((x - y) ** 2 for x, y in means) + math.fsum(map(math.exp, variances))


@few
@given(st.integers(0, 999), st.integers(1, 12), st.integers(2, 9))
def test_classes_are_ranked_by_the_distances_of_gaussians(seed: int, images: int, classes: int) -> None:
    a, b = gaussians(seed, images), gaussians(seed + 1, classes)
    labels = torch.arange(images) % classes
    found = classify(a, b, labels, "csd")
    best = []
    for i in range(images):
        far = [distance(a, i, b, j) for j in range(classes)]
        assert found.better[i] == sum(x < far[labels[i]] for x in far)
        best.append(far.index(min(far)))
    assert predictions(a, b, "csd").tolist() == best
    shift = offsets(a, "csd")[:, None] + offsets(b, "csd")
    scores = a["embedding"] @ b["embedding"].T + shift
    expected = [[-distance(a, i, b, j) / 2 + 1 for j in range(classes)] for i in range(images)]
    assert np.allclose(scores.numpy(), expected)


@few
@given(st.integers(0, 999), st.integers(1, 5), st.integers(1, 4))
def test_a_class_vector_is_the_mean_of_its_own_prompts(seed: int, classes: int, templates: int) -> None:
    texts = gaussians(seed, classes * templates)
    texts["embedding"] = texts["embedding"] * 3  # longer than 1: made unit before the mean
    found = class_vectors(texts, templates)
    for number in range(classes):
        own = range(number * templates, (number + 1) * templates)
        mean = sum(texts["embedding"][row] / texts["embedding"][row].norm() for row in own)
        assert torch.allclose(found["embedding"][number], mean / mean.norm())
        variance = sum(texts["logvar"][row].exp() for row in own) / templates
        assert torch.allclose(found["logvar"][number].exp(), variance)


@settings(deadline=None)
@given(st.lists(st.text("ab{}", max_size=4), max_size=4), st.lists(st.sampled_from(["{}", "a {}.", "x", "{}{}"])))
def test_prompts_stand_class_by_class(names: list[str], templates: list[str]) -> None:
    found = class_prompts(names, templates)
    assert len(found) == len(names) * len(templates)
    for number, text in enumerate(found):
        name, template = names[number // len(templates)], templates[number % len(templates)]
        assert text == name.join(template.split("{}"))


LABELS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=25)


@few
@given(LABELS)
def test_metrics_over_classes_and_groups_count_what_is_there(rows: list[tuple[int, int, int]]) -> None:
    labels, predicted, groups = (np.array(column) for column in zip(*rows, strict=True))
    hits = (labels == predicted).astype(np.float64)
    by_class = {c: [h for h, label in zip(hits, labels, strict=True) if label == c] for c in set(labels.tolist())}
    value, (low, high) = mean_per_class(hits, labels)
    assert value == pytest.approx(np.mean([np.mean(one) for one in by_class.values()]))
    assert 0 <= low <= high <= 1
    worst, _ = worst_group(hits, groups)
    assert worst == min(np.mean(hits[groups == g]) for g in set(groups.tolist()))
    f1 = []
    for c in by_class:
        right = sum(h for h, label in zip(hits, labels, strict=True) if label == c)
        f1.append(2 * right / (np.sum(labels == c) + np.sum(predicted == c)))
    assert macro_f1(labels, predicted)[0] == pytest.approx(np.mean(f1))


def test_groups_may_have_any_numbers_and_any_order() -> None:
    hits, groups = np.array([1.0, 0.0, 1.0, 1.0]), np.array([7, -3, 7, -3])
    assert worst_group(hits, groups)[0] == 0.5
    order = np.array([2, 0, 3, 1])
    assert mean_per_class(hits[order], groups[order])[0] == mean_per_class(hits, groups)[0] == 0.75


@few
@given(st.lists(st.text("abcdef", min_size=1, max_size=8), unique=True, max_size=30), st.floats(0, 1))
def test_rows_are_held_back_by_their_keys_alone(keys: list[str], share: float) -> None:
    mask = held_back(keys, share)
    assert mask.sum() == round(share * len(keys))
    order = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).hexdigest())
    assert {key for key, held in zip(keys, mask, strict=True) if held} == set(order[: mask.sum()])
    assert held_back(keys[::-1], share)[::-1].tolist() == mask.tolist()


def test_scores_need_variances_on_both_sides() -> None:
    with_variance, without = gaussians(0, 2), {"embedding": torch.ones(2, 3)}
    assert available_scores(with_variance, with_variance) == ["cosine", "csd"]
    assert available_scores(with_variance, without) == available_scores(without, with_variance) == ["cosine"]
    with pytest.raises(ValueError, match="score 'euclid' is not one of"):
        offsets(without, "euclid")


@few
@given(st.integers(1, 400), st.integers(0, 3))
def test_resamples_are_draws_of_n_of_n_and_their_number_is_that_asked_for(n: int, seed: int) -> None:
    blocks = list(resamples(n, seed, replicates=37))
    drawn = np.concatenate(blocks)
    assert drawn.shape == (37, n)
    assert (drawn.sum(1) == n).all()
    assert (drawn == np.concatenate(list(resamples(n, seed, replicates=37)))).all()
    if n > 20:
        assert (drawn != np.concatenate(list(resamples(n, seed + 1, replicates=37)))).any()


def test_resampled_counts_are_binomial() -> None:
    drawn = np.concatenate(list(resamples(40)))
    assert len(drawn) == REPLICATES
    counts = np.bincount(drawn.astype(int).ravel(), minlength=8)[:6]
    expected = stats.binom.pmf(range(6), 40, 1 / 40) * drawn.size
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected.max())


def test_many_examples_are_drawn_in_blocks_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.evaluation.bootstrap._BLOCK", 100)
    drawn = np.concatenate(list(resamples(30, replicates=10)))
    assert drawn.shape == (10, 30)
    assert (drawn.sum(1) == 30).all()
    assert len(np.unique(drawn, axis=0)) == 10


def test_an_interval_is_the_central_95_percent() -> None:
    low, high = percentile_interval(np.arange(1001, dtype=np.float64))
    assert (low, high) == (25.0, 975.0)
    assert mean_interval(np.full(9, 0.25)) == (0.25, 0.25)
    values = np.random.default_rng(0).normal(size=400)
    low, high = mean_interval(values)
    half = stats.norm.ppf(0.975) * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


def test_ratios_of_one_draw_belong_together() -> None:
    values = np.random.default_rng(1).random(50)
    weights = np.arange(1.0, 51.0)
    found = ratio_replicates({"a": values, "b": 1 - values}, {"a": np.ones(50), "b": np.ones(50)})
    assert np.allclose(found["a"] + found["b"], 1)
    weighted = ratio_replicates({"a": 3 * weights}, {"a": weights})["a"]
    assert np.allclose(weighted, 3)


@few
@given(st.integers(0, 999), st.integers(2, 4), st.sampled_from(["cosine", "csd"]))
def test_a_puzzle_is_the_jaccard_index_of_two_sets(seed: int, count: int, score: str) -> None:
    images, cues = gaussians(seed, 9), gaussians(seed + 1, 3)
    rng = np.random.default_rng(seed)
    puzzles, expected = [], []
    for number in range(3):
        rows = rng.permutation(9)[:6].tolist()
        right = np.zeros(6, bool)
        right[rng.permutation(6)[:count]] = True
        puzzles.append(Puzzle("cue", tuple(rows), tuple(right.tolist())))
        near = [images["embedding"][row] @ cues["embedding"][number] for row in rows]
        far = [-distance(images, row, cues, number) for row in rows]
        order = sorted(range(6), key=lambda place: -float((far if score == "csd" else near)[place]))
        picked, wanted = set(order[:count]), set(np.flatnonzero(right).tolist())
        expected.append(len(picked & wanted) / len(picked | wanted))
    assert solve(images, cues, puzzles, score).tolist() == pytest.approx(expected)


def test_puzzles_have_the_published_sizes() -> None:
    assert {name: list(sizes) for name, sizes in SIZES.items()} == {
        "jaccard_10_12": [10, 11, 12],
        "jaccard_5_6": [5, 6],
    }


@few
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.integers(0, 99))
def test_similarities_of_pairs_are_all_of_the_matrix(captions: list[str], seed: int) -> None:
    n = len(captions)
    images, texts = gaussians(seed, n)["embedding"], gaussians(seed + 1, n)["embedding"]
    found = pair_similarities(images, texts, captions)
    matched = [float(images[i] @ texts[i]) for i in range(n)]
    others = [float(images[i] @ texts[j]) for i in range(n) for j in range(n) if captions[i] != captions[j]]
    assert found["positive"].tolist() == pytest.approx(matched)
    assert sorted(found["negative"].tolist()) == pytest.approx(sorted(others))
    means, tops = [], []
    for i in range(n):
        own = sorted((float(images[i] @ texts[j]) for j in range(n) if captions[i] != captions[j]), reverse=True)
        if own:
            means.append(math.fsum(own) / len(own))
            largest = own[: max(1, math.ceil(0.05 * len(own) - 1e-9))]
            tops.append(math.fsum(largest) / len(largest))
    assert found["negative mean"].tolist() == pytest.approx(means)
    assert found["negative top"].tolist() == pytest.approx(tops)


def test_infinities_of_both_signs_are_not_finite() -> None:
    require_finite(torch.ones(3), torch.zeros(0))
    for bad in ([math.inf, -math.inf], [math.nan], [math.inf]):
        with pytest.raises(FloatingPointError):
            require_finite(torch.ones(2), torch.tensor(bad))
    with pytest.raises(FloatingPointError):
        rank(
            {"embedding": torch.ones(1, 2)}, {"embedding": torch.full((2, 2), math.nan)}, torch.tensor([[0]]), "cosine"
        )


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_pixels_come_in_order_in_batches(size: int) -> None:
    pairs, rows = data.load_dataset("emoji/iid", 32), np.array([5, 0, 9, 9, 2, 7, 1])
    parts = list(pixels.batches(pairs, rows, size))
    assert [len(part) for part in parts] == [len(rows[start : start + size]) for start in range(0, 7, size)]
    assert np.array_equal(np.concatenate(parts), pairs.images(rows))


def test_workloads_add_side_by_side() -> None:
    assert Workload(3, 5) + Workload(10, 100) == Workload(13, 105)
    assert Workload() + Workload(1, 2) == Workload(1, 2)
