"""OTTER: its plan, which column of a target is removed, the teacher's average, and both scales' limits.

Its values: bench/checks/oracles/finetuning.py.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.training import side_towers
from methods.clip import Clip
from methods.otter import Otter, OtterConfig
from methods.protocol import Facts


def batch(total, dim=5, seed=0):
    draws = torch.Generator().manual_seed(seed)
    names = ("image", "text", "side_image", "side_text")
    rows = {name: F.normalize(torch.randn(total, dim, generator=draws, dtype=torch.float64), dim=1) for name in names}
    return {name: x.requires_grad_(not name.startswith("side_")) for name, x in rows.items()}


def targets(lab, z, **config):
    observed = lab.observe(lab.build_adapter(Otter, **config), z)
    return observed["image_targets"], observed["text_targets"]


def printed(similarity, regularisation, iterations, removed):
    """The plan with loops over plain numbers, and its rows divided by their sums."""
    total = len(similarity)
    plan = [
        [0.0 if j in removed(i) else math.exp(similarity[i][j] / regularisation) for j in range(total)]
        for i in range(total)
    ]
    for _ in range(iterations):
        plan = [[x / sum(row) / total for x in row] for row in plan]
        sums = [sum(row[j] for row in plan) for j in range(total)]
        plan = [[x / sums[j] / total for j, x in enumerate(row)] for row in plan]
    return [[x / sum(row) for x in row] for row in plan]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(1, 6), st.sampled_from([0.15, 0.5]), st.booleans(), st.integers(0, 9))
def test_targets_as_printed(lab, total, iterations, regularisation, remove, seed):
    z = batch(total, seed=seed)
    weights = {"image_weight": 0.5, "text_weight": 2.0}
    found = targets(lab, z, iterations=iterations, regularisation=regularisation, remove_own=remove, **weights)
    image, text = z["side_image"], z["side_text"]
    alike, across = 0.5 * image @ image.T + 2.0 * text @ text.T, image @ text.T
    for actual, similarity in zip(found, (alike + across, alike + across.T), strict=True):
        wanted = printed(similarity.tolist(), regularisation, iterations, lambda i: {i} if remove else set())
        lab.assert_close(actual, wanted)
        lab.assert_close(actual.sum(1), torch.ones(total))


def test_many_iterations_give_a_balanced_target(lab):
    for target in targets(lab, batch(6), iterations=500, regularisation=0.5):
        lab.assert_close(target.sum(0), torch.ones(6), rtol=1e-6)
        assert not target.diagonal().any()


@pytest.mark.parametrize("transport", [True, False])
def test_two_pairs_are_each_others_targets_whatever_the_teacher_says(lab, transport):
    for seed in range(3):
        for target in targets(lab, batch(2, seed=seed), transport=transport):
            lab.assert_close(target, [[0.0, 1.0], [1.0, 0.0]])


def test_without_transport_targets_are_softmaxes(lab):
    z = batch(4)
    image, text = z["side_image"], z["side_text"]
    found = targets(lab, z, transport=False, remove_own=False, teacher_scale=7.0, image_weight=0.0, text_weight=0.0)
    lab.assert_close(found[0], (7 * image @ text.T).softmax(1))
    lab.assert_close(found[1], (7 * text @ image.T).softmax(1))


def test_a_teacher_that_agrees_costs_nothing(lab):
    z = batch(5)
    z |= {"side_image": z["image"].detach(), "side_text": z["text"].detach()}
    own = {"image_weight": 0.0, "text_weight": 0.0, "remove_own": False, "transport": False, "teacher_scale": 20.0}
    method = lab.build_adapter(Otter, alpha=0.25, distill_temperature=1 / 20, **own)
    terms = method.loss(z, lab.observe(method, z), slice(0, 5))
    lab.assert_close(terms["distilled"], 0.0)
    lab.assert_close(terms["contrastive"], 0.5 * lab.step_loss(lab.build_adapter(Clip, temperature=0.0202), z))


def test_the_loss_is_a_divergence_by_hand(lab):
    """Two pairs with targets exchanged: -ln of what each gives the other, twice, weighted 1 - alpha."""
    z = batch(2)
    method = lab.build_adapter(Otter, alpha=0.3, distill_temperature=0.5)
    terms = method.loss(z, lab.observe(method, z), slice(0, 2))
    s = (z["image"] @ z["text"].T / 0.5).detach()
    missed = -(s.log_softmax(1)[[0, 1], [1, 0]].mean() + s.T.log_softmax(1)[[0, 1], [1, 0]].mean())
    lab.assert_close(terms["distilled"], 0.7 * missed)


def test_blocks_remove_the_own_pair_of_the_first_block_alone(lab):
    z = batch(8)
    first, _ = targets(lab, z, blocks=4)
    zeros = [(i, i % 2) for i in range(8)]
    assert [(int(i), int(j)) for i, j in (first == 0).nonzero()] == zeros
    whole, _ = targets(lab, z)
    assert bool((whole.diagonal() == 0).all())
    assert int((whole == 0).sum()) == 8


def test_targets_move_with_the_rows(lab):
    z, order = batch(6), torch.tensor([3, 1, 5, 0, 2, 4])
    moved = {name: x[order] for name, x in z.items()}
    for one, other in zip(targets(lab, z), targets(lab, moved), strict=True):
        lab.assert_close(one[order][:, order], other)
    lab.assert_close(lab.step_loss(lab.build_adapter(Otter), z), lab.step_loss(lab.build_adapter(Otter), moved))


def test_without_distillation_its_scale_has_no_gradient(lab):
    z, method = batch(4), lab.build_adapter(Otter, alpha=1.0)
    loss = lab.step_loss(method, z)
    clip, distill = torch.autograd.grad(loss, [method.scale.rho, method.distill_scale.rho])
    assert float(clip) != 0
    assert float(distill) == 0
    lab.assert_close(loss, 2 * lab.step_loss(lab.build_adapter(Clip, temperature=0.0202), z))


@pytest.mark.parametrize("name", ["temperature", "distill_temperature"])
@pytest.mark.parametrize(("beyond", "limit"), [(0.001, 0.01), (7.0, 1.0)])
def test_limits_of_scales(lab, name, beyond, limit):
    """A scale beyond [1, 100] is clamped after the step, or officially in the loss, where it has no gradient."""
    z, attribute = batch(4), {"temperature": "scale", "distill_temperature": "distill_scale"}[name]
    step, at_limit = lab.build_adapter(Otter, **{name: beyond}), lab.build_adapter(Otter, **{name: limit})
    forward = lab.build_adapter(Otter, clamp="forward", **{name: beyond})
    losses = [lab.step_loss(method, z) for method in (step, forward, at_limit)]
    lab.assert_close(losses[1], losses[2])
    assert float((losses[0] - losses[2]).detach().abs()) > 0.01
    slopes = [
        float(torch.autograd.grad(loss, [getattr(method, attribute).rho])[0])
        for loss, method in zip(losses, (step, forward), strict=False)
    ]
    assert slopes[0] != 0
    assert slopes[1] == 0
    for method in (step, forward):
        method.after_step(lab.a_clock())
    scales = [float(getattr(method, attribute)().detach()) for method in (step, forward)]
    assert scales == pytest.approx([1 / limit, 1 / beyond])


def test_a_fixed_scale_is_no_parameter(lab):
    assert not list(lab.build_adapter(Otter, learnable_scale=False).parameters())
    assert len(list(lab.build_adapter(Otter).parameters())) == 2


def test_the_teacher_follows_slowly_but_not_from_the_start(lab, towers):
    method = Otter(OtterConfig(), Facts(rows=8, batch=8, dim=16, seed=0))
    side_towers.hold_average(method, towers)
    before = [x.clone() for x in towers.side.parameters()]
    with torch.no_grad():
        for x in towers.parameters():
            x.add_(1.0)
    side_towers.update_average(method, towers, lab.a_clock(0))
    for was, now in zip(before, towers.side.parameters(), strict=True):
        torch.testing.assert_close(now, was + 1 - 3 / 12)
    decays = [method.side_decay(lab.a_clock(step)) for step in (0, 1, 100, 8990, 10**5)]
    assert decays == pytest.approx([3 / 12, 4 / 13, 103 / 112, 0.999, 0.999], abs=1e-5)
    assert lab.build_adapter(Otter, decay=0.5).side_decay(lab.a_clock(100)) == 0.5


def test_the_teacher_gets_no_gradient(lab):
    towers = lab.TinyTowers()
    method = Otter(OtterConfig(), Facts(rows=8, batch=8, dim=16, seed=0))
    side_towers.hold_average(method, towers)
    z = method.encode(towers, lab.some_rows(towers, 4))
    assert {name for name, x in z.items() if x.requires_grad} == {"image", "text"}
    for name in ("image", "text"):
        torch.testing.assert_close(z[f"side_{name}"], z[name].detach())  # a copy of the same towers
        lab.assert_close(z[f"side_{name}"].norm(dim=1), torch.ones(4), rtol=1e-5)


@pytest.mark.parametrize(
    "bad",
    [
        {"alpha": 1.1},
        {"regularisation": 0.0},
        {"iterations": 0},
        {"blocks": 0},
        {"image_weight": -1.0},
        {"decay": 1.5},
        {"clamp": "never"},
        {"distill_temperature": 0.0},
        {"teacher_scale": math.inf},
    ],
)
def test_values_without_meaning_are_refused(bad):
    (field,) = bad
    with pytest.raises(ValueError, match=rf"Config\.{field} = "):
        OtterConfig(**bad)
