"""DCL: what its oracles in bench/checks/oracles do not say."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.dcl import Dcl


@pytest.mark.parametrize("in_modal", [False, True])
@pytest.mark.parametrize("tau_plus", [0.0, 0.1])
def test_single_precision_at_the_lowest_temperature(lab, case, tau_plus, in_modal):
    config = {"temperature": 0.01, "tau_plus": tau_plus, "in_modal_negatives": in_modal}
    for aligned in (True, False):
        exact = case("C")
        if aligned:
            exact["text"] = exact["image"].detach().clone().requires_grad_()
        single = {name: x.detach().float().requires_grad_() for name, x in exact.items()}
        assert aligned == bool(torch.exp((single["image"] * single["text"]).sum(1) / 0.01).isinf().all())
        found = lab.step_loss(lab.build_adapter(Dcl, **config).float(), single)
        expected = lab.step_loss(lab.build_adapter(Dcl, **config), exact)
        assert found.dtype == torch.float32
        lab.assert_close(found, expected, rtol=1e-3, atol=1e-6)
        for one, other in zip(
            *(torch.autograd.grad(f, list(z.values())) for f, z in ((found, single), (expected, exact))), strict=True
        ):
            lab.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_where_the_clamp_binds_only_the_positive_has_a_gradient(lab):
    # Orthogonal pairs, s_ii = 1 and s_ij = 0: at tau = 0.1 the positives outweigh tau+ of the seven negatives.
    z = {name: torch.eye(8, dtype=torch.float64).requires_grad_() for name in ("image", "text")}
    loss = lab.step_loss(lab.build_adapter(Dcl, tau_plus=0.1, temperature=0.1), z)
    least = 7 * math.exp(-10)
    lab.assert_close(loss, math.log(math.exp(10) + least) - 10, rtol=1e-6)
    loss.backward()
    pull = -least / (math.exp(10) + least) / 0.1 / 8
    for x in z.values():
        lab.assert_close(x.grad, pull * torch.eye(8), rtol=1e-6, atol=1e-18)


@given(st.floats(0, 0.9), st.floats(0, 0.9), st.sampled_from([0.01, 0.1, 1.0]), st.booleans())
def test_a_higher_prior_moves_the_negatives_away_from_the_positive(lab, one, other, temperature, aligned):
    low, high = sorted((one, other))
    z = lab.oracle_inputs("C")
    if not aligned:  # every positive is less similar than the mean of its negatives
        z = {"image": z["image"], "text": -z["text"]}
    losses = [
        lab.step_loss(lab.build_adapter(Dcl, tau_plus=p, temperature=temperature), z).detach() for p in (low, high)
    ]
    falls = losses[1] - losses[0]
    assert falls <= 1e-12 if aligned else falls >= -1e-12


def test_in_modal_negatives_tile_and_differentiate(lab, case, assert_same_gradients):
    method, z = lab.build_adapter(Dcl, temperature=0.5, in_modal_negatives=True), case("B")
    whole, tiled = lab.step_loss(method, z), lab.step_loss(method, z, cuts=(1, 4))
    lab.assert_close(tiled, whole)
    assert_same_gradients(tiled, whole, z.values())
    value = lambda image, text: method.loss({"image": image, "text": text}, {}, slice(0, 6))["debiased"]  # noqa: E731
    assert torch.autograd.gradcheck(value, tuple(z.values()))
