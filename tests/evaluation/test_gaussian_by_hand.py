"""Measurements of embeddings with variances against integrals, draws and loops of their own."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bench import data
from bench.evaluation.measures import MeasureInputs
from bench.evaluation.probabilistic import bprw, hierarchy
from bench.evaluation.probabilistic.prompts import filtered_class_vectors, top1
from bench.evaluation.tasks import Task
from bench.evaluation.zero_shot import class_vectors

few = settings(max_examples=25, deadline=None)
SEEDS = st.integers(0, 9999)


def gaussians(seed: int, *shape: int) -> dict[str, torch.Tensor]:
    draws = torch.Generator().manual_seed(seed)
    means, logvar = (torch.randn(*shape, generator=draws, dtype=torch.float64) for _ in range(2))
    return {"embedding": F.normalize(means, dim=-1), "logvar": logvar - 2}


@few
@given(SEEDS, st.integers(1, 6), st.integers(1, 5))
def test_the_most_inclusive_text_has_the_largest_overlap(seed: int, images: int, texts: int) -> None:
    a, b = gaussians(seed, images, 3), gaussians(seed + 1, texts, 3)
    chosen = hierarchy.most_inclusive(a, b).tolist()
    for i in range(images):
        sums = []
        for j in range(texts):
            total = 0.0
            for d in range(3):
                (m1, v1), (m2, v2) = (
                    (float(side["embedding"][row, d]), math.exp(float(side["logvar"][row, d])))
                    for side, row in ((a, i), (b, j))
                )
                total += -2 * math.log(v1) - math.log(v2) - math.log(1 / v1 + 1 / (2 * v2)) / 2
                total -= (m1 - m2) ** 2 / (v1 + 2 * v2)
            sums.append(total)
        assert chosen[i] == sums.index(max(sums))


@few
@given(SEEDS, st.integers(1, 20), st.integers(2, 9), st.integers(1, 7))
def test_a_path_is_walked_step_by_step(seed: int, n: int, m: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = (rng.normal(size=(rows, 4)) for rows in (n, m, n))
    images, texts, roots = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in drawn)
    own = rng.random((n, m)) < 0.4
    own[:, 0] = True
    tensors = (torch.from_numpy(x) for x in (images, texts, own, roots))
    found = hierarchy.traverse(*tensors, steps=steps)
    for i in range(n):
        start, met = texts[np.argmax(texts @ images[i])], set()
        for k in range(steps):
            point = start + k / steps * (roots[i] - start)
            met.add(int(np.argmax(texts @ point)))
        right = {j for j in met if own[i, j]}
        assert float(found["precision"][i]) == pytest.approx(len(right) / len(met))
        assert float(found["recall"][i]) == pytest.approx(len(right) / own[i].sum())
        assert bool(found["any"][i]) == bool(right)
        assert bool(found["r1_root"][i]) == own[i, np.argmax(texts @ roots[i])]


def test_roots_need_variances_for_the_inclusive_one() -> None:
    images, texts, empty = gaussians(0, 5, 4), gaussians(1, 3, 4), gaussians(2, 1, 4)
    found = hierarchy.roots(images, texts, empty)
    assert list(found) == ["empty text", "empty and most inclusive text"]
    assert torch.equal(found["empty text"], empty["embedding"].repeat(5, 1))
    nearest = texts["embedding"][hierarchy.most_inclusive(images, texts)]
    middle = (nearest + empty["embedding"]) / 2
    assert torch.allclose(found["empty and most inclusive text"], F.normalize(middle, dim=1))
    for side in (images, texts):
        plain = {"embedding": side["embedding"]}
        given_ = (plain, texts) if side is images else (images, plain)
        assert list(hierarchy.roots(*given_, empty)) == ["empty text"]


def test_numbers_of_a_hierarchy_are_means_over_images() -> None:
    pairs = data.load_dataset("emoji/iid", 32)
    pool = sorted({text for texts in hierarchy.levels(pairs) for text in texts})
    images, texts, empty = gaussians(3, len(pairs), 4), gaussians(4, len(pool), 4), gaussians(5, 1, 4)
    features: Any = SimpleNamespace(images=lambda _: images, texts=lambda asked: texts if asked == pool else empty)
    plan: Any = SimpleNamespace(load=lambda _: pairs)
    numbers, _ = hierarchy.along_hierarchy(Task("hierarchy", "emoji/iid"), MeasureInputs(plan, features, None))
    assert len(numbers) == 8
    own = hierarchy.caption_owners(hierarchy.levels(pairs), pool)
    for score, root in zip(("cosine", "csd"), hierarchy.roots(images, texts, empty).values(), strict=True):
        expected = hierarchy.traverse(images["embedding"], texts["embedding"], own, root)
        found = {one.metric: one for one in numbers if one.score == score}
        assert {name: one.value for name, one in found.items()} == pytest.approx(
            {name: float(values.mean()) for name, values in expected.items()}
        )
        assert {one.n for one in found.values()} == {len(pairs)}
        assert all(one.interval[0] <= one.value <= one.interval[1] for one in found.values())


@few
@given(st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=4), min_size=1, max_size=6))
def test_ownership_says_whose_captions_are_where(captions: list[list[str]]) -> None:
    pool = sorted({text for texts in captions for text in texts})
    own = hierarchy.caption_owners(captions, pool)
    assert [[pool[j] for j in row.nonzero().flatten()] for row in own] == [sorted(set(texts)) for texts in captions]


@few
@given(SEEDS, st.integers(1, 5), st.integers(2, 9))
def test_log_densities_are_scipys_up_to_one_constant(seed: int, prompts: int, points: int) -> None:
    texts, x = gaussians(seed, prompts, 3), gaussians(seed + 1, points, 3)["embedding"]
    variances = texts["logvar"].exp()
    found = bprw.log_densities(x, texts["embedding"], variances).numpy()
    for j in range(prompts):
        law = stats.multivariate_normal(texts["embedding"][j].numpy(), np.diag(variances[j].numpy()))
        assert np.allclose(found[:, j], law.logpdf(x.numpy()) + 1.5 * math.log(2 * math.pi))


@few
@given(SEEDS, st.integers(2, 4), st.sampled_from([1.0, 2.0, 5.0]))
def test_weights_maximise_the_posterior(seed: int, prompts: int, a: float) -> None:
    """No other distribution among many drawn ones has a higher posterior density (the problem is concave)."""
    texts, x = gaussians(seed, prompts, 3), gaussians(seed + 1, 12, 3)["embedding"]
    logs = bprw.log_densities(x, texts["embedding"], texts["logvar"].exp())
    weights = bprw.mixture_weights(logs, torch.full((prompts,), 1 / prompts, dtype=torch.float64), a)

    def posterior(w: torch.Tensor) -> torch.Tensor:
        mixture = (w.clamp(min=1e-300).log()[:, None] + logs).logsumexp(-1).sum(-1)
        return mixture + (a - 1) * w.clamp(min=1e-300).log().sum(-1)

    others = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(prompts), 300))
    near = F.normalize(weights + 0.02 * others, p=1, dim=1)
    best = posterior(weights[None])[0]
    assert float(posterior(torch.cat((others, near))).max()) <= float(best) + 1e-6


def test_mixed_moments_are_those_of_a_weighted_sum() -> None:
    texts = gaussians(3, 3, 2)
    weights = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    draws = np.random.default_rng(0).normal(size=(200_000, 3, 2))
    sums = ((texts["embedding"].numpy() + draws * (texts["logvar"] / 2).exp().numpy()) * weights.numpy()[:, None]).sum(
        1
    )
    mean, variance = bprw.mixed(weights, texts["embedding"], texts["logvar"].exp())
    assert np.allclose(sums.mean(0), mean.numpy(), atol=5e-3)
    assert np.allclose(sums.var(0), variance.numpy(), rtol=0.02)


def test_drawn_points_belong_to_their_image_and_key() -> None:
    images = gaussians(5, 4, 3)
    points = bprw.draw_points(images, 5000, 7).reshape(5000, 4, 3)
    assert torch.allclose(points.mean(0), images["embedding"], atol=0.1)
    assert torch.allclose(points.var(0), images["logvar"].exp(), rtol=0.1)
    assert torch.equal(points.flatten(0, 1), bprw.draw_points(images, 5000, 7))
    assert not torch.equal(points.flatten(0, 1), bprw.draw_points(images, 5000, 8))


@pytest.mark.parametrize(("shots", "a", "images", "samples"), [(0, 5.0, 10, 10), (1, 2.0, 1, 100), (30, 2.0, 30, 3)])
def test_a_setting_draws_about_a_hundred_points(shots: int, a: float, images: int, samples: int) -> None:
    assert bprw.fit_settings(shots) == (a, images, samples)


@few
@given(SEEDS, st.integers(1, 4), st.integers(2, 5))
def test_vectors_of_kept_prompts_are_those_of_an_ensemble_of_them(seed: int, classes: int, prompts: int) -> None:
    texts = gaussians(seed, classes * prompts, 3)
    kept = torch.from_numpy(np.random.default_rng(seed).random((classes, prompts)) < 0.5)
    kept[:, 0] = True
    found = filtered_class_vectors(texts, kept)
    for number in range(classes):
        rows = number * prompts + kept[number].nonzero().flatten()
        alone = class_vectors({name: x[rows] for name, x in texts.items()}, len(rows))
        for name in ("embedding", "logvar"):
            assert torch.allclose(found[name][number], alone[name][0])


def test_top1_has_the_share_of_hits() -> None:
    images, classes = gaussians(1, 40, 3), gaussians(2, 5, 3)
    labels = (images["embedding"] @ classes["embedding"].T).argmax(1)
    labels[:10] = (labels[:10] + 1) % 5
    number = top1("top1", images, classes, labels, "cosine")
    assert (number.metric, number.score, number.value, number.n) == ("top1", "cosine", 0.75, 40)
    assert number.interval[0] < 0.75 < number.interval[1]
