"""Linear probes: scikit-learn's optimum and accuracy, CLIP's search, nothing left to chance."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from bench.evaluation import probe
from bench.evaluation.logistic import Problem
from bench.evaluation.probe import STRENGTHS, Labelled, adamw_probe, sweep_probe


def digits(dtype: torch.dtype = torch.float32) -> tuple[Labelled, Labelled, Labelled]:
    """scikit-learn's digits in three parts, noise added so that the penalty matters."""
    images, labels = load_digits(return_X_y=True)
    features = torch.from_numpy(images / 16 + np.random.default_rng(0).normal(scale=0.4, size=images.shape)).to(dtype)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    parts = order[:900], order[900:1200], order[1200:]
    first, second, third = (Labelled(features[part], torch.from_numpy(labels)[part]) for part in parts)
    return first, second, third


@pytest.mark.parametrize("strength", [0.1, 10.0])
def test_the_optimum_is_scikit_learns(strength: float) -> None:
    train, _, test = digits(torch.float64)
    ours = Problem(train.features, train.labels, 10).fit(strength, gap=1e-14)
    theirs = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000).fit(train.features, train.labels)
    np.testing.assert_allclose(ours.weight.T, theirs.coef_, atol=1e-4)
    bias = ours.bias - ours.bias.mean()  # both may move all logits alike
    np.testing.assert_allclose(bias, theirs.intercept_ - theirs.intercept_.mean(), atol=1e-4)
    predicted = theirs.predict(test.features)
    np.testing.assert_array_equal(ours.logits(test.features).argmax(1), predicted)


def test_a_sweep_never_holds_two_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Problem] = weakref.WeakSet()
    most = []

    class Watched(Problem):
        def __init__(self, *given: Any) -> None:
            alive.add(self)
            most.append(len(alive))
            super().__init__(*given)

    monkeypatch.setattr(probe, "Problem", Watched)
    train, validation, _ = digits()
    sweep_probe(train, validation, 10)
    assert most == [1, 1]


def test_imagenet_fits_a_large_gpu_alone() -> None:
    imagenet = {"rows": 1_281_167, "width": 768, "classes": 1000}
    assert probe.fits_in_memory(80 * 10**9, **imagenet)
    assert not probe.fits_in_memory(40 * 10**9, **imagenet)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_sweep_that_a_gpu_has_no_room_for_works_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    train, validation, test = (part.to(torch.device("cuda")) for part in digits())
    beside = sweep_probe(train, validation, 10)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0, 0))
    torch.cuda.empty_cache()
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: torch.cuda.memory_allocated())
    apart = sweep_probe(train, validation, 10)
    assert [one.solution.weight.device.type for one in (beside, apart)] == ["cuda", "cpu"]
    assert (beside.correct(test) == apart.correct(test)).mean() > 0.99


def test_a_start_changes_the_way_not_the_optimum() -> None:
    train, validation, _ = digits(torch.float64)
    problem = Problem(train.features, train.labels, 10)
    cold = problem.fit(1.0, gap=1e-14)
    other = Problem(validation.features, validation.labels, 10).fit(30.0)
    warm = problem.fit(1.0, other, gap=1e-14)
    torch.testing.assert_close(warm.weight, cold.weight, atol=1e-5, rtol=0)
    near = problem.fit(1.0, problem.fit(1.1, gap=1e-14), gap=1e-14)
    assert near.iterations < cold.iterations


def test_the_rate_of_convergence_withstands_badly_scaled_and_mixed_features() -> None:
    """Plain L-BFGS gives up here: axes differ by 1e4 and are rotated."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(-4, 0, 30, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(30, 30, dtype=torch.float64, generator=generator)).Q
    clean = torch.randn(600, 30, dtype=torch.float64, generator=generator)
    labels = (clean @ torch.randn(30, 4, dtype=torch.float64, generator=generator)).argmax(1)
    problem = Problem((clean * scales) @ rotation + 7, labels, 4)
    assert problem.fit(1e-6).iterations < 150


def test_a_class_without_training_rows_is_never_predicted_and_learned_when_it_comes() -> None:
    train, _, test = digits()
    kept = train.select(train.labels != 3)
    few = Problem(kept.features, kept.labels, 10).fit(1.0)
    assert few.bias[3] == -torch.inf
    assert 3 not in few.logits(test.features).argmax(1).tolist()
    full = Problem(train.features, train.labels, 10)
    torch.testing.assert_close(full.fit(1.0, few, 1e-6).weight, full.fit(1.0, gap=1e-6).weight, atol=0.05, rtol=0)


def test_the_sweep_is_clips_and_its_accuracy_scikit_learns() -> None:
    train, validation, test = digits()
    probe = sweep_probe(train, validation, 10)
    assert {STRENGTHS[step] for step in range(0, 97, 16)} <= set(probe.validation)
    assert probe.strength == max(probe.validation, key=lambda strength: (probe.validation[strength], strength))
    place = STRENGTHS.index(probe.strength)
    assert {STRENGTHS[place - 1], STRENGTHS[place + 1]} <= set(probe.validation)  # down to the finest step
    assert STRENGTHS[0] == 1e-6
    assert STRENGTHS[-1] == 1e6
    both = train + validation
    theirs = LogisticRegression(C=1 / probe.strength, max_iter=1000).fit(both.features, both.labels)
    assert probe.correct(test).mean() == pytest.approx(theirs.score(test.features, test.labels), abs=0.002)
    weak = LogisticRegression(C=1e6, max_iter=1000).fit(both.features, both.labels)
    assert probe.correct(test).mean() > weak.score(test.features, test.labels)  # the sweep was worth its while


def test_the_sweeps_validation_numbers_are_those_of_the_strength() -> None:
    train, validation, _ = digits()
    found = sweep_probe(train, validation, 10).validation
    for strength in (1e-2, 1.0, 100.0):
        theirs = LogisticRegression(C=1 / strength, max_iter=5000).fit(train.features, train.labels)
        assert found[strength] == pytest.approx(theirs.score(validation.features, validation.labels), abs=0.03)


def test_the_probe_gives_the_same_bytes_twice() -> None:
    train, validation, _ = digits()
    once, again = (sweep_probe(train, validation, 10).solution for _ in range(2))
    assert once.weight.numpy().tobytes() == again.weight.numpy().tobytes()
    assert once.bias.numpy().tobytes() == again.bias.numpy().tobytes()


def test_a_collapsed_model_predicts_the_commonest_class() -> None:
    labels = torch.tensor([0] * 10 + [1] * 30 + [2] * 20)
    flat = Labelled(torch.full((60, 8), 0.3), labels)
    assert sweep_probe(flat, flat, 3).correct(flat).mean() == pytest.approx(0.5)


def test_broken_or_unfitting_features_are_refused() -> None:
    with pytest.raises(FloatingPointError):
        Labelled(torch.tensor([[float("nan")]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="do not fit"):
        Labelled(torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64))


def test_the_adamw_probe_is_cyclips() -> None:
    """Against its definition in torch's own layers, over two epochs with the same draws."""
    train, _, test = digits()
    generator = torch.Generator().manual_seed(5)
    layer = torch.nn.Linear(64, 10)
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            parameter.uniform_(-1 / 8, 1 / 8, generator=generator)
    groups = [{"params": [layer.weight], "weight_decay": 0.01}, {"params": [layer.bias], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.005)
    steps = 2 * 57  # 900 rows in batches of 16
    for step in range(steps):
        if step % 57 == 0:
            order = torch.randperm(900, generator=generator)
        rows = order[16 * (step % 57) :][:16]
        for group in optimizer.param_groups:
            group["lr"] = 0.005 * 0.5 * (1 + np.cos(np.pi * step / steps))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layer(train.features[rows]), train.labels[rows]).backward()
        optimizer.step()
    expected = layer(test.features).argmax(1) == test.labels
    np.testing.assert_array_equal(adamw_probe(train, test, 10, seed=5, epochs=2), expected)
    assert expected.float().mean() > 0.5
