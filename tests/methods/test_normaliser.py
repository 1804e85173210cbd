"""What holds for SogCLR, iSogCLR and NUCLR alike: state of rows, tiles, precision. Official values: `oracles`."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math

import pytest
import torch

from methods.base import spans
from methods.isogclr import Isogclr
from methods.normaliser import differences
from methods.nuclr import Nuclr
from methods.sogclr import Sogclr

KINDS = [Sogclr, Isogclr, Nuclr]


def late(lab, step=0):
    """A moment at which everything moves that a method ever moves."""
    return dataclasses.replace(lab.a_clock(step, epoch=3), progress=0.5)


def rolled(z, by):
    return {name: x.detach().roll(by, 0).requires_grad_() for name, x in z.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_tiles_of_observe_change_nothing(lab, case, kind, monkeypatch):
    warm = {"temperature_init" if kind is Isogclr else "temperature": 0.05}
    z, whole, cut = case("C"), lab.build_adapter(kind, **warm), lab.build_adapter(kind, **warm)
    losses = []
    for method, size in ((whole, 1024), (cut, 3)):
        monkeypatch.setattr(f"methods.{kind.name}.spans", lambda total, size=size: spans(total, size))
        losses.append([lab.step_loss(method, rolled(z, by), when=late(lab, by)).detach() for by in (0, 1, 2)])
    lab.assert_close(torch.stack(losses[0]), torch.stack(losses[1]))
    for name, x in whole.state_dict().items():
        lab.assert_close(cut.state_dict()[name], x)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_outside_the_batch_keep_their_state(lab, case, kind):
    method, z = lab.build_adapter(kind, rows=20), case("B")
    lab.step_loss(method, z, torch.arange(0, 6), late(lab))
    before = {name: x.clone() for name, x in method.state_dict().items()}
    lab.step_loss(method, z, torch.arange(10, 16), late(lab, 1))
    for name, x in method.state_dict().items():
        if x.ndim == 0:  # NUCLR's largest popularities move at the end of an epoch
            continue
        assert torch.equal(x[:10], before[name][:10])
        assert torch.equal(x[16:], before[name][16:])
        assert not torch.equal(x[10:16], before[name][10:16])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_single_precision_where_exponentials_leave_its_range(lab, kind, preset):
    settings = {} if preset == "default" else kind.presets[preset]
    draws = torch.Generator().manual_seed(0)
    image = torch.nn.functional.normalize(torch.randn(8, 16, generator=draws, dtype=torch.float64), dim=1)
    exact = lab.build_adapter(kind, **settings)
    single = copy.deepcopy(exact).float()
    for step, text in enumerate((-image, image, image.roll(1, 0))):  # d / tau is near 100, then near -100
        found = []
        for method, dtype in ((exact, torch.float64), (single, torch.float32)):
            z = {"image": image.to(dtype).requires_grad_(), "text": text.to(dtype).requires_grad_()}
            loss = lab.step_loss(method, z, when=late(lab, step))
            found.append([loss, *torch.autograd.grad(loss, list(z.values()))])
        for a, b in itertools.zip_longest(*found):
            torch.testing.assert_close(b.double(), a, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [Sogclr, Isogclr])
@pytest.mark.parametrize("preset", ["official", "paper"])
def test_a_row_first_seen_after_the_first_pass_starts_as_the_preset_says(lab, case, kind, preset):
    """In the official code u starts at 0 and takes g in epoch 0 alone: a late first visit gives gamma g."""
    method, z, tau = lab.build_adapter(kind, rows=12, **kind.presets[preset]), case("B"), 0.01
    s = (z["image"] @ z["text"].T).detach()
    log_g = ((s - s.diagonal()[:, None]) / tau).masked_fill(torch.eye(6, dtype=torch.bool), -torch.inf).logsumexp(1)
    lab.step_loss(method, z, torch.arange(6), lab.a_clock(0, epoch=0))
    lab.assert_close(method.log_u_image[:6], log_g)
    lab.step_loss(method, z, torch.arange(6, 12), lab.a_clock(1, epoch=1))
    lab.assert_close(method.log_u_image[6:], log_g + (math.log(0.8) if preset == "official" else 0.0))
    if kind is Sogclr:  # the temperatures of iSogCLR's rows have moved
        lab.step_loss(method, z, torch.arange(6, 12), lab.a_clock(2, epoch=1))
        lab.assert_close(method.log_u_image[6:], log_g + (math.log(0.96) if preset == "official" else 0.0))


def test_an_anchor_differs_from_its_partner_by_exactly_nothing():
    """s_ii - s_ii is 0 in any precision; the running maximum, which starts at it, must not keep a rounding."""
    draws = torch.Generator().manual_seed(1)
    z = {name: torch.nn.functional.normalize(torch.randn(40, 96, generator=draws), dim=1) for name in ("image", "text")}
    for tile in (slice(0, 40), slice(7, 20)):
        own = differences(z, "image", "text", tile).diagonal(tile.start)
        assert torch.equal(own, torch.zeros(tile.stop - tile.start))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_leave_out_the_partner(lab, case, kind):
    method, z = lab.build_adapter(kind), case("B")
    with torch.no_grad():
        weights = method.draw(z, lab.observe(method, z), slice(2, 5))
    for direction in ("image", "text"):
        assert torch.equal(weights[direction][torch.arange(3), torch.arange(2, 5)], torch.zeros(3).double())
        assert int((weights[direction] > 0).sum()) == 3 * 5
