"""iSogCLR: identities of its temperatures."""

from __future__ import annotations

import math

import pytest
import torch

from methods.isogclr import Isogclr
from methods.sogclr import Sogclr


def test_temperatures_that_stand_still_give_sogclr_step_by_step(lab, case, assert_same_gradients):
    still, plain = (
        lab.build_adapter(Isogclr, eta=0.0, temperature_init=0.02),
        lab.build_adapter(Sogclr, temperature=0.02),
    )
    for step, name in enumerate(("C", "C", "C")):
        z = {key: x.detach().roll(step, 0).requires_grad_() for key, x in case(name).items()}
        losses = [lab.step_loss(method, z, when=lab.a_clock(step)) for method in (still, plain)]
        lab.assert_close(*losses)
        assert_same_gradients(*losses, z.values())


def divergences(z, temperature):
    """KL(p_i || uniform over the B - 1 others), [B], of image anchors and of text anchors."""
    found = {}
    for one, other in (("image", "text"), ("text", "image")):
        s = (z[one] @ z[other].T).detach() / temperature
        p = s.masked_fill(torch.eye(len(s), dtype=torch.bool), -math.inf).softmax(1)
        found[one] = torch.special.entr(p).sum(1).neg() + math.log(len(s) - 1)
    return found


def test_the_slope_is_rho_less_the_divergence_from_uniform_weights(lab, case):
    z, settings = case("A"), {"gamma": 1.0, "floor": 0.0, "temperature_init": 0.05, "beta": 0.5}
    method = lab.build_adapter(Isogclr, rows=4, rho=1.0, eta=1e-4, **settings)
    lab.step_loss(method, z)
    for name, divergence in divergences(z, 0.05).items():
        lab.assert_close(getattr(method, f"momentum_{name}"), 0.5 * (1.0 - divergence))
        lab.assert_close(getattr(method, f"tau_{name}"), (0.05 - 1e-4 * 0.5 * (1.0 - divergence)).clamp(max=0.05))


def test_a_temperature_rests_where_the_divergence_is_rho(lab, case):
    z = case("A")
    rho = float(divergences(z, 0.05)["image"][2])
    settings = {"gamma": 1.0, "floor": 0.0, "temperature_init": 0.05, "temperature_max": 1.0}
    method = lab.build_adapter(Isogclr, rows=4, rho=rho, eta=0.01, **settings)
    for step in range(3):
        lab.step_loss(method, z, when=lab.a_clock(step))
    lab.assert_close(method.tau_image[2], 0.05)
    assert float((method.tau_image[[0, 1, 3]] - 0.05).abs().min()) > 1e-5


def test_without_floor_small_batches_only_lower_temperatures(lab, case):
    method = lab.build_adapter(Isogclr, rows=4, gamma=1.0, floor=0.0)  # KL is at most ln 3, rho is 8
    before = method.tau_image.clone()
    for step in range(12):
        lab.step_loss(method, case("A"), when=lab.a_clock(step))
        assert bool(((method.tau_image < before) | (before == 0.005)).all())
        before = method.tau_image.clone()
    assert torch.equal(before, torch.full_like(before, 0.005))


def test_the_official_floor_raises_temperatures_of_easy_anchors(lab, case):
    easy = lab.build_adapter(Isogclr)
    lab.step_loss(easy, case("C"))
    lab.assert_close(easy.tau_image[:8], torch.full((8,), 0.01 + 1e-3 * 0.9 * 5, dtype=torch.float64))
    assert bool((easy.tau_image[8:] == 0.01).all())


def test_temperatures_stay_in_their_range(lab, case):
    method = lab.build_adapter(Isogclr, eta=1.0)
    ends = set()
    for step in range(6):
        z = case("C")
        lab.step_loss(method, {"image": z["image"], "text": z["text"].roll(step % 2, 0)}, when=lab.a_clock(step))
        tau = torch.cat([method.tau_image[:8], method.tau_text[:8]])
        assert bool(((tau >= 0.005) & (tau <= 0.05)).all())
        ends |= set(tau.tolist())
    assert {0.005, 0.05} <= ends


def test_shows_temperatures_of_rows_that_were_seen(lab, case):
    method, ids = lab.build_adapter(Isogclr, rho=1.0, temperature_init=0.03), torch.tensor([9, 4, 30, 7])
    observed = lab.observe(method, case("A"), ids=ids)
    (shown,) = method.diagnostics(case("A"), observed)
    assert torch.equal(shown.series["images"], method.tau_image[ids.sort().values])
    assert torch.equal(shown.series["texts"], method.tau_text[ids.sort().values])
    assert not torch.equal(shown.series["images"], shown.series["texts"])


def test_monitors_the_robust_objective_whose_slope_moves_temperatures(lab, case):
    objective, z = [], case("A")
    settings = {"gamma": 1.0, "floor": 0.0, "rho": 1.0, "temperature_max": 1.0}
    for temperature in (0.05 - 1e-6, 0.05, 0.05 + 1e-6):
        method = lab.build_adapter(Isogclr, rows=4, temperature_init=temperature, **settings)
        objective.append(method.monitor(z, lab.observe(method, z))["robust_objective"])
    slopes = [1.0 - x for x in divergences(z, 0.05).values()]
    lab.assert_close((objective[2] - objective[0]) / 2e-6, (slopes[0] + slopes[1]).mean(), rtol=1e-5)


@pytest.mark.parametrize("bad", [{"temperature_init": 0.06}, {"temperature_init": 0.001}, {"temperature_max": 0.004}])
def test_temperatures_start_in_their_range(bad):
    with pytest.raises(ValueError, match=rf"IsogclrConfig\.{next(iter(bad))} = .*, but it must be "):
        Isogclr.Config(**bad)
