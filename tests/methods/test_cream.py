"""CREAM: identities, floors and rows in use over passes, degenerate batches. The official values are in `oracles`."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.clip import Clip
from methods.cream import Cream
from methods.mixture import posteriors
from methods.protocol import Clock

EARLY = Clock(step=20, phase="train", progress=0.2, epoch=2)
HARD = Clock(step=40, phase="train", progress=0.4, epoch=4)
LATE = Clock(step=60, phase="train", progress=0.6, epoch=6)


def constants(label, floor=0.0, used=True):
    return {
        "label": label,
        "floor": torch.full_like(label, floor),
        "used": torch.full(label.shape, used),
    }


def fitted(lab, noisy, rows=16):
    """CREAM after a pass that found the first `noisy` of its rows noisy."""
    method = lab.build_adapter(Cream, rows=rows)
    method.fitted.fill_(True)
    method.clean[:noisy] = False
    method.clean_probability.fill_(0.9)[:noisy] = 0.1
    return method


@pytest.mark.parametrize("floor", [0.0, 0.3, math.inf])
def test_labels_of_one_are_clip_twice_under_any_floor(lab, z, floor):
    clip = lab.step_loss(lab.build_adapter(Clip, temperature=0.07, learnable_scale=False), z)
    loss = lab.sum_of_tiles(lab.build_adapter(Cream), z, constants(torch.ones(16).double(), floor), (5, 9))
    lab.assert_close(loss, 2 * clip)


def test_a_floor_that_nothing_reaches_leaves_the_own_pairs_weighted(lab, z):
    method, label = lab.build_adapter(Cream), torch.linspace(0, 1, 16, dtype=torch.float64)
    expected = (label * lab.observe(method, z)["row_loss"]).mean()
    lab.assert_close(lab.sum_of_tiles(method, z, constants(label, math.inf)), expected)


def test_even_shares_of_rows_without_a_label_at_a_small_scale(lab, z):
    method = lab.build_adapter(Cream, uniform=True, temperature=1e9)
    loss = lab.sum_of_tiles(method, z, constants(torch.zeros(16).double()))
    lab.assert_close(loss, 2 * math.log(16), 1e-6)


@pytest.mark.parametrize("uniform", [True, False])
def test_by_hand_two_rows_give_all_doubt_to_the_only_negative(lab, uniform):
    """Each row's negative has the whole of 1 - y, but for the 1e-6 beside the sum of affinities."""
    z = {"image": torch.eye(2).double(), "text": torch.tensor([[0.8, 0.6], [0.6, 0.8]]).double()}
    method = lab.build_adapter(Cream, uniform=uniform, temperature=1.0)
    loss = lab.sum_of_tiles(method, z, constants(torch.tensor([0.75, 0.75]).double()))
    own, other = math.log(1 + math.exp(-0.2)), math.log(1 + math.exp(0.2))
    lab.assert_close(loss, 2 * (0.75 * own + 0.25 * other), 1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), total=st.integers(2, 9), uniform=st.booleans())
def test_shares_are_none_of_the_own_pair_and_sum_to_at_most_one(seed, total, uniform):
    from bench.checks import lab

    draws = torch.Generator().manual_seed(seed)
    s = 2 * torch.rand(total, total, generator=draws, dtype=torch.float64) - 1
    own = torch.arange(total)
    shares = lab.build_adapter(Cream, uniform=uniform)._shares(s, own)
    negatives = shares.scatter(1, own[:, None], 0.0)
    assert bool((negatives >= 0).all())
    assert bool((negatives.sum(1) <= 1 + 1e-12).all())
    if not uniform:
        assert torch.equal(negatives, shares)


def test_the_defaults_are_the_official_ones():
    assert Cream.Config() == Cream.Config(**Cream.presets["official"])


def test_detached_shares_change_the_gradient_alone(lab, z):
    label = torch.linspace(0, 1, 16, dtype=torch.float64)
    losses = [lab.sum_of_tiles(lab.build_adapter(Cream, detach=x), z, constants(label)) for x in (False, True)]
    assert losses[0] == losses[1]
    one, other = (torch.autograd.grad(x, z["image"])[0] for x in losses)
    assert float((one - other).abs().max()) > 1e-3


def test_it_is_warm_until_its_share_is_over_and_a_pass_has_been_divided(lab, z):
    method = lab.build_adapter(Cream, rows=20)
    assert "label" not in lab.observe(method, z, when=HARD), "nothing is divided yet"
    method.end_epoch(0)
    assert "label" not in lab.observe(method, z), "still warm"
    assert "label" in lab.observe(method, z, when=EARLY)


def test_labels_trust_the_division_of_clean_rows_alone(lab, z):
    method = fitted(lab, 5)
    observed = lab.observe(method, z, when=EARLY)
    p = observed["prediction"]
    lab.assert_close(observed["label"], torch.cat([p[:5], 0.9 + 0.1 * p[5:]]))


def test_floors_follow_the_share_of_clean_rows_and_the_run(lab, z):
    many, few = fitted(lab, 2), fitted(lab, 5)
    for when in (EARLY, HARD, LATE):
        observed = lab.observe(many, z, when=when)
        mean = observed["label"].mean()
        lab.assert_close(observed["floor"], torch.where(many.clean, 0.0, mean))
    early, hard = lab.observe(few, z, when=EARLY), lab.observe(few, z, when=HARD)
    lab.assert_close(early["floor"][:5], early["label"].mean().expand(5))
    assert bool(early["floor"][5:].isinf().all())
    lab.assert_close(hard["floor"], hard["label"].mean().expand(16))


def test_rows_of_exactly_the_share_that_is_enough_mine_little(lab, z):
    """85 % of 20 rows is no more than 85 %."""
    method = fitted(lab, 3, rows=20)
    assert bool(lab.observe(method, z, when=EARLY)["floor"][3:].isinf().all())


def test_noisy_rows_are_negatives_alone_before_their_time(lab, z):
    method = fitted(lab, 5)
    hard, late = lab.observe(method, z, when=HARD), lab.observe(method, z, when=LATE)
    assert torch.equal(hard["used"], method.clean)
    assert bool(late["used"].all())
    part = method.loss(z, {**hard, "used": torch.ones(16) > 0}, slice(5, 16))["contrastive"]
    lab.assert_close(lab.sum_of_tiles(method, z, hard), part)


def test_noisy_rows_are_used_from_the_very_step_on(lab, z):
    border = Clock(step=444, phase="train", progress=0.444, epoch=4)
    assert bool(lab.observe(fitted(lab, 5), z, when=border)["used"].all())


def test_one_row_in_a_hundred_is_noisy_where_no_probability_says_so(lab, monkeypatch):
    probability = torch.linspace(0.6, 1, 250)
    monkeypatch.setattr("methods.cream.posteriors", lambda *_: probability)
    assert int((~lab.build_adapter(Cream).division(torch.zeros(250))[1]).sum()) == 3


def test_rows_that_are_all_noisy_have_no_loss_before_their_time(lab, z, assert_no_loss_before):
    assert_no_loss_before(LATE, fitted(lab, 16), z, when=EARLY)


def test_a_pass_divides_the_rows_that_were_visited_and_leaves_the_others(lab, z):
    method = lab.build_adapter(Cream, rows=20)
    method.end_epoch(0)
    assert not bool(method.fitted), "no row was visited"
    loss = lab.observe(method, z, ids=torch.arange(4, 20))["row_loss"]
    method.end_epoch(0)
    w = posteriors(loss, "smaller")
    assert torch.equal(method.clean_probability[4:], w)
    assert torch.equal(method.clean[4:], w > 0.5)
    assert bool((method.clean_probability[:4] == 1).all())
    assert bool(method.clean[:4].all())


def test_equal_rows_stay_clean_and_have_finite_gradients(lab, z):
    equal = {name: x[:1].detach().expand(16, -1).clone().requires_grad_() for name, x in z.items()}
    method = lab.build_adapter(Cream, rows=16)
    lab.assert_close(lab.observe(method, equal)["row_loss"], [2 * math.log(16)] * 16)
    method.end_epoch(0)
    assert bool(method.clean.all())
    loss = lab.step_loss(method, equal, when=LATE)
    assert all(bool(x.isfinite().all()) for x in torch.autograd.grad(loss, list(equal.values())))


def test_losses_of_well_matched_rows_keep_their_digits(lab):
    """e^-100 beside 1 is lost in -ln p, and is the loss."""
    z = {"image": torch.eye(2).double(), "text": torch.eye(2).double()}
    observed = lab.observe(lab.build_adapter(Cream, rows=2, temperature=0.01), z)
    lab.assert_close(observed["row_loss"], [2 * math.exp(-100)] * 2, atol=0.0)


@pytest.mark.parametrize("detach", [False, True])
def test_gradient_after_a_pass_is_that_of_the_loss(lab, detach):
    """`bench check` sees the warm loss alone; detached shares are those of where the derivative is taken."""
    z = lab.oracle_inputs("R")
    method = lab.build_adapter(Cream, detach=detach, temperature=0.2)
    given = constants(torch.linspace(0.2, 1, 7, dtype=torch.float64), 0.01)
    if detach:
        kept = [method._shares(x, torch.arange(7)) for x in (z["image"] @ z["text"].T, z["text"] @ z["image"].T)]
        shares = iter(kept * 1000)
        method._shares = lambda *_: next(shares)

    def loss(image, text):
        return method.loss({"image": image, "text": text}, given, slice(0, 7))["contrastive"]

    assert torch.autograd.gradcheck(loss, [z["image"], z["text"]])
