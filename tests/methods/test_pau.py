"""PAU: certainties and what they are compared with, prototypes apart, and steps that leave the comparison out.

Its values: bench/checks/oracles/finetuning.py.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.clip import Clip
from methods.pau import Pau, PauConfig


def cone(total, dim=6, spread=0.7, seed=0):
    """Rows around one direction, so that other pairs have a positive cosine."""
    draws = torch.Generator().manual_seed(seed)
    centre = torch.ones(dim, dtype=torch.float64) / math.sqrt(dim)
    noise = spread * torch.randn(2, total, dim, generator=draws, dtype=torch.float64)
    return {
        key: F.normalize(centre + x, dim=1).requires_grad_() for key, x in zip(("image", "text"), noise, strict=True)
    }


def made(lab, z, **config):
    return lab.build_adapter(Pau, dim=z["image"].shape[1], **config)


def terms(lab, method, z, used=None):
    observed = lab.observe(method, z)
    if used is not None:
        observed["used"] = torch.tensor(used)
    return method.loss(z, observed, slice(0, len(z["image"])))


def printed(z, prototypes, scale, tau):
    """U with loops over plain numbers."""
    s = (z["image"] @ z["text"].T).tolist()
    total, count, loss = len(s), len(prototypes["text"]), 0.0
    sides = ((z["image"], "text", s), (z["text"], "image", [list(x) for x in zip(*s, strict=True)]))
    for rows, other, cosines in sides:
        near = F.normalize(prototypes[other], dim=1) @ rows.T
        masses = [sum(math.exp(scale * float(x) / tau) for x in near[:, i]) for i in range(total)]
        certain = [e / (count + e) for e in masses]
        others = [sum(x for j, x in enumerate(row) if j != i) for i, row in enumerate(cosines)]
        ratio = sum(certain) / sum(others)
        loss += sum((k - o * ratio) ** 2 for k, o in zip(certain, others, strict=True)) / (2 * total)
    return loss


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 7), st.integers(1, 4), st.floats(0.5, 10), st.floats(0.05, 1), st.integers(0, 9))
def test_the_formula_as_printed(lab, total, count, tau, temperature, seed):
    z = {key: x.detach() for key, x in cone(total, spread=0.3, seed=seed).items()}
    config = {"prototypes": count, "certainty_temperature": tau, "temperature": temperature}
    method = made(lab, z, **config, uncertainty_weight=2.0, variance_weight=0.5)
    prototypes = {key: method.get_parameter(f"{key}_prototypes").detach() for key in ("image", "text")}
    found = terms(lab, method, z)
    lab.assert_close(found["uncertainty"], 2 * printed(z, prototypes, 1 / temperature, tau), atol=1e-12)
    apart = 0.0
    for rows in prototypes.values():
        unit = F.normalize(rows, dim=1)
        apart += sum(float(unit[i] @ unit[j]) ** 2 for i in range(count) for j in range(count) if i != j)
    lab.assert_close(found["variance"], 0.5 * apart / (temperature * count) ** 2)
    lab.assert_close(found["contrastive"], lab.step_loss(lab.build_adapter(Clip, temperature=temperature), z))


def test_prototypes_that_are_orthogonal_or_alone_cost_nothing(lab):
    z = cone(4)
    assert float(terms(lab, made(lab, z, prototypes=1), z)["variance"].detach()) == 0
    method = made(lab, z, prototypes=3)
    with torch.no_grad():
        for name in ("image", "text"):
            method.get_parameter(f"{name}_prototypes").copy_(5 * torch.eye(3, 6))
    assert float(terms(lab, method, z)["variance"].detach()) == 0


def test_equal_rows_cost_nothing(lab):
    z = {key: x[:1].detach().expand(5, -1) for key, x in cone(1).items()}
    lab.assert_close(terms(lab, made(lab, z), z)["uncertainty"], 0.0)


def test_at_a_large_temperature_every_row_is_half_certain(lab):
    z = {key: x.detach() for key, x in cone(6, spread=0.2).items()}
    method = made(lab, z, certainty_temperature=1e9, uncertainty_weight=1.0)
    s = z["image"] @ z["text"].T
    variances = []
    for cosines in (s, s.T):
        others = cosines.sum(1) - cosines.diagonal()
        variances.append((others / others.mean()).var(unbiased=False))
    lab.assert_close(terms(lab, method, z)["uncertainty"], sum(variances) / 8, rtol=1e-6)
    for certainty in method.diagnostics(z, {})[0].series.values():
        lab.assert_close(certainty, torch.full((6,), 0.5), rtol=1e-6)


def test_images_meet_the_prototypes_of_texts(lab):
    z, method = cone(4), made(lab, cone(4), prototypes=2)
    with torch.no_grad():
        method.text_prototypes.copy_(z["image"][[1, 1]])
        method.image_prototypes.copy_(-z["text"][[2, 2]])
    series = method.diagnostics({key: x.detach() for key, x in z.items()}, {})[0].series
    assert int(series["images"].argmax()) == 1
    assert int(series["texts"].argmin()) == 2
    lab.assert_close(series["images"][1], 1 / (1 + math.exp(-1 / (0.07 * 5))), rtol=1e-9)


def test_a_small_mean_leaves_the_comparison_out(lab):
    """Two pairs: the mean of the two cosines of other pairs is what an angle says."""
    eye = torch.eye(2, dtype=torch.float64)
    for mean, used in ((0.049, False), (0.051, True), (-0.3, False)):
        turned = torch.tensor([[mean, math.sqrt(1 - mean**2)], [math.sqrt(1 - mean**2), mean]], dtype=torch.float64)
        z = {"image": eye.requires_grad_(), "text": turned.flip(0)}
        method = made(lab, z, prototypes=2)
        observed = lab.observe(method, z)
        lab.assert_close(observed["mean_other"], mean)
        assert bool(observed["used"]) is used
        assert bool(terms(lab, method, z)["uncertainty"] != 0) is used
        assert bool(lab.observe(made(lab, z, least_mean=None), z)["used"])
        assert bool(lab.observe(made(lab, z, least_mean=0.0), z)["used"]) is (mean > 0)


@pytest.mark.parametrize("least", [None, 0.05])
def test_a_mean_of_nothing_has_a_gradient(lab, least):
    axes = torch.eye(8, dtype=torch.float64)
    z = {"image": axes[:4].clone().requires_grad_(), "text": axes[4:].clone().requires_grad_()}
    method = made(lab, z, least_mean=least)
    loss = sum(terms(lab, method, z).values())
    gradients = torch.autograd.grad(loss, [*z.values(), *method.parameters()])
    assert all(bool(x.isfinite().all()) for x in (loss.detach(), *gradients))


def test_a_step_without_the_comparison_still_keeps_prototypes_apart(lab):
    z, method = cone(5), made(lab, cone(5))
    found = terms(lab, method, z, used=False)
    assert float(found["uncertainty"].detach()) == 0
    (gradient,) = torch.autograd.grad(sum(found.values()), [method.image_prototypes])
    assert bool((gradient != 0).any())


def test_prototypes_start_by_the_seed_within_xaviers_bound(lab):
    one, same, other = (lab.build_adapter(Pau, dim=24, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.image_prototypes, same.image_prototypes)
    assert not torch.equal(one.image_prototypes, other.image_prototypes)
    assert not torch.equal(one.image_prototypes, one.text_prototypes)
    bound = math.sqrt(6 / (8 + 24))
    assert 0.9 * bound < float(one.text_prototypes.detach().abs().max()) <= bound
    assert one.text_prototypes.shape == (8, 24)


def test_symmetric_in_modalities_with_their_prototypes_and_in_the_order_of_pairs(lab):
    z = {key: x.detach() for key, x in cone(5).items()}
    method = made(lab, z)
    loss = lab.step_loss(method, z)
    order = torch.tensor([3, 1, 0, 2, 4])
    lab.assert_close(lab.step_loss(method, {key: x[order] for key, x in z.items()}, cuts=(2,)), loss)
    exchanged = made(lab, z)
    with torch.no_grad():
        exchanged.image_prototypes.copy_(method.text_prototypes)
        exchanged.text_prototypes.copy_(method.image_prototypes)
    lab.assert_close(lab.step_loss(exchanged, {"image": z["text"], "text": z["image"]}), loss)


@pytest.mark.parametrize(
    "bad",
    [
        {"prototypes": 0},
        {"certainty_temperature": 0.0},
        {"uncertainty_weight": -1.0},
        {"variance_weight": math.inf},
        {"least_mean": 1.0},
    ],
)
def test_values_without_meaning_are_refused(bad):
    (field,) = bad
    with pytest.raises(ValueError, match=rf"Config\.{field} = "):
        PauConfig(**bad)
