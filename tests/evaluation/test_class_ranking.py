"""The rank and the probability of the right class: against brute force, scipy, and by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import Tensor

from bench.catalogue.families import FAMILIES, DatasetFacts
from bench.evaluation import EvaluationPlan
from bench.evaluation.features import Features
from bench.evaluation.measures import MeasureInputs, class_ranking
from bench.evaluation.ranks import AnswerRanks
from bench.evaluation.zero_shot import class_vectors, classify, inverse_temperature, log_likelihoods
from bench.suite.settings import DataSettings, EvaluateSettings
from bench.towers.build import OpenClipTowers
from methods.protocol import Method

CLASSES, WIDTH = 12, 16
Model = tuple[Method, OpenClipTowers]


def drawn(seed: int, variance: bool = False) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Images [200] near their classes [12], and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (200,), generator=generator)
    centres = F.normalize(torch.randn(CLASSES, WIDTH, generator=generator, dtype=torch.float64), dim=-1)
    noise = torch.randn(200, WIDTH, generator=generator, dtype=torch.float64)
    images = {"embedding": F.normalize(centres[labels] + 0.4 * noise, dim=-1)}
    classes = {"embedding": centres}
    if variance:
        classes["logvar"] = torch.randn(CLASSES, WIDTH, generator=generator, dtype=torch.float64) - 3
        images["logvar"] = torch.randn(200, WIDTH, generator=generator, dtype=torch.float64) - 3
    return images, classes, labels


@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3))
def test_a_reciprocal_rank_is_the_mean_over_all_orders_of_tied_candidates(better: int, wrong: int, right: int) -> None:
    tied = [False] * wrong + [True] * right
    orders = [1 / (better + 1 + order.index(True)) for order in permutations(tied)]
    one = AnswerRanks(*(np.array([count]) for count in (better, wrong, right)))
    assert one.reciprocal()[0] == pytest.approx(np.mean(orders))


@pytest.mark.parametrize("score", ["cosine", "csd"])
def test_probabilities_are_those_of_scipy_at_its_best_temperature(score: str) -> None:
    images, classes, labels = drawn(0, variance=score == "csd")
    scores = (2 * images["embedding"] @ classes["embedding"].T - 2).numpy()
    if score == "csd":  # minus the closed-form sampled distance
        scores -= images["logvar"].exp().sum(1, keepdim=True).numpy() + classes["logvar"].exp().sum(1).numpy()

    def mean(log_sharpness: float) -> float:
        logs = log_softmax(np.exp(log_sharpness) * scores / 2, axis=1)
        return float(logs[np.arange(200), labels.numpy()].mean())

    best = minimize_scalar(lambda x: -mean(x), bounds=(-3, 6), method="bounded", options={"xatol": 1e-9})
    sharpness = inverse_temperature(images, labels, classes, score)
    assert np.log(sharpness) == pytest.approx(best.x, abs=1e-5)
    logs = log_likelihoods(images, labels, classes, score, sharpness)
    assert logs.mean() == pytest.approx(mean(best.x), abs=1e-9)


def test_the_scale_of_scores_changes_no_probability() -> None:
    """Methods that train at other temperatures are compared by it."""
    images, classes, labels = drawn(1)
    both = []
    for scale in (1.0, 0.01):
        scaled = {"embedding": scale * images["embedding"]}
        sharpness = inverse_temperature(scaled, labels, classes, "cosine")
        both.append(log_likelihoods(scaled, labels, classes, "cosine", sharpness))
    np.testing.assert_allclose(both[0], both[1], atol=1e-9)


def test_a_collapsed_model_scores_chance() -> None:
    one = torch.full((1, WIDTH), WIDTH**-0.5)
    images, classes = {"embedding": one.expand(40, -1)}, {"embedding": one.expand(CLASSES, -1)}
    labels = torch.arange(40) % CLASSES
    chance = FAMILIES["class_ranking"].chance("label", DatasetFacts("", 40, {"label": CLASSES}))
    assert classify(images, classes, labels, "cosine").reciprocal().mean() == pytest.approx(chance["mrr"])
    sharpness = inverse_temperature(images, labels, classes, "cosine")
    logs = log_likelihoods(images, labels, classes, "cosine", sharpness)
    assert np.exp(logs.mean()) == pytest.approx(chance["likelihood"])


def test_features_that_are_not_finite_are_refused() -> None:
    images, classes, labels = drawn(2)
    images["embedding"][3, 0] = torch.nan
    with pytest.raises(FloatingPointError, match="nothing can be ranked"):
        classify(images, classes, labels, "cosine")
    with pytest.raises(FloatingPointError, match="nothing can be ranked"):
        inverse_temperature(images, labels, classes, "cosine")


def test_the_temperature_is_of_validation_and_the_rest_of_the_scored_images(model: Model) -> None:
    plan = EvaluationPlan(DataSettings(), EvaluateSettings(tasks=("class_ranking",)))
    (task,) = plan.tasks(1.0, None)
    assert (task.name, task.dataset, task.validation) == ("class_ranking/concept", "emoji/iid", "emoji/validation")
    bench = MeasureInputs(plan, Features(*model, "", "1", None), None)
    numbers, outcomes = class_ranking(task, bench)
    assert [number.metric for number in numbers] == ["mrr", "likelihood"]
    logs = outcomes["cosine_log_likelihood"]
    assert np.exp(logs.astype(np.float64).mean()) == pytest.approx(numbers[1].value, rel=1e-5)
    assert numbers[1].interval[0] < numbers[1].value < numbers[1].interval[1]

    pairs, validation = plan.load("emoji/iid"), plan.load("emoji/validation")
    names = pairs.classes["concept"]
    texts = bench.features.texts([template.replace("{}", name) for name in names for template in ("{}",)])
    assert len(class_vectors(texts, 1)["embedding"]) == len(names)
    assert len(logs) == len(pairs) == len(outcomes["label"])
    assert validation.classes["concept"] == names

    own = replace(task, validation="")
    rest, kept = class_ranking(own, bench)
    assert len(kept["label"]) == len(pairs) - round(0.2 * len(pairs))
    assert rest[0].n == len(kept["label"])
