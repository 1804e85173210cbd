"""CLIP, SigLIP and the label augmentations: identities and draws. Their oracles are in bench/checks/oracles."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from methods.clip import Clip
from methods.label_permutation import LabelPermutation
from methods.label_reselection import LabelReselection
from methods.label_secondary import LabelSecondary
from methods.siglip import Siglip


def test_clip_in_single_precision(lab, oracles, case):
    single = lab.step_loss(lab.build_adapter(Clip).float(), case("A", torch.float32))
    assert single.dtype == torch.float32
    lab.assert_close(single, oracles["clip"]["cases"][0]["out"]["A"]["loss"], rtol=1e-4)


def test_clip_of_uniform_embeddings_and_of_scale_towards_zero_is_log_batch(lab, case):
    uniform = torch.ones(6, 5, dtype=torch.float64) / math.sqrt(5)
    lab.assert_close(lab.step_loss(lab.build_adapter(Clip), {"image": uniform, "text": uniform}), math.log(6))
    flat = lab.build_adapter(Clip, temperature=1e12, learnable_scale=False)
    lab.assert_close(lab.step_loss(flat, case("A")), math.log(4))


@pytest.mark.parametrize("kind", [Clip, Siglip])
def test_symmetric_in_modalities_and_in_the_order_of_pairs(lab, case, kind):
    z, method = case("B"), lab.build_adapter(kind)
    loss = lab.step_loss(method, z)
    lab.assert_close(lab.step_loss(method, {"image": z["text"], "text": z["image"]}), loss)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    lab.assert_close(lab.step_loss(method, {name: x[order] for name, x in z.items()}), loss)


def test_siglip_can_leave_embeddings_as_they_are(lab):
    towers = lab.TinyTowers()
    raw = lab.build_adapter(Siglip, unnormalised=True).float().encode(towers, lab.some_rows(towers, 4))["image"]
    assert not torch.allclose(raw.norm(dim=1), torch.ones(4), atol=1e-3)
    unit = lab.build_adapter(Siglip).float().encode(towers, lab.some_rows(towers, 4))["image"]
    lab.assert_close(unit.norm(dim=1), torch.ones(4), rtol=1e-5)


def test_siglip_identities(lab, case):
    z = case("B")
    flat = lab.build_adapter(Siglip, scale=1.0, bias=0.0)
    torch.nn.init.constant_(flat.scale.rho, -1e9)
    lab.assert_close(lab.step_loss(flat, z), 6 * math.log(2))
    method = lab.build_adapter(Siglip, scale=4.0, bias=-1.0)
    logits = method.scale() * z["image"] @ z["text"].T - 1.0
    targets = torch.eye(6, dtype=torch.float64)
    lab.assert_close(lab.step_loss(method, z), F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / 6)


def smoothed(z, epsilon):
    """CLIP with label smoothing, scale 1/0.07."""
    logits = z["image"] @ z["text"].T / 0.07
    total = len(logits)
    targets = (1 - epsilon) * torch.eye(total, dtype=torch.float64) + epsilon / total
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2


def mean_loss(lab, method, z, all_labels):
    names = ("labels", "image_labels", "text_labels")
    losses = [lab.sum_of_tiles(method, z, dict.fromkeys(names, torch.tensor(row))) for row in all_labels]
    return torch.stack(losses).mean()


def redrawn(rows, labels):
    """Labels of four rows, of which `rows` have others."""
    given = dict(zip(rows, labels, strict=True))
    return [given.get(row, row) for row in range(4)]


def test_secondary_labels_drawn_one_by_one_are_label_smoothing_too(lab, case):
    method, every = (
        lab.build_adapter(LabelSecondary, gamma=0.3, draw="uniform"),
        list(itertools.product(range(4), repeat=4)),
    )
    lab.assert_close(mean_loss(lab, method, case("A"), every), smoothed(case("A"), 0.3))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_expectations_over_labels_are_label_smoothing(lab, case, count):
    z, subsets = case("A"), list(itertools.combinations(range(4), count))
    permuted = [redrawn(rows, order) for rows in subsets for order in itertools.permutations(rows)]
    expected = smoothed(z, 4 / 3 * count / 4 * (1 - 1 / count))
    lab.assert_close(mean_loss(lab, lab.build_adapter(LabelPermutation), z, permuted), expected)
    reselected = [redrawn(rows, row) for rows in subsets for row in itertools.product(range(4), repeat=count)]
    lab.assert_close(mean_loss(lab, lab.build_adapter(LabelReselection), z, reselected), smoothed(z, count / 4))


@pytest.mark.parametrize("kind", [LabelPermutation, LabelReselection, LabelSecondary])
def test_permuting_the_batch_with_its_labels_changes_nothing(lab, case, kind):
    z, labels, order = case("B"), torch.tensor([2, 1, 0, 3, 3, 5]), torch.tensor([3, 1, 5, 0, 2, 4])
    moved = order.argsort()[labels][order]  # where the target of each row went
    names, method = ("labels", "image_labels", "text_labels"), lab.build_adapter(kind, gamma=0.4)
    loss = lab.sum_of_tiles(method, z, dict.fromkeys(names, labels))
    permuted = lab.sum_of_tiles(method, {name: x[order] for name, x in z.items()}, dict.fromkeys(names, moved))
    lab.assert_close(permuted, loss)


def drawn(lab, method, total, step):
    return lab.observe(method, {"image": torch.zeros(total, 2)}, when=lab.a_clock(step))


def test_drawn_permutations_are_bijections_that_move_at_most_their_share(lab):
    method = lab.build_adapter(LabelPermutation, gamma=0.29, text_labels="inverse")
    moved = []
    for step in range(30):
        labels = drawn(lab, method, 100, step)
        forward, backward = labels["image_labels"], labels["text_labels"]
        assert sorted(forward.tolist()) == list(range(100))
        assert torch.equal(backward[forward], torch.arange(100))
        moved.append(int((forward != torch.arange(100)).sum()))
    assert max(moved) <= 29
    assert sum(moved) / 30 > 26  # one of 29 stays in place on average
    same = drawn(lab, lab.build_adapter(LabelPermutation, gamma=0.29), 100, 0)
    assert torch.equal(same["image_labels"], same["text_labels"])
    assert torch.equal(
        drawn(lab, lab.build_adapter(LabelPermutation, gamma=0.01), 100, 3)["image_labels"], torch.arange(100)
    )


def test_drawn_reselections_and_secondaries(lab):
    labels = [drawn(lab, lab.build_adapter(LabelReselection, gamma=0.5), 100, step)["labels"] for step in range(40)]
    assert all(set(x.tolist()) <= set(range(100)) for x in labels)
    changed = [int((x != torch.arange(100)).sum()) for x in labels]
    assert max(changed) <= 50
    assert sum(changed) / 40 > 48  # one in a hundred draws itself
    assert any(len(x.unique()) < 100 for x in labels)
    permuted = drawn(lab, lab.build_adapter(LabelSecondary), 100, 0)["labels"]
    assert sorted(permuted.tolist()) == list(range(100))
    uniform = drawn(lab, lab.build_adapter(LabelSecondary, draw="uniform"), 100, 0)["labels"]
    assert 50 < len(uniform.unique()) < 80  # 63 expected


@pytest.mark.parametrize("kind", [LabelPermutation, LabelReselection, LabelSecondary])
def test_draws_depend_on_seed_and_step(lab, kind):
    def labels(seed, step):
        return torch.cat(list(drawn(lab, lab.build_adapter(kind, gamma=0.5, seed=seed), 64, step).values()))

    assert torch.equal(labels(0, 1), labels(0, 1))
    assert not torch.equal(labels(0, 1), labels(0, 2))
    assert not torch.equal(labels(0, 1), labels(1, 1))
