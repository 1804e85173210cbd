"""FastCLIP: its normalisers, their schedule, and the temperature that it learns apart."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from methods.base import spans
from methods.fastclip import Fastclip

FREE = {"epsilon": 0.0, "gamma_min": 1.0}


def at(lab, step, progress, epoch):
    return dataclasses.replace(lab.a_clock(step, epoch=epoch), progress=progress)


def divergence(z, temperature):
    """Mean over both directions of KL(softmax over negatives || uniform)."""
    total = 0.0
    for one, other in (("image", "text"), ("text", "image")):
        s = (z[one] @ z[other].T).detach() / temperature
        p = s.masked_fill(torch.eye(len(s), dtype=torch.bool), -math.inf).softmax(1)
        total += (torch.special.entr(p).sum(1).neg() + math.log(len(s) - 1)).mean() / 2
    return float(total)


def test_the_slope_of_the_temperature_is_that_of_the_objective(lab, case):
    z, values = case("A"), []
    for change in (-1e-6, 1e-6):
        method = lab.build_adapter(Fastclip, rows=4, rho=1.0, **FREE)
        method.rho += change
        values.append(method.monitor(z, lab.observe(method, z))["objective"])
    method = lab.build_adapter(Fastclip, rows=4, rho=1.0, **FREE)
    lab.observe(method, z)
    lab.assert_close(method.slope, (values[1] - values[0]) / 2e-6, rtol=1e-7)


def test_the_temperature_rests_where_the_divergence_from_uniform_is_rho(lab, case):
    z = case("A")
    method = lab.build_adapter(Fastclip, rows=4, rho=divergence(z, 0.07), **FREE)
    lab.observe(method, z)
    lab.assert_close(method.slope, 0.0, atol=1e-15)
    sharper = lab.build_adapter(Fastclip, rows=4, rho=divergence(z, 0.07) + 0.1, **FREE)
    lab.observe(sharper, z)
    sharper.after_step(lab.a_clock())
    assert float(sharper.rho) > -math.log(0.07), "a larger radius asks for a smaller temperature"


def test_the_official_rule_counts_the_softmax_term_twice(lab, case):
    z = case("A")
    slopes = []
    for rule in ("objective", "official"):
        method = lab.build_adapter(Fastclip, rows=4, temperature_rule=rule, **FREE)
        constants = lab.observe(method, z)
        slopes.append(method.slope.clone())
    log_u = (constants["log_u_image"].mean() + constants["log_u_text"].mean()) / 2
    half = divergence(z, 0.07) + log_u  # X/2, because the divergence is X/2 less the mean ln u
    lab.assert_close(slopes[1] - slopes[0], 0.07 * half)


def test_a_constant_added_to_a_row_of_similarities_leaves_its_weights(lab, case):
    z = {name: x.detach() for name, x in case("A").items()}
    shift = torch.tensor([[0.3], [0.0], [0.0], [0.0]], dtype=torch.float64)
    moved = {"image": torch.cat([z["image"], shift], 1), "text": torch.cat([z["text"], torch.ones_like(shift)], 1)}
    weights = []
    for given in (z, moved):
        method = lab.build_adapter(Fastclip, rows=4)
        weights.append(method.draw(given, lab.observe(method, given), slice(0, 4)))
    lab.assert_close(weights[0]["image"], weights[1]["image"])
    assert not torch.allclose(weights[0]["text"], weights[1]["text"])


def test_the_weight_of_new_values_is_that_of_the_pass(lab, case):
    method, z = lab.build_adapter(Fastclip, gamma_min=0.2, gamma_share=0.5), case("A")
    gammas = []
    for step in range(10):  # passes of four steps
        lab.observe(method, z, when=at(lab, step, step / 10, step // 4))
        gammas.append(method.gamma(at(lab, step, step / 10, step // 4)))
        fresh = lab.build_adapter(Fastclip, gamma_min=0.2, gamma_share=0.5)
        fresh.load_state_dict(method.state_dict())  # resumed in the middle of a pass
        assert fresh.gamma(at(lab, step, step / 10, step // 4)) == gammas[-1]
        method = fresh
    second = 0.2 + 0.8 * (1 + math.cos(math.pi * 0.8)) / 2
    assert gammas == pytest.approx([1.0] * 4 + [second] * 4 + [0.2] * 2)


def test_rows_take_their_first_value_whole_and_keep_it_until_their_next_visit(lab, case):
    method, z, late = lab.build_adapter(Fastclip, rows=12, gamma_min=0.2), case("B"), at(lab, 9, 0.9, 3)
    first = lab.observe(method, z, ids=torch.arange(6), when=late)
    assert not method.seen[6:].any()
    assert bool((method.log_u_image[6:] == 0).all())
    before = method.log_u_image.clone()
    turned = {name: x.detach().roll(1, 0) for name, x in z.items()}
    lab.assert_close(first["log_sum_image"] - math.log(5), before[:6])  # whatever gamma is
    again = lab.observe(method, {**turned, "text": z["text"].detach()}, ids=torch.arange(3, 9), when=late)
    new = again["log_sum_image"] - math.log(5)
    lab.assert_close(method.log_u_image[6:9], new[3:])
    lab.assert_close(method.log_u_image[3:6], (0.8 * before[3:6].exp() + 0.2 * new[:3].exp()).log())
    assert torch.equal(method.log_u_image[:3], before[:3])
    assert torch.equal(method.log_u_image[9:], before[9:])


def test_its_temperature_stays_in_range_with_a_third_of_the_rate_where_it_is_small(lab, case):
    method = lab.build_adapter(Fastclip, rows=4, rho=100.0, eta=0.4)
    rates, z = [], case("A")
    for step in range(20):
        lab.observe(method, z)
        rates.append((round(math.exp(-float(method.rho)), 6), method.step_size()))
        method.after_step(lab.a_clock(step))
    assert rates[0] == (0.07, 0.4)
    assert all(rate == (0.4 / 3 if temperature <= 0.03 else 0.4) for temperature, rate in rates)
    lab.assert_close(method.rho, math.log(100))
    soft = lab.build_adapter(Fastclip, rows=4, rho=0.0, eta=4.0)
    lab.observe(soft, z)
    soft.slope.fill_(1.0)
    soft.after_step(lab.a_clock())
    lab.assert_close(soft.rho, 0.0)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.98)])
@pytest.mark.parametrize("epsilon", [1e-8, 0.1])
def test_the_temperature_follows_torchs_adam(lab, betas, epsilon):
    method = lab.build_adapter(Fastclip, rows=4, eta=1e-2, beta1=betas[0], beta2=betas[1], adam_epsilon=epsilon)
    rho = method.rho.clone().requires_grad_()
    adam = torch.optim.Adam([rho], lr=1e-2, betas=betas, eps=epsilon)
    for step, slope in enumerate((0.3, -1.0, 0.05, 0.7)):
        method.slope.fill_(slope)
        rho.grad = method.slope.clone()
        method.after_step(lab.a_clock(step))
        adam.step()
        lab.assert_close(method.rho, rho.detach(), rtol=1e-12)


def test_a_fixed_temperature_is_one_that_is_learned_at_rate_0(lab, case):
    losses = []
    for settings in ({"learnable_scale": False}, {"eta": 0.0}):
        method = lab.build_adapter(Fastclip, rows=4, **settings)
        for step in range(3):
            losses.append(lab.step_loss(method, case("A"), when=at(lab, step, step / 3, step)))
            method.after_step(lab.a_clock(step))
        lab.assert_close(method.rho, -math.log(0.07))
    lab.assert_close(torch.stack(losses[:3]), torch.stack(losses[3:]))


def test_tiles_of_observe_change_nothing(lab, case, monkeypatch):
    states = []
    for size in (1024, 3):
        monkeypatch.setattr("methods.global_loss.spans", lambda total, size=size: spans(total, size))
        method = lab.build_adapter(Fastclip)
        for step in range(2):
            lab.observe(method, case("C"), when=at(lab, step, step / 2, step))
        states.append(method.state_dict())
    for name, x in states[0].items():
        lab.assert_close(states[1][name], x)


def test_aligned_pairs_at_a_small_temperature_keep_their_normalisers_in_single_precision(lab):
    draws = torch.Generator().manual_seed(0)
    image = torch.nn.functional.normalize(torch.randn(8, 16, generator=draws), dim=1)
    method = lab.build_adapter(Fastclip, temperature=0.01).float()
    z = {"image": image.requires_grad_(), "text": image.detach().clone().requires_grad_()}
    loss = lab.step_loss(method, z)
    assert float(method.log_u_image[:8].max()) < -40, "u itself would be lost where exponents are below -87"
    gradients = torch.autograd.grad(loss, list(z.values()))
    assert all(bool(x.isfinite().all()) for x in (loss, *gradients))


@pytest.mark.parametrize(
    "bad",
    [
        {"beta2": 1.0},
        {"adam_epsilon": 0.0},
        {"gamma_min": 0.0},
        {"gamma_share": 0.0},
        {"epsilon": -1.0},
        {"eta": math.inf},
    ],
)
def test_what_is_refused_is_named(bad):
    with pytest.raises(ValueError, match=rf"FastclipConfig\.{next(iter(bad))} = .*, but it must be "):
        Fastclip.Config(**bad)
