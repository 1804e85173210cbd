"""RINCE: its identities, its range in single precision, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch

from methods.clip import Clip
from methods.rince import Rince, RinceConfig


def test_q_one_is_the_symmetric_loss(lab, case):
    z, lam = case("B"), 0.3
    exponentials = (z["image"] @ z["text"].T / 0.5).exp()
    positive = exponentials.diagonal()
    negatives = ((exponentials.sum(1) - positive) + (exponentials.sum(0) - positive)) / 2
    found = lab.step_loss(lab.build_adapter(Rince, q=1.0, lam=lam, temperature=0.5), z)
    lab.assert_close(found, (-(1 - lam) * positive + lam * negatives).mean())


def test_gradient_of_an_anchor_weighs_the_positive_and_the_softmax(lab, case):
    z, q, lam = case("A"), 0.4, 0.05
    terms = lab.build_adapter(Rince, q=q, lam=lam, temperature=0.5).loss(z, {}, slice(0, 4))
    (found,) = torch.autograd.grad(2 * terms["image_anchored"], z["image"])
    logits = z["image"] @ z["text"].T / 0.5
    pull = (q * logits.diagonal()).exp()[:, None] * z["text"]
    push = (lam * logits.exp().sum(1)).pow(q)[:, None] * (logits.softmax(1) @ z["text"])
    lab.assert_close(found, (push - pull).detach() / 0.5 / 4)


@pytest.mark.parametrize("lam", [0.001, 0.01, 1.0, 5.0])
def test_q_towards_zero_has_the_gradient_of_clip(lab, case, lam, assert_same_gradients):
    z = case("C")
    rince = lab.step_loss(lab.build_adapter(Rince, q=1e-6, lam=lam, temperature=0.5), z)
    clip = lab.step_loss(lab.build_adapter(Clip, temperature=0.5, learnable_scale=False), z)
    assert_same_gradients(rince, clip, z.values(), rtol=0, atol=2e-6)


def test_single_precision_where_the_exponentials_themselves_overflow(lab, case):
    config = {"q": 0.1, "temperature": 0.1 / 80}
    z = case("C")
    z["text"] = z["image"].detach().clone().requires_grad_()
    single = {name: x.detach().float().requires_grad_() for name, x in z.items()}
    assert torch.tensor(1 / config["temperature"]).exp().isinf()
    found = lab.step_loss(lab.build_adapter(Rince, **config).float(), single)
    lab.assert_close(found, lab.step_loss(lab.build_adapter(Rince, **config), z), rtol=1e-3)
    assert all(bool(x.isfinite().all()) for x in torch.autograd.grad(found, list(single.values())))


def test_powers_that_overflow_are_refused():
    RinceConfig(q=0.8, temperature=0.01)
    with pytest.raises(ValueError, match=r"Config\.q = 0\.81, but it must be <= 80 \* temperature = 0\.8"):
        RinceConfig(q=0.81, temperature=0.01)


def test_in_modal_negatives_tile(lab, case, assert_same_gradients):
    method, z = lab.build_adapter(Rince, temperature=0.5, in_modal_negatives=True), case("B")
    whole, tiled = lab.step_loss(method, z), lab.step_loss(method, z, cuts=(1, 4))
    lab.assert_close(tiled, whole)
    assert_same_gradients(tiled, whole, z.values())


def test_grows_without_bound_with_the_scale_once_pairs_align(lab, case):
    """Why no learnable scale is offered: it would run to its clamp."""
    losses = [lab.step_loss(lab.build_adapter(Rince, temperature=1 / scale), case("C")) for scale in (1.0, 10.0, 100.0)]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < -math.exp(10)
