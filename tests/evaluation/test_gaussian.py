"""Prompt filters, BPRW and traversals: ProLIP's official analysis code, identities, and what each rule means."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import data
from bench.checks import lab
from bench.checks.oracles import Case, cases
from bench.errors import UserError
from bench.evaluation.probabilistic import bprw, hierarchy
from bench.evaluation.probabilistic.prompts import filtered_class_vectors, most_certain
from bench.evaluation.zero_shot import class_vectors, classify

from . import official  # noqa: F401  its cases

seeds = st.integers(0, 2**31)


def gaussians(seed: int, *shape: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means, logvar = (torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return {"embedding": F.normalize(means, dim=-1), "logvar": logvar - 3}


def densities(seed: int, prompts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log densities of 12 points under the prompts of each of 2 classes, and where EM starts."""
    texts, points = gaussians(seed, 2, prompts, 4), gaussians(seed + 1, 2, 12, 4)["embedding"]
    variances = texts["logvar"].exp()
    found = [bprw.log_densities(*of_class) for of_class in zip(points, texts["embedding"], variances, strict=True)]
    return torch.stack(found), bprw.initial_weights(variances)


@pytest.mark.parametrize("case", [*cases("gaussian"), *cases("filters")], ids=lambda case: case.path)
def test_equals_the_official_code(case: Case) -> None:
    for one in case.compare():
        lab.assert_close(one.actual, one.expected, one.rtol, one.atol)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_adding_a_constant_to_every_classs_variance_changes_no_decision(seed: int) -> None:
    images, classes = gaussians(seed, 30, 5), gaussians(seed + 1, 7, 5)
    before = classify(images, classes, torch.arange(30) % 7, "csd").hits(1)
    wider = {**classes, "logvar": (classes["logvar"].exp() + 0.3 / 5).log()}
    assert (classify(images, wider, torch.arange(30) % 7, "csd").hits(1) == before).all()


@given(seeds, st.integers(1, 6), st.floats(1, 50))
@settings(max_examples=20, deadline=None)
def test_weights_are_a_distribution_and_one_prompt_has_all(seed: int, prompts: int, a: float) -> None:
    weights = bprw.mixture_weights(*densities(seed, prompts), a)
    lab.assert_close(weights.sum(-1), torch.ones(2))
    assert bool((weights >= 0).all())
    if prompts == 1:
        lab.assert_close(weights, torch.ones(2, 1))


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_a_strong_prior_makes_weights_uniform(seed: int) -> None:
    log_density, start = densities(seed, 5)
    lab.assert_close(bprw.mixture_weights(log_density, start, 1e12), torch.full((2, 5), 0.2, dtype=start.dtype))
    assert float((bprw.mixture_weights(log_density, start, 1.0) - 0.2).abs().max()) > 0.01


def test_a_mixture_does_not_depend_on_those_beside_it() -> None:
    log_density, start = densities(0, 5)
    both = bprw.mixture_weights(log_density, start, 1.0)
    for number in (0, 1):
        assert torch.equal(both[number], bprw.mixture_weights(log_density[number], start[number], 1.0))


def test_em_ends_where_another_step_changes_nothing_and_points_are_likelier() -> None:
    log_density, start = densities(3, 5)
    weights = bprw.mixture_weights(log_density, start, 2.0)
    shares = (weights.log()[:, None] + log_density).softmax(-1)
    lab.assert_close((shares.sum(1) + 1) / (12 + 5), weights, rtol=1e-9)

    def posterior(pi: torch.Tensor) -> torch.Tensor:
        return (pi.log()[:, None] + log_density).logsumexp(-1).sum(1) + pi.log().sum(1)

    assert bool((posterior(weights) > posterior(start)).all())


def test_weights_find_the_prompt_that_made_the_points() -> None:
    texts = gaussians(5, 3, 4, 16)
    texts["logvar"] -= 3
    images = {"embedding": texts["embedding"][:, 2].float(), "logvar": texts["logvar"][:, 2].float()}
    weights = bprw.fit_prompt_weights(texts, images, torch.arange(3)[:, None].expand(3, 5), 5)
    assert weights.argmax(1).tolist() == [2, 2, 2]
    lab.assert_close(weights[:, 2], torch.full((3,), (100 + 1) / (100 + 4)), rtol=0.02)


def test_em_starts_with_the_surer_prompts() -> None:
    variances = torch.tensor([[[1.0, 3.0], [4.0, 4.0], [0.5, 0.5]]])
    lab.assert_close(bprw.initial_weights(variances), torch.tensor([[2.0, 1.0, 8.0]]) / 11, rtol=1e-6)


def test_points_have_the_images_means_and_variances() -> None:
    images = gaussians(7, 2, 3)
    points = bprw.draw_points(images, 40_000, 0).reshape(40_000, 2, 3)
    lab.assert_close(points.mean(0), images["embedding"], rtol=0, atol=0.02)
    lab.assert_close(points.var(0), images["logvar"].exp(), rtol=0.05)
    assert torch.equal(bprw.draw_points(images, 3, 4), bprw.draw_points(images, 3, 4))
    assert not torch.equal(bprw.draw_points(images, 3, 4), bprw.draw_points(images, 3, 5))


def test_the_likelihood_has_a_little_more_variance_than_the_prompts() -> None:
    texts, images = gaussians(8, 1, 4, 6), gaussians(9, 5, 6)
    points, means = bprw.draw_points(images, 20, 0), texts["embedding"][0]
    variances = texts["logvar"][0].exp()
    density = torch.distributions.Normal(means, (variances + 0.02).sqrt()).log_prob(points[:, None]).sum(-1)
    expected = bprw.mixture_weights(density, bprw.initial_weights(variances), 2.0)
    lab.assert_close(bprw.fit_prompt_weights(texts, images, torch.arange(5)[None], 5)[0], expected, rtol=1e-8)


def test_settings_are_the_papers() -> None:
    assert [*map(bprw.fit_settings, (0, 5, 9))] == [(5.0, 10, 10), (2.0, 5, 20), (2.0, 9, 11)]


def test_shots_have_their_label_and_few_images_are_taken_in_turns() -> None:
    pairs = data.load_dataset("emoji/train", 32)
    names = pairs.classes["concept"]
    rows = bprw.labelled_rows(pairs, "concept", names, 9)
    assert rows.shape == (len(names), 9)
    labels = torch.from_numpy(pairs.labels["concept"])
    assert bool((labels[rows] == torch.arange(len(names))[:, None]).all())
    counts = torch.bincount(labels, minlength=len(names)).clamp(max=9)
    assert [len(set(row)) for row in rows.tolist()] == counts.tolist()
    assert torch.equal(bprw.labelled_rows(pairs, "concept", names, 2)[:, 0], rows[:, 0])
    for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
        assert row == (row[:count] * 9)[:9]
    twice = ("missile", "missile", *names[2:])  # as in ImageNet
    renamed = dataclasses.replace(pairs, classes={**pairs.classes, "concept": twice})
    assert torch.equal(bprw.labelled_rows(renamed, "concept", twice, 9), rows)
    novel = data.load_dataset("emoji/novel", 32)
    with pytest.raises(UserError, match=r"emoji/train has no image of \d+ classes, such as '"):
        bprw.labelled_rows(pairs, "concept", (*names, *novel.classes["concept"]), 5)


U = torch.tensor([[1.0, 2.0, 2.0, 9.0], [3.0, 4.0, 5.0, 6.0]])


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        ([[2.0], [4.0]], [[1, 1, 1, 0], [1, 1, 0, 0]]),
        ([[9.0], [2.0]], [[1, 1, 1, 1], [1, 0, 0, 0]]),  # the second class is empty and keeps its surest
        ([[0.5]], [[1, 0, 0, 0], [1, 0, 0, 0]]),
    ],
)
def test_which_prompts_are_kept(limit: list[list[float]], kept: list[list[int]]) -> None:
    assert most_certain(U, torch.tensor(limit)).int().tolist() == kept


def test_keeping_all_prompts_is_the_ensemble() -> None:
    texts = gaussians(1, 6 * 4, 8)
    found = filtered_class_vectors(texts, torch.ones(6, 4, dtype=torch.bool))
    for name, expected in class_vectors(texts, 4).items():
        lab.assert_close(found[name], expected)


# --- traversals -----------------------------------------------------------------------------------------------------


def test_a_path_meets_what_lies_on_it() -> None:
    angles = torch.tensor([0.0, 20.0, 40.0, 60.0, 200.0], dtype=torch.float64) * math.pi / 180
    texts = torch.stack((angles.cos(), angles.sin()), 1)
    own = torch.tensor([[1, 1, 0, 1, 1], [0, 0, 0, 0, 1]], dtype=torch.bool)
    images, roots = texts[[0, 0]], texts[[3, 3]]
    found = hierarchy.traverse(images, texts, own, roots)
    lab.assert_close(found["precision"], [0.75, 0.0])  # it meets the first four
    lab.assert_close(found["recall"], [0.75, 0.0])
    assert found["any"].tolist() == [1.0, 0.0]
    assert found["r1_root"].tolist() == [1.0, 0.0]
    away = hierarchy.traverse(images, texts, own, texts[[2, 4]])  # the first image owns its start, not this root
    assert away["r1_root"].tolist() == [0.0, 1.0]
    lab.assert_close(hierarchy.traverse(images, texts, own, roots, steps=1)["precision"], [1.0, 0.0])  # the start alone


def test_overlap_is_the_integral_up_to_a_constant() -> None:
    one, two = gaussians(2, 12), gaussians(3, 12)
    x = torch.linspace(-30, 30, 60_001, dtype=torch.float64)[:, None]
    square = -((x - one["embedding"]).square()) / one["logvar"].exp()
    other = -((x - two["embedding"]).square()) / two["logvar"].exp() / 2
    area = torch.trapezoid((square + other).exp(), x, dim=0).log()
    expected = area - 2 * one["logvar"] - two["logvar"]
    difference = hierarchy.log_overlap(one["embedding"], one["logvar"], two["embedding"], two["logvar"]) - expected
    lab.assert_close(difference, difference.mean().expand(12), rtol=1e-8)


def test_levels_go_from_group_to_tags() -> None:
    pairs = data.load_dataset("emoji/iid", 32)
    found = hierarchy.levels(pairs)
    row = pairs.keys.index("1f0cf-noto")
    assert found[row] == ("activities", "games & hobbies", "joker", "joker, poker, cards, play")
    pool = sorted({text for texts in found for text in texts})
    own = hierarchy.caption_owners(found, pool)
    assert sorted(own.sum(1).unique().tolist()) == [3, 4]  # a few names are their heading's, too
    assert {pool[column] for column in own[row].nonzero().flatten().tolist()} == set(found[row])
    with pytest.raises(UserError, match="digits/test: no hierarchy"):
        hierarchy.levels(data.load_dataset("digits/test", 32))


def test_a_level_without_tags_is_the_name() -> None:
    pairs = data.load_dataset("emoji/iid", 32)
    bare = dataclasses.replace(pairs, texts=tuple(texts[:1] for texts in pairs.texts))  # type: ignore[type-var]
    assert all(last == name for _, _, name, last in hierarchy.levels(bare))
