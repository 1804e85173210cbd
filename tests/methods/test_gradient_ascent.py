"""Gradient ascent: who ascends, and where that stops; its values: bench/checks/oracles/losses.py."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from methods.clip import Clip
from methods.forget import confidence_odds, forget_set, log_odds
from methods.gradient_ascent import GradientAscent


def step(method, lab, z):
    observed = lab.observe(method, z)
    return observed, method.loss(z, observed, slice(0, len(z["image"])))


def restricted(z, rows, scale):
    """CLIP's loss of these anchors against all candidates."""
    logits = scale * z["image"] @ z["text"].T
    return (F.cross_entropy(logits[rows], rows) + F.cross_entropy(logits.T[rows], rows)) / 2


def test_the_forgotten_ascend_clip_and_the_others_descend_it(lab, case):
    z = {name: case("N")[name] for name in ("image", "text")}
    forgotten, kept = torch.tensor([2, 5]), torch.tensor([0, 1, 3, 4, 6, 7])
    method = lab.build_adapter(GradientAscent, forget=0.25, smoothing=0.0, limit=None, forget_weight=0.5)
    observed, terms = step(method, lab, z)
    assert observed["forget"].nonzero().flatten().tolist() == [2, 5]  # the two mismatched pairs
    scale = method.scale().detach()
    for name, rows, weight in (("forget", forgotten, -0.5), ("retain", kept, 1.0)):
        found = torch.autograd.grad(terms[name], list(z.values()), retain_graph=True)
        expected = torch.autograd.grad(weight * restricted(z, rows, scale), list(z.values()))
        for one, other in zip(found, expected, strict=True):
            lab.assert_close(one, other)


def test_the_ascent_stops_at_its_limit(lab, case):
    z, plain, forgotten = case("N"), {}, torch.tensor([2, 5])
    reached = float(restricted(z, forgotten, 1 / 0.07).detach())  # 9.66, more than 2 ln 8
    for limit in (None, 2.0, reached / math.log(8) + 0.01):
        method = lab.build_adapter(GradientAscent, forget=0.25, limit=limit)
        _, plain[limit] = step(method, lab, z)
    open_gradient, closed_gradient, far_gradient = (
        torch.autograd.grad(terms["forget"], z["image"])[0].norm() for terms in plain.values()
    )
    lab.assert_close(plain[2.0]["forget"], -2 * math.log(8))
    assert float(closed_gradient) == 0
    lab.assert_close(far_gradient, open_gradient)
    lab.assert_close(plain[2.0]["retain"], plain[None]["retain"])
    assert float(open_gradient) > 1


@pytest.mark.parametrize("limit", [None, 2.0])
def test_tiles_agree_also_where_the_ascent_stopped(lab, case, limit):
    z, method = case("N"), lab.build_adapter(GradientAscent, forget=0.25, limit=limit)
    lab.assert_close(lab.step_loss(method, z, cuts=(3, 6)), lab.step_loss(method, z))


def test_nothing_to_forget_is_no_ascent(lab, case):
    z = case("N")
    _, terms = step(lab.build_adapter(GradientAscent, forget=0.1), lab, z)  # floor(0.8) rows
    assert float(terms["forget"].detach()) == 0
    assert bool(torch.autograd.grad(sum(terms.values()), z["image"])[0].isfinite().all())


def test_confidence_survives_where_its_exponential_is_zero():
    one = F.normalize(torch.randn(6, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    z = {"image": one, "text": torch.cat([-one[:1] + 0.01 * one[1:2], -one[1:2], one[2:]])}
    odds = log_odds(z, torch.tensor(1e3))
    assert bool((odds[:, :2].sigmoid() == 0).all())
    confidence = confidence_odds(odds, "two_sided")
    assert float(confidence[0]) != float(confidence[1])
    assert forget_set(confidence, 0.34).tolist() == [True, True, False, False, False, False]
    assert forget_set(confidence, 0.0).sum() == 0


def test_one_direction_may_forget_other_rows(lab):
    z = {
        "image": torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        "text": torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.9, 0.2]]),
    }
    odds = log_odds(z, torch.tensor(10.0))
    matches = F.logsigmoid(odds)
    logits = 10 * z["image"] @ z["text"].T
    lab.assert_close(matches[0], logits.log_softmax(1).diagonal(), rtol=1e-5)
    lab.assert_close(matches[1], logits.log_softmax(0).diagonal(), rtol=1e-5)
    lab.assert_close(F.logsigmoid(confidence_odds(odds, "image_to_text")), matches[0])
    lab.assert_close(confidence_odds(odds, "two_sided").sigmoid(), matches.exp().mean(0), rtol=1e-5)


@pytest.mark.parametrize("kind", ["two_sided", "image_to_text"])
@pytest.mark.parametrize("scale", [50.0, 100.0])
def test_single_precision_forgets_the_same_of_well_aligned_rows(scale, kind):
    """Own cosines near 0.82 of 256 rows: every ln(share) but one is 0 in single precision."""
    draws = torch.Generator().manual_seed(0)
    image = F.normalize(torch.randn(256, 512, generator=draws), dim=1)
    text = F.normalize(image + 0.7 * F.normalize(torch.randn(256, 512, generator=draws), dim=1), dim=1)
    chosen = []
    for dtype in (torch.float64, torch.float32):
        z = {"image": image.to(dtype), "text": text.to(dtype)}
        confidence = confidence_odds(log_odds(z, torch.tensor(scale, dtype=dtype)), kind)
        assert len(confidence.unique()) > 250
        chosen.append(forget_set(confidence, 0.1))
    assert int(chosen[0].sum()) == 25
    assert torch.equal(chosen[0], chosen[1])


def test_starts_from_clip_at_a_tenth_of_the_learning_rate(lab):
    method = lab.build_adapter(GradientAscent)
    (phase,) = method.phases()
    assert phase.lr_scale == 0.1
    assert GradientAscent.reference == "clip"
    assert method.state_dict().keys() == lab.build_adapter(Clip).state_dict().keys()
