"""The probe's solver against conditions of optimality, SciPy's optimiser, and changes of the features that keep it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from bench.evaluation.logistic import Problem, Solution
from bench.evaluation.probe import STRENGTHS, Labelled, adamw_probe, fits_in_memory, sweep_probe

few = settings(max_examples=12, deadline=None)


def rows(seed: int, n: int = 60, width: int = 5, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Features in fp64 around a centre for each class."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    centres = torch.randn(classes, width, generator=draws, dtype=torch.float64)
    return centres[labels] + torch.randn(n, width, generator=draws, dtype=torch.float64), labels


def value(features: torch.Tensor, labels: torch.Tensor, strength: float, found: Solution) -> float:
    """The objective as the module's first lines print it."""
    loss = F.cross_entropy(features @ found.weight + found.bias, labels)
    return float(loss + strength / (2 * len(labels)) * found.weight.square().sum())


@few
@given(st.integers(0, 999), st.sampled_from([1e-3, 0.1, 1.0, 30.0, 1e4]))
def test_no_way_leads_down_from_the_optimum(seed: int, strength: float) -> None:
    features, labels = rows(seed)
    found = Problem(features, labels, 3).fit(strength, gap=1e-14)
    weight, bias = found.weight.clone().requires_grad_(), found.bias.clone().requires_grad_()
    loss = F.cross_entropy(features @ weight + bias, labels) + strength / 120 * weight.square().sum()
    for gradient in torch.autograd.grad(loss, (weight, bias)):
        assert gradient.abs().max() < 1e-5 * (1 + strength)


@pytest.mark.parametrize("strength", [0.05, 2.0])
def test_scipy_finds_the_same_optimum(strength: float) -> None:
    features, labels = rows(4)

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.tensor(theta).reshape(6, 3).requires_grad_()
        loss = F.cross_entropy(features @ x[:5] + x[5], labels) + strength / 120 * x[:5].square().sum()
        (gradient,) = torch.autograd.grad(loss, x)
        return float(loss.detach()), gradient.ravel().numpy()

    best = minimize(objective, np.zeros(18), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
    found = Problem(features, labels, 3).fit(strength, gap=1e-14)
    assert value(features, labels, strength, found) == pytest.approx(best.fun, abs=1e-9)
    weight = torch.tensor(best.x).reshape(6, 3)[:5]
    assert torch.allclose(found.weight, weight, atol=1e-3)


@few
@given(st.integers(0, 999))
def test_turning_and_moving_features_changes_no_prediction(seed: int) -> None:
    features, labels = rows(seed)
    turn, _ = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    moved = features @ turn + 7.0
    plain, other = (Problem(x, labels, 3).fit(0.5, gap=1e-14) for x in (features, moved))
    logits = plain.logits(features) - plain.logits(features).mean(1, keepdim=True)
    there = other.logits(moved) - other.logits(moved).mean(1, keepdim=True)
    assert torch.allclose(logits, there, atol=1e-4)
    assert torch.allclose(turn @ other.weight, plain.weight, atol=1e-4)


def test_an_infinite_penalty_leaves_the_frequencies() -> None:
    features, _ = rows(0)
    labels = torch.tensor([0] * 30 + [1] * 20 + [2] * 10)
    found = Problem(features, labels, 3).fit(1e9)
    assert found.weight.abs().max() < 1e-6
    assert torch.allclose(found.bias.softmax(0), torch.tensor([30, 20, 10], dtype=torch.float64) / 60, atol=1e-5)


def test_weaker_penalties_fit_better_and_weigh_more() -> None:
    features, labels = rows(2)
    fits = [Problem(features, labels, 3).fit(strength) for strength in (100.0, 10.0, 1.0, 0.1)]
    losses = [float(F.cross_entropy(fit.logits(features), labels)) for fit in fits]
    sizes = [float(fit.weight.norm()) for fit in fits]
    assert losses == sorted(losses, reverse=True)
    assert sizes == sorted(sizes)


def test_a_point_between_two_solutions_lies_on_the_line() -> None:
    one = Solution(torch.zeros(2, 3), torch.zeros(3), 4)
    other = Solution(torch.full((2, 3), 2.0), torch.arange(3.0), 9)
    for share in (0.0, 0.25, 1.0, 1.5):
        point = one.towards(other, share)
        assert torch.equal(point.weight, share * other.weight)
        assert torch.equal(point.bias, share * other.bias)
    features = torch.arange(8.0).reshape(4, 2)
    assert torch.equal(other.logits(features), features @ other.weight + other.bias)


def test_a_fit_from_its_own_solution_ends_where_it_is() -> None:
    features, labels = rows(6)
    problem = Problem(features, labels, 3)
    first = problem.fit(0.3, gap=1e-12)
    again = problem.fit(0.3, start=first, gap=1e-8)
    assert first.iterations > 0
    assert again.iterations == 0
    assert torch.allclose(again.weight, first.weight)
    assert torch.allclose(again.bias, first.bias)


def test_strengths_are_96_steps_of_an_eighth_decade() -> None:
    assert len(STRENGTHS) == 97
    assert (STRENGTHS[0], STRENGTHS[48], STRENGTHS[96]) == pytest.approx((1e-6, 1.0, 1e6))
    assert np.allclose(np.diff(np.log10(STRENGTHS)), 1 / 8)


def test_of_equally_good_strengths_the_strongest_is_taken_and_both_parts_train() -> None:
    train, validation = (
        Labelled(torch.eye(2).repeat(5, 1), torch.arange(2).repeat(5)),
        Labelled(torch.eye(2), torch.arange(2)),
    )
    probe = sweep_probe(train, validation, 2)
    assert probe.validation[probe.strength] == 1.0
    assert all(accuracy < 1.0 for strength, accuracy in probe.validation.items() if strength > probe.strength)
    both = train + validation
    direct = Problem(both.features, both.labels, 2).fit(probe.strength)
    assert torch.allclose(probe.solution.weight, direct.weight, atol=1e-2 * float(direct.weight.abs().max()))
    assert probe.correct(validation).tolist() == [True, True]


def test_selected_and_joined_rows_keep_their_labels() -> None:
    split = Labelled(torch.arange(6.0).reshape(3, 2), torch.tensor([2, 0, 1]))
    some = split.select(torch.tensor([True, False, True]))
    assert (some.features.tolist(), some.labels.tolist()) == ([[0.0, 1.0], [4.0, 5.0]], [2, 1])
    assert (split + some).labels.tolist() == [2, 0, 1, 2, 1]


def test_a_sweep_needs_room_for_its_copies() -> None:
    small = fits_in_memory(10**9, 1000, 64, 10)
    assert small
    assert not fits_in_memory(10**9, 10**7, 512, 1000)
    least = next(power for power in range(10, 60) if fits_in_memory(2**power, 10**5, 512, 1000))
    assert 2**least >= 4 * 10**5 * (512 + 1000)  # features and logits alone, in single precision
    assert not fits_in_memory(2 ** (least - 1), 10**5, 512, 1000)


def test_the_adamw_probe_learns_what_can_be_told_apart_and_repeats_itself() -> None:
    features, labels = rows(8, n=90)
    train = Labelled((3 * features).float(), labels)
    first, again, other = (adamw_probe(train, train, 3, seed=seed, epochs=60) for seed in (0, 0, 1))
    assert first.dtype == np.bool_
    assert first.mean() > 0.8
    assert (first == again).all()
    assert other.mean() > 0.8
