"""AmorLIP: its normalisers over passes, the networks that remember them, its scale. Official values: `oracles`."""

from __future__ import annotations

import math

import pytest
import torch

from methods.amorlip import Amorlip
from methods.clip import Clip
from methods.protocol import Clock

LATE = Clock(step=60, phase="train", progress=0.6, epoch=6)


def exponentials(z, own_weight, scale=1 / 0.07):
    found = (scale * z["image"] @ z["text"].T).detach().exp()
    return found - (1 - own_weight) * found.diag().diag()


@pytest.mark.parametrize("own_weight", [1e-3, 0.7])
def test_its_loss_by_hand(lab, z, own_weight):
    """A second computation in plain exponentials, of a pass that remembers and of a first one."""
    method = lab.build_adapter(Amorlip, own_weight=own_weight, radius=-3.0)
    sums = exponentials(z, own_weight)
    for beta in (0.0, 0.8):
        observed, cross, fit = lab.observe(method, z, when=LATE), 0.0, 0.0
        for name, cells in (("image", sums), ("text", sums.T)):
            with torch.no_grad():
                predicted = method.networks[name](z[name])
            normaliser = beta * predicted.exp() + (1 - beta) * cells.sum(1)
            lab.assert_close(observed[f"log_{name}"], normaliser.log())
            cross += (cells.sum(1) / normaliser).mean()
            fit += (predicted - normaliser.log()).square().mean()
        own = (z["image"] * z["text"]).sum(1).mean().detach()
        expected = 0.07 * cross - 2 * own - 3 * 0.07
        lab.assert_close(lab.sum_of_tiles(method, z, observed, (5, 9)), expected + fit)
        method.config = type(method.config)(own_weight=own_weight, radius=-3.0, restart=False)
        method.averaged.copy_(torch.nn.utils.parameters_to_vector(method.networks.parameters()))
        method.end_epoch(0)


def test_its_objective_is_clips_where_the_whole_batch_counts(lab, z):
    method = lab.build_adapter(Amorlip, own_weight=1.0)
    clip = lab.step_loss(lab.build_adapter(Clip), z)
    with torch.no_grad():
        objective = method.monitor(z, lab.observe(method, z, when=LATE))["objective"]
    lab.assert_close(objective, clip.detach())


def test_networks_do_not_move_the_towers(lab, z):
    method = lab.build_adapter(Amorlip)
    networks = method.loss(z, lab.observe(method, z, when=LATE), slice(0, 16))["networks"]
    gradients = torch.autograd.grad(networks, list(z.values()), allow_unused=True)
    assert gradients == (None, None)


def test_networks_learn_the_normalisers(lab, z):
    method = lab.build_adapter(Amorlip, network_lr=0.01)
    optimiser = torch.optim.Adam(method.networks.parameters(), method.config.network_lr)
    losses = []
    for step in range(400):
        optimiser.zero_grad()
        loss = method.loss(z, lab.observe(method, z, when=lab.a_clock(step)), slice(0, 16))["networks"]
        loss.backward()
        optimiser.step()
        method.after_step(lab.a_clock(step))
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.01 * losses[0]
    method.end_epoch(0)
    for name, cells in (("image", exponentials(z, 1e-3)), ("text", exponentials(z, 1e-3).T)):
        mixed = lab.observe(method, z, when=LATE)[f"log_{name}"]
        assert float((mixed - cells.sum(1).log()).abs().max()) < 0.3, "what is remembered is near the batch's"


def test_the_average_follows_every_other_step(lab):
    method = lab.build_adapter(Amorlip, average=0.9)
    before = method.averaged.clone()
    with torch.no_grad():
        for parameter in method.networks.parameters():
            parameter += 1.0
    method.after_step(lab.a_clock(1))
    assert torch.equal(method.averaged, before)
    method.after_step(lab.a_clock(2))
    lab.assert_close(method.averaged, before + 0.1)


@pytest.mark.parametrize("restart", [True, False])
def test_a_pass_ends_with_the_average_remembered(lab, restart):
    method, twin = (lab.build_adapter(Amorlip, restart=restart) for _ in range(2))
    twin.load_state_dict(method.state_dict())
    method.averaged += 1
    before, averaged = torch.nn.utils.parameters_to_vector(method.networks.parameters()), method.averaged.clone()
    method.end_epoch(3)
    after = torch.nn.utils.parameters_to_vector(method.networks.parameters())
    assert torch.equal(method.remembered, averaged)
    assert torch.equal(after, before) != restart
    assert torch.equal(method.averaged, after if restart else averaged)
    torch.rand(5)
    twin.end_epoch(3)
    assert torch.equal(torch.nn.utils.parameters_to_vector(twin.networks.parameters()), after), "the same on any rank"
    twin.end_epoch(4)
    assert torch.equal(torch.nn.utils.parameters_to_vector(twin.networks.parameters()), after) != restart


def test_nothing_is_remembered_in_the_first_pass(lab):
    method = lab.build_adapter(Amorlip)
    assert method.share(LATE) == 0
    method.end_epoch(0)
    assert method.share(LATE) == 0.8
    assert method.share(Clock(step=0, phase="train", progress=8 / 33, epoch=8)) == pytest.approx(0.4)


def test_the_radius_changes_after_a_third(lab, z):
    method = lab.build_adapter(Amorlip)
    for progress, radius in ((0.33, 8.5), (1 / 3, -8.5)):
        observed = lab.observe(method, z, when=Clock(step=0, phase="train", progress=progress, epoch=0))
        (slope,) = torch.autograd.grad(method.loss(z, observed, slice(0, 16))["radius"], [method.scale.rho])
        lab.assert_close(slope, -radius * 0.07)


def test_networks_have_their_own_rate_and_no_decay(lab):
    method = lab.build_adapter(Amorlip, network_lr=0.01)
    assert method.options("method.networks.image.first.weight") == {"lr": 0.01, "weight_decay": 0.0}
    assert method.options("method.scale.rho") == {}


def test_a_network_that_predicts_far_too_little_bounds_the_loss(lab, z):
    """Its share of 0.8 is lost: negatives pull five times as hard."""
    method = lab.build_adapter(Amorlip)
    method.end_epoch(0)
    method.remembered.zero_()
    observed = lab.observe(method, z, when=LATE)
    normaliser = exponentials(z, 1e-3).sum(1)
    lab.assert_close(observed["log_image"], (0.8 + 0.2 * normaliser).log())
    assert math.isfinite(float(lab.sum_of_tiles(method, z, observed).detach()))


def test_the_scale_stays_in_its_range(lab):
    method = lab.build_adapter(Amorlip, temperature=1e-3)
    method.after_step(lab.a_clock())
    lab.assert_close(method.scale(), 100.0, rtol=1e-6)
