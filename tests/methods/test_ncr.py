"""NCR: its identities, its division over passes, degenerate batches. The official code's values are in `oracles`."""

from __future__ import annotations

import copy

import pytest
import torch

from methods.mixture import posteriors
from methods.ncr import Ncr, divided
from methods.protocol import Clock

SHAPES = ("exponential", "linear", "sin")
MAIN = Clock(step=20, phase="train", progress=0.4, epoch=4)
LATE = Clock(step=30, phase="train", progress=0.6, epoch=6)


def given(prediction, clean=True, w=1.0, used=True):
    """Constants of a step of the main part; numbers stand for all rows."""
    total = len(prediction)
    return {
        "prediction": prediction,
        "clean": torch.full((total,), clean),
        "clean_probability": torch.full((total,), w, dtype=torch.float64),
        "used": torch.full((total,), used),
    }


def hardest(z, margins):
    """Mean over rows of both directions' hardest hinges, margins [B, B] of image anchors (transposed: of texts)."""
    s = z["image"] @ z["text"].T
    total = len(s)
    own = s.diagonal()
    others = torch.zeros_like(s).masked_fill(torch.eye(total, dtype=torch.bool), -torch.inf)
    image = (margins[0] + s - own[:, None] + others).amax(1).clamp(min=0)
    text = (margins[1] + s.T - own[:, None] + others).amax(1).clamp(min=0)
    return (image + text).mean()


@pytest.mark.parametrize("margins", ["paper", "official"])
@pytest.mark.parametrize("shape", SHAPES)
def test_targets_of_one_are_the_triplet_loss_of_the_hardest_negatives(lab, z, shape, margins):
    method = lab.build_adapter(Ncr, soft_margin=shape, margins=margins)
    ones = torch.full((16, 16), 0.2, dtype=torch.float64)
    for constants in (given(torch.zeros(16).double()), given(torch.ones(16).double(), clean=False)):
        lab.assert_close(lab.sum_of_tiles(method, z, constants, (5, 9)), hardest(z, (ones, ones)))


@pytest.mark.parametrize("shape", SHAPES)
def test_targets_of_zero_leave_no_margin(lab, z, shape):
    method, zeros = lab.build_adapter(Ncr, soft_margin=shape), torch.zeros(16, 16, dtype=torch.float64)
    constants = given(torch.zeros(16).double(), clean=False)
    lab.assert_close(lab.sum_of_tiles(method, z, constants), hardest(z, (zeros, zeros)), atol=1e-15)


def test_margins_of_the_two_presets(lab, z):
    """paper: an anchor's own; official: of the image of each compared pair, with the text's prediction if clean."""
    p = torch.linspace(0, 1, 16, dtype=torch.float64)
    constants = given(p, w=0.3)
    constants["clean"] = torch.arange(16) % 3 > 0

    def softened(target):
        return 0.2 * (10**target - 1) / 9

    own = softened(torch.where(constants["clean"], 0.3 + 0.7 * p, p))[:, None].expand(16, 16)
    paper = lab.sum_of_tiles(lab.build_adapter(Ncr), z, constants, (7,))
    lab.assert_close(paper, hardest(z, (own, own)))
    of_image = softened(torch.where(constants["clean"][:, None], 0.3 + 0.7 * p, p[:, None]))
    official = lab.sum_of_tiles(lab.build_adapter(Ncr, margins="official"), z, constants, (7,))
    lab.assert_close(official, hardest(z, (of_image, of_image.T)))
    assert abs(float((paper - official).detach())) > 1e-3


def test_rows_out_of_use_are_negatives_alone(lab, z):
    method, constants = lab.build_adapter(Ncr), given(torch.ones(16).double())
    constants["used"] = torch.arange(16) < 9
    lower = lab.sum_of_tiles(method, z, constants)
    parts = [method.loss(z, {**constants, "used": torch.ones(16) > 0}, slice(0, 9))["triplet"]]
    lab.assert_close(lower, parts[0])
    (gradient,) = torch.autograd.grad(lower, z["text"])
    assert bool(gradient[9:].any()), "as negatives they are pushed away"


def test_the_warm_loss_is_zero_only_if_every_pair_wins_by_the_margin(lab, z):
    apart = {"image": torch.eye(8, dtype=torch.float64), "text": torch.eye(8, dtype=torch.float64)}
    method = lab.build_adapter(Ncr)
    assert lab.step_loss(method, apart) == 0
    assert lab.step_loss(method, z) > 0
    s, margin = z["image"] @ z["text"].T, 0.2
    hinges = sum((margin + x - x.diagonal()[:, None]).clamp(min=0) for x in (s, s.T))
    lab.assert_close(lab.step_loss(method, z), (hinges.sum(1) - 2 * margin).sum() / 16**2)


def test_a_constant_on_all_scores_changes_nothing(lab, z):
    """Two more axes, on which all rows are alike, add 1 to every score."""
    one = torch.ones(16, 1, dtype=torch.float64)
    more = {name: torch.cat([x, one], 1) for name, x in z.items()}
    method = lab.build_adapter(Ncr, rows=16)
    lab.assert_close(lab.step_loss(method, more), lab.step_loss(method, z))
    here, there = lab.observe(method, z), lab.observe(method, more)
    lab.assert_close(there["prediction"], here["prediction"], atol=1e-12)


def test_it_is_warm_until_its_share_is_over_and_a_pass_has_been_fitted(lab, z):
    method = lab.build_adapter(Ncr, rows=20)
    assert "used" not in lab.observe(method, z, when=MAIN), "nothing is fitted yet"
    method.end_epoch(0)
    assert "used" not in lab.observe(method, z), "still warm"
    main, late = lab.observe(method, z, when=MAIN), lab.observe(method, z, when=LATE)
    assert torch.equal(main["used"], main["clean"])
    assert bool(late["used"].all())
    assert 0 < int(main["clean"].sum()) < 16


def test_a_pass_divides_the_rows_that_were_visited_and_leaves_the_others(lab, z):
    method = lab.build_adapter(Ncr, rows=20)
    loss = lab.observe(method, z, ids=torch.arange(4, 20))["row_loss"]
    method.end_epoch(0)
    w = posteriors(loss, "smaller")
    assert torch.equal(method.clean_probability[4:], w)
    assert torch.equal(method.clean[4:], w > 0.5)
    assert bool((method.clean_probability[:4] == 1).all())
    assert bool(method.clean[:4].all())


def test_a_pass_without_any_visit_changes_nothing(lab):
    method = lab.build_adapter(Ncr, rows=20)
    before = copy.deepcopy(method.state_dict())
    method.end_epoch(0)
    for name, x in method.state_dict().items():
        assert torch.equal(x, before[name]), name


def test_one_in_a_hundred_is_noisy_where_no_probability_says_so():
    w = torch.linspace(0.6, 1, 250)[torch.randperm(250, generator=torch.Generator().manual_seed(0))]
    clean = divided(w)
    assert int((~clean).sum()) == 3
    assert w[~clean].max() < w[clean].min()
    assert torch.equal(divided(torch.tensor([0.4, 0.9, 0.7])), torch.tensor([False, True, True]))


def test_equal_losses_leave_all_rows_clean(lab, z):
    """Every probability is then 1, of which none is above the smallest."""
    assert bool(divided(torch.ones(300)).all())
    equal = {name: x[:1].expand(16, -1) for name, x in z.items()}
    method = lab.build_adapter(Ncr, rows=16)
    observed = lab.observe(method, equal)
    lab.assert_close(observed["prediction"], torch.ones(16))  # each has lost the same, and some margin is left
    method.end_epoch(0)
    assert bool(lab.observe(method, equal, when=MAIN)["used"].all())


def test_rows_that_are_all_noisy_have_no_loss_before_their_time(lab, z, assert_no_loss_before):
    method = lab.build_adapter(Ncr, rows=16)
    method.fitted.fill_(True)
    method.clean.fill_(False)
    assert_no_loss_before(LATE, method, z, when=MAIN)


def test_predictions_are_zero_where_no_margin_is_left(lab, z):
    opposite = {"image": z["image"], "text": -z["image"]}
    assert not lab.observe(lab.build_adapter(Ncr, rows=16), opposite)["prediction"].any()


@pytest.mark.parametrize("margins", ["paper", "official"])
def test_gradient_after_a_pass_is_that_of_the_loss(lab, margins):
    """`bench check` sees the warm loss alone, since no pass ends there."""
    z = lab.oracle_inputs("R")
    constants = given(torch.linspace(0.2, 1, 7, dtype=torch.float64), w=0.5)
    method = lab.build_adapter(Ncr, margins=margins)

    def loss(image, text):
        return method.loss({"image": image, "text": text}, constants, slice(0, 7))["triplet"]

    assert torch.autograd.gradcheck(loss, [z["image"], z["text"]])
