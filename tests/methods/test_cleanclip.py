"""CleanCLIP: its two contrasts, and what it starts from."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from methods.cleanclip import Cleanclip
from methods.clip import Clip
from methods.protocol import Cost, Facts
from methods.safeclip import Safeclip


def test_plain_rows_are_anchors_and_second_views_candidates(lab, viewed):
    own = torch.arange(8)
    parts = {name: F.cross_entropy(viewed[name] @ viewed[f"{name}_view"].T / 0.07, own) for name in ("image", "text")}
    loss = lab.step_loss(lab.build_adapter(Cleanclip, clip_weight=0.0, inmodal_weight=3.0), viewed)
    lab.assert_close(loss, 1.5 * (parts["image"] + parts["text"]))
    other = lab.step_loss(
        lab.build_adapter(Safeclip), viewed, when=lab.a_clock(phase="warm")
    )  # there the views are the anchors
    assert abs(float((loss / 3 - other).detach())) > 1e-2


def test_it_is_the_weighted_sum_of_its_parts(lab, viewed):
    parts = [
        lab.step_loss(lab.build_adapter(Cleanclip, clip_weight=a, inmodal_weight=b), viewed)
        for a, b in ((1, 0), (0, 1))
    ]
    lab.assert_close(parts[0], lab.step_loss(lab.build_adapter(Clip), viewed))
    whole = lab.step_loss(lab.build_adapter(Cleanclip, clip_weight=0.5, inmodal_weight=4.0), viewed)
    lab.assert_close(whole, 0.5 * parts[0] + 4 * parts[1])


def test_with_equal_views_the_contrasts_within_depend_on_gram_matrices_alone(lab, viewed):
    turn, _ = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    image, text = viewed["image"], viewed["text"]
    values = []
    for turned in (image, image @ turn):
        z = {"image": turned, "text": text, "image_view": turned, "text_view": text}
        values.append(lab.build_adapter(Cleanclip).loss(z, {}, slice(0, 8)))
    lab.assert_close(values[0]["in_modal"], values[1]["in_modal"])
    assert not torch.allclose(values[0]["contrastive"], values[1]["contrastive"])


def test_it_starts_from_a_trained_clip_at_a_fiftieth_of_the_learning_rate():
    method = Cleanclip(Cleanclip.Config(), Facts(rows=8, batch=8, dim=16, seed=0))
    (phase,) = method.phases()
    assert (Cleanclip.reference, Cleanclip.starts_from_reference, phase.lr_scale) == ("clip", True, 0.02)
    assert "scale.rho" in method.state_dict()  # the reference's name: its scale is taken over
    assert method.cost("train") == Cost(2.0, 2.0)


def test_views_and_edits_are_those_of_the_step(lab, towers, viewed):
    method = Cleanclip(Cleanclip.Config(), Facts(rows=8, batch=8, dim=16, seed=0))
    rows = lab.some_rows(towers, 8, views=method.extra_views)
    with torch.no_grad():
        z = method.encode(towers, rows)
        later = method.encode(towers, dataclasses.replace(rows, clock=lab.a_clock(1)))
    assert set(z) == set(viewed)
    torch.testing.assert_close(z["image"], later["image"])
    assert not torch.equal(z["text_view"], later["text_view"])
    assert not torch.allclose(z["image_view"], z["image"], atol=1e-3)


@pytest.mark.parametrize("bad", [{"clip_weight": -1.0}, {"lr_scale": 0.0}, {"eda_alpha": 2.0}])
def test_what_is_refused_is_named(bad):
    with pytest.raises(ValueError, match=rf"CleanclipConfig\.{next(iter(bad))} = .*, but it must be "):
        Cleanclip.Config(**bad)
