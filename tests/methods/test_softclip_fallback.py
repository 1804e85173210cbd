"""SoftCLIP (fallback guides): its targets, and when its divergences vanish."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.softclip_fallback import SoftclipFallback


def targets(lab, method, z, anchors):
    return method.draw(z, lab.observe(method, z), anchors)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_targets_are_distributions_and_constants(lab, case, beta):
    z = case("B")
    with torch.no_grad():
        found = targets(lab, lab.build_adapter(SoftclipFallback, beta=beta), z, slice(2, 5))
    own = torch.eye(6, dtype=torch.float64)[2:5].bool()
    for modality in ("image", "text"):
        soft, negatives = found[modality], found[f"{modality}_negatives"]
        for x in (soft, negatives):
            assert bool((x >= 0).all())
            lab.assert_close(x.sum(1), torch.ones(3))
            assert not x.requires_grad
        assert bool((negatives[own] == 0).all())
        assert bool((soft[own] >= 1 - beta).all())
        lab.assert_close(soft[~own].sum(), beta * (3 - (z[modality][2:5] @ z[modality].T / 0.07).softmax(1)[own].sum()))


@given(st.floats(0, 1), st.floats(0, 2), st.sampled_from(["A", "B", "C"]), st.sampled_from([None, 0.01, 1.0]))
def test_never_negative(lab, beta, lam, name, temperature):
    method = lab.build_adapter(SoftclipFallback, beta=beta, lam=lam, target_temperature=temperature)
    assert lab.step_loss(method, lab.oracle_inputs(name)) >= -1e-12


def test_zero_where_the_modalities_agree_with_their_guides(lab, case):
    image = case("B")["image"]
    z = {"image": image, "text": image}
    agreeing = lab.build_adapter(SoftclipFallback, beta=1.0, lam=1.0)
    lab.assert_close(lab.step_loss(agreeing, z), 0.0)
    other = lab.build_adapter(SoftclipFallback, beta=1.0, lam=1.0, target_temperature=0.2)
    assert lab.step_loss(other, z) > 0.1


def test_the_models_own_temperature_is_the_default_of_the_guides(lab, case):
    z = case("A")
    losses = [
        lab.step_loss(lab.build_adapter(SoftclipFallback, temperature=0.2, target_temperature=t), z)
        for t in (None, 0.2)
    ]
    lab.assert_close(*losses)


def test_without_softening_the_negatives_have_their_limit(lab, case):
    z = case("A")
    limit, near = (lab.step_loss(lab.build_adapter(SoftclipFallback, beta=beta, lam=1.0), z) for beta in (0.0, 1e-9))
    lab.assert_close(near, limit, rtol=1e-6)
    assert limit > lab.step_loss(lab.build_adapter(SoftclipFallback, beta=0.0, lam=0.0), z) + 1


def test_guides_get_no_gradient(lab, case, assert_same_gradients):
    """The gradient is that of the loss with the guides given as other tensors of the same value."""
    method, z = lab.build_adapter(SoftclipFallback), case("A")
    guides = {f"{name}_guide": x.detach().clone() for name, x in z.items()}
    losses = lab.step_loss(method, z), lab.sum_of_tiles(method, z, guides)
    assert_same_gradients(*losses, z.values())
