"""CRCL: its identities, its labels between visits, degenerate batches. The official code's values are in `oracles`."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from methods.base import HyperparameterError
from methods.clip import Clip
from methods.crcl import Crcl
from methods.protocol import Clock

MAIN = Clock(step=5, phase="train", progress=0.5, epoch=1)
WHOLE = slice(0, 16)


def shares(z, temperature=0.05):
    s = z["image"] @ z["text"].T / temperature
    return s.softmax(1), s.T.softmax(1)


def with_label(lab, z, label, **config):
    """The terms of a method, given labels."""
    method = lab.build_adapter(Crcl, **config)
    return method.loss(z, {"label": torch.full((len(z["image"]),), label, dtype=torch.float64)}, WHOLE)


def test_labels_of_one_give_twice_clip_and_the_sum_of_the_tangents_of_all_negatives(lab, z):
    terms = with_label(lab, z, 1.0, complementary_weight=3.0)
    clip = lab.step_loss(lab.build_adapter(Clip, temperature=0.05), z)
    lab.assert_close(terms["active"], 2 * clip)
    negatives = sum((p.tan().sum() - p.diagonal().tan().sum()) / 16 for p in shares(z))
    lab.assert_close(terms["complementary"], 3 * negatives)


def test_labels_of_zero_attract_nothing_and_bound_the_loss(lab, z):
    terms = with_label(lab, z, 0.0, complementary_weight=1.0)
    assert terms["active"] == 0
    expected = sum((1 - p.diagonal().tan() / p.tan().sum(1)).mean() for p in shares(z))
    lab.assert_close(terms["complementary"], expected)
    assert terms["complementary"] < 2


def test_exchanging_the_modalities_changes_nothing(lab, z):
    swapped = {"image": z["text"], "text": z["image"]}
    labels = {"label": torch.linspace(0, 1, 16, dtype=torch.float64)}
    method = lab.build_adapter(Crcl)
    for name, term in method.loss(z, labels, WHOLE).items():
        lab.assert_close(method.loss(swapped, labels, WHOLE)[name], term)


def test_warm_steps_use_labels_of_one_and_keep_the_agreement(lab, z):
    method = lab.build_adapter(Crcl, rows=20)
    ids = torch.arange(16).flip(0)
    observed = lab.observe(method, z, ids=ids)
    assert torch.equal(observed["label"], torch.ones(16, dtype=torch.float64))
    agreement = sum(p.diagonal() for p in shares(z)).detach() / 2
    lab.assert_close(method.label[ids], agreement)
    assert float(agreement.min()) < method.config.threshold, "what is kept is not cut off"
    assert torch.equal(method.label[16:], torch.ones(4, dtype=torch.float64)), "rows never visited"
    lab.assert_close(method.monitor(z, observed)["mean_label"], 1.0)


@pytest.mark.parametrize("alpha", [0.0, 0.8, 1.0])
def test_alpha_weighs_the_old_label_and_small_ones_become_zero(lab, z, alpha):
    method = lab.build_adapter(Crcl, rows=16, alpha=alpha)
    old = torch.linspace(0, 1, 16, dtype=torch.float64)
    method.label.copy_(old)
    observed = lab.observe(method, z, when=MAIN)
    mixed = alpha * old + (1 - alpha) * sum(p.diagonal() for p in shares(z)) / 2
    lab.assert_close(observed["label"], torch.where(mixed < 0.1, 0.0, mixed))
    assert torch.equal(method.label, observed["label"])
    assert 0 in observed["label"]


def test_alpha_one_never_leaves_labels_of_one(lab, z):
    method = lab.build_adapter(Crcl, rows=16, alpha=1.0, warm=0.0)
    for step in range(3):
        lab.observe(method, z, ids=torch.arange(16).roll(step), when=MAIN)
    assert torch.equal(method.label, torch.ones(16, dtype=torch.float64))


def test_equal_scores_share_alike(lab, z):
    equal = {name: x[:1].expand(16, -1) for name, x in z.items()}
    method = lab.build_adapter(Crcl, rows=16, alpha=0.0)
    observed = lab.observe(method, equal, when=MAIN)
    assert torch.equal(observed["label"], torch.zeros(16, dtype=torch.float64)), "a share of 1/16 is below 0.1"
    terms = method.loss(equal, observed, WHOLE)
    lab.assert_close(terms["complementary"] / method.config.complementary_weight, torch.tensor(2 * 15 / 16))


def test_negatives_without_any_mass_give_finite_gradients(lab):
    """At temperature 0.001 the shares of the negatives of opposite pairs underflow, in the logarithm they do not."""
    image = torch.eye(2, 4, dtype=torch.float32).requires_grad_()
    z = {"image": image, "text": torch.eye(2, 4).requires_grad_()}
    method = Crcl(Crcl.Config(temperature=0.001), dataclasses.replace(lab.build_adapter(Crcl).facts, rows=2))
    loss = torch.stack(list(method.loss(z, {"label": torch.tensor([0.0, 1.0])}, slice(0, 2)).values())).sum()
    loss.backward()
    assert float(loss.detach()) == 0
    assert bool(image.grad.isfinite().all())


def test_further_stages_are_refused():
    with pytest.raises(HyperparameterError, match=r"stages = 4, but it must be 1: no phase can start the towers"):
        Crcl.Config(stages=4)
