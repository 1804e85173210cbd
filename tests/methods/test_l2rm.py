"""L2RM: its plan, division and losses over passes, degenerate batches. Official values: `oracles`."""

from __future__ import annotations

import math

import ot
import pytest
import torch

from methods.clip import Clip
from methods.l2rm import L2rm
from methods.ncr import Ncr
from methods.protocol import Clock
from methods.rcl import Rcl
from methods.sinkhorn import partial_sinkhorn

MAIN = Clock(step=40, phase="train", progress=0.4, epoch=4)
BORDER = Clock(step=10, phase="train", progress=0.125, epoch=1)
ALL = torch.ones(16) > 0


@pytest.fixture
def costs():
    return torch.rand(9, 9, generator=torch.Generator().manual_seed(0)).double()


def divided(lab, noisy, **config):
    """A method that has divided 16 rows, and counts these as noisy."""
    method = lab.build_adapter(L2rm, rows=16, **config)
    method.fitted.fill_(True)
    method.clean[list(noisy)] = False
    return method


def test_warm_it_is_clip_and_half_the_reverse_cross_entropy(lab, z):
    fixed = {"temperature": 0.05, "learnable_scale": False}
    clip = lab.step_loss(lab.build_adapter(Clip, **fixed), z)
    missed = lab.step_loss(lab.build_adapter(Rcl, form="abs"), z)
    reverse = -missed * math.log(1e-7) - (2 - missed) * math.log1p(1e-7)
    lab.assert_close(lab.step_loss(lab.build_adapter(L2rm), z), clip + reverse / 2)


def test_with_clean_rows_alone_it_is_the_main_loss_of_ncr(lab, z):
    method = divided(lab, [])
    observed = lab.observe(method, z, when=MAIN)
    assert "plan" not in observed
    one = torch.ones(16, dtype=torch.float64)
    given = {"clean": ~ALL, "clean_probability": one, "prediction": one, "used": ALL}
    lab.assert_close(lab.sum_of_tiles(method, z, observed), lab.sum_of_tiles(lab.build_adapter(Ncr), z, given))


def test_noisy_rows_are_negatives_of_clean_ones(lab, z):
    """Not only of their own kind: the hinges of 12 clean rows are those among 16."""
    method = divided(lab, [0, 5, 6, 9], rematch_weight=0.0)
    s = (z["image"] @ z["text"].T).detach()
    hinges = (0.2 + s - s.diagonal()[:, None], 0.2 + s.T - s.diagonal()[:, None])
    rows = sum(one.fill_diagonal_(0).clamp(min=0).amax(1) for one in hinges)
    lab.assert_close(lab.step_loss(method, z, when=MAIN), rows[method.clean].sum() / 16)


@pytest.mark.parametrize("mask_own", [True, False])
def test_noisy_rows_by_hand(lab, z, mask_own):
    noisy = [1, 2, 5, 8, 13]
    method = divided(lab, noisy, mask_own=mask_own, regularisation=0.07, rematch_weight=0.5)
    observed = lab.observe(method, z, when=MAIN)
    s = (z["image"][noisy] @ z["text"][noisy].T).detach()
    assert torch.equal(observed["plan"], method.plan(1 - s))
    assert bool(observed["plan"].diagonal().any()) != mask_own
    total = 0.0
    for cells, cosines in ((observed["plan"], s), (observed["plan"].T, s.T)):
        target = cells.clamp(min=1e-10) / cells.clamp(min=1e-10).sum(1, keepdim=True)
        share = (20 * cosines).exp() / (20 * cosines).exp().sum(1, keepdim=True)
        total += float((target * (target / share).log() + share * (share / target).log()).sum()) / 2
    lab.assert_close(method.loss(z, observed, slice(0, 16))["rematched"], 0.5 * total / 16)


def test_noisy_rows_that_agree_with_the_plan_cost_nothing(lab):
    """Rows that are all alike: the plan and the softmax are uniform."""
    method = divided(lab, [0, 1, 2], mask_own=False)
    equal = {name: torch.eye(16).double()[:1].expand(16, -1) for name in ("image", "text")}
    lab.assert_close(method.loss(equal, lab.observe(method, equal, when=MAIN), slice(0, 16))["rematched"], 0.0)


@pytest.mark.parametrize("count", [2, 3])
def test_two_noisy_rows_are_left_alone(lab, z, count):
    observed = lab.observe(divided(lab, range(count)), z, when=MAIN)
    assert ("plan" in observed) == (count == 3)


def test_a_batch_of_noisy_rows_is_re_matched_alone(lab, z):
    method = divided(lab, range(16))
    parts = method.loss(z, lab.observe(method, z, when=MAIN), slice(0, 16))
    assert parts["triplet"] == 0
    assert parts["rematched"] > 0


def test_the_plan_is_that_of_another_solver(lab, costs):
    found = partial_sinkhorn(costs, torch.ones_like(costs) > 0, mass=0.4, reg=0.1, iterations=100_000, threshold=1e-15)
    padded = torch.full((10, 10), 100 * float(costs.max()), dtype=torch.float64)
    padded[:9, :9], padded[9, 9] = costs, 201 * float(costs.max())
    marginal = torch.full((10,), 1 / 9, dtype=torch.float64)
    marginal[9] = 0.6
    options = {"method": "sinkhorn_log", "stopThr": 1e-13, "numItermax": 100_000}
    expected = torch.from_numpy(ot.sinkhorn(marginal.numpy(), marginal.numpy(), padded.numpy(), 0.1, **options))
    lab.assert_close(found, expected[:9, :9], rtol=1e-6, atol=1e-9)
    lab.assert_close(found.sum(), 0.4, rtol=1e-5)
    assert float(found.sum(0).max()) < 1 / 9 + 1e-9


def test_no_mass_goes_where_it_is_not_allowed(costs):
    allowed = torch.ones_like(costs, dtype=torch.bool).fill_diagonal_(False)
    allowed[0] = False  # a row with nothing allowed has the dust-bin alone
    plan = partial_sinkhorn(costs, allowed, mass=0.4, reg=0.01)
    assert bool(plan.isfinite().all())
    assert not plan[~allowed].any()
    assert bool((plan[allowed] > 0).all())


def test_the_plan_ends_as_in_the_official_code(costs):
    """At a move shorter than 1e-3, or after 1000 sweeps."""
    problem = (costs, torch.eye(9) == 0, 0.1, 0.01)
    assert torch.equal(partial_sinkhorn(*problem), partial_sinkhorn(*problem, threshold=1e-3))
    assert not torch.equal(partial_sinkhorn(*problem), partial_sinkhorn(*problem, threshold=1.1e-3))
    slow = (costs, torch.eye(9) == 0, 0.1, 3e-4)
    plans = [partial_sinkhorn(*slow, **sweeps, threshold=0.0) for sweeps in ({}, {"iterations": 1000})]
    assert torch.equal(*plans)
    assert not torch.equal(plans[0], partial_sinkhorn(*slow, iterations=1100, threshold=0.0))


def test_costs_that_are_symmetric_have_a_symmetric_plan(lab, costs):
    plan = partial_sinkhorn(costs + costs.T, torch.eye(9) == 0, 0.1, 0.07, iterations=10_000, threshold=1e-14)
    lab.assert_close(plan, plan.T)


def test_clean_is_the_component_of_the_smallest_loss(lab):
    """Of these losses the component started at the large end takes both ends, as in the official code."""
    probability, clean = lab.build_adapter(L2rm).division(torch.tensor([0, 0, 0.30, 0.31, 0.32, 0.33, 1, 1]).double())
    assert clean.tolist() == [True, True, False, False, False, False, True, True]
    lab.assert_close(probability, clean.double(), rtol=0.01, atol=0.01)


def test_clean_is_above_one_half(lab):
    """The fourth of these losses has probability 0.54, the ninth 0.49."""
    losses = torch.tensor([0, 0, 0, 0.40, 0.50, 0.60, 0.50, 0.55, 0.45, 0.52, 1, 1, 1]).double()
    probability, clean = lab.build_adapter(L2rm).division(losses)
    assert 0.5 < float(probability[3]) < 0.55
    assert clean.nonzero()[:, 0].tolist() == [0, 1, 2, 3]


def test_it_is_warm_until_its_share_is_over_and_a_pass_has_been_divided(lab, z):
    method = lab.build_adapter(L2rm, rows=20)
    assert "clean" not in lab.observe(method, z, when=MAIN), "nothing is divided yet"
    method.end_epoch(0)
    assert "clean" not in lab.observe(method, z), "still warm"
    assert "clean" in lab.observe(method, z, when=BORDER)
    assert 0 < int(method.clean[:16].sum()) < 16


def test_equal_losses_leave_all_rows_clean(lab, z):
    equal = {name: x[:1].expand(16, -1) for name, x in z.items()}
    method = lab.build_adapter(L2rm, rows=16)
    lab.observe(method, equal)
    method.end_epoch(0)
    assert bool(method.clean.all())


def test_a_learned_scale_stays_in_its_range(lab):
    method = lab.build_adapter(L2rm, learnable_scale=True, temperature=1e-3)
    method.after_step(lab.a_clock())
    lab.assert_close(method.scale(), 100.0, rtol=1e-6)
    assert not list(lab.build_adapter(L2rm).parameters())


def test_gradient_after_a_pass_is_that_of_the_loss(lab):
    """`bench check` sees the warm loss alone."""
    z = lab.oracle_inputs("R")
    method = divided(lab, [0, 2, 3, 5], regularisation=0.07, rematch_weight=1.0)
    given = lab.observe(method, z, when=MAIN)
    assert "plan" in given

    def loss(image, text):
        return tuple(method.loss({"image": image, "text": text}, given, slice(0, 7)).values())

    assert torch.autograd.gradcheck(loss, [z["image"], z["text"]])


def test_single_precision_is_near_double(lab, z):
    method = divided(lab, range(6), rematch_weight=1.0)
    single = {name: x.detach().float() for name, x in z.items()}
    exact, near = (lab.step_loss(method, x, when=MAIN) for x in (z, single))
    lab.assert_close(near.double(), exact, rtol=1e-4)
