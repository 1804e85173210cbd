"""CLIP, SigLIP and the label augmentations against literal values of other implementations."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from methods.base import portion
from methods.clip import Clip
from methods.label_permutation import LabelPermutation
from methods.label_reselection import LabelReselection
from methods.label_secondary import LabelSecondary
from methods.protocol import Batch
from methods.siglip import Siglip


def check_gradients(lab, z, expected):
    for name, key in (("image", "grad_image"), ("text", "grad_text")):
        lab.assert_close(z[name].grad, expected[key])


def given_labels(lab, method, z, labels):
    """The loss with labels from outside in place of drawn ones."""
    observed = {name: torch.tensor(row) for name, row in labels.items()}
    return lab.sum_of_tiles(method, z, observed)


@pytest.mark.parametrize("temperature", [0.07, 0.01, 1.0])
def test_clip_equals_the_official_loss(lab, oracles, case, temperature):
    found = next(c for c in oracles["clip"]["cases"] if c["temperature"] == temperature)
    for name, expected in found["out"].items():
        method = lab.build(Clip, temperature=temperature, learnable_scale=False)
        method.scale.rho.fill_(-math.log(temperature))
        z = case(name)
        loss = lab.objective(method, z)
        lab.assert_close(loss, expected["loss"])
        loss.backward()
        check_gradients(lab, z, expected)


def test_clip_gradient_of_the_scale_and_single_precision(lab, oracles, case):
    method = lab.build(Clip)
    torch.nn.init.constant_(method.scale.rho, -math.log(0.07))
    lab.objective(method, case("A")).backward()
    lab.assert_close(method.scale.rho.grad, oracles["clip"]["grad_log_scale_A_at_0.07"])
    single = lab.objective(method.float(), case("A", torch.float32))
    assert single.dtype == torch.float32
    lab.assert_close(single, oracles["clip"]["cases"][0]["out"]["A"]["loss"], rtol=1e-4)


def test_clip_of_uniform_embeddings_and_of_scale_towards_zero_is_log_batch(lab, case):
    uniform = torch.ones(6, 5, dtype=torch.float64) / math.sqrt(5)
    lab.assert_close(lab.objective(lab.build(Clip), {"image": uniform, "text": uniform}), math.log(6))
    flat = lab.build(Clip, temperature=1e12, learnable_scale=False)
    lab.assert_close(lab.objective(flat, case("A")), math.log(4))


@pytest.mark.parametrize("kind", [Clip, Siglip])
def test_symmetric_in_modalities_and_in_the_order_of_pairs(lab, case, kind):
    z, method = case("B"), lab.build(kind)
    loss = lab.objective(method, z)
    lab.assert_close(lab.objective(method, {"image": z["text"], "text": z["image"]}), loss)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    lab.assert_close(lab.objective(method, {name: x[order] for name, x in z.items()}), loss)


def test_siglip_equals_the_official_loss(lab, oracles, case):
    for name, expected in oracles["siglip"]["cases"][0]["out"].items():
        method, z = lab.build(Siglip), case(name)
        torch.nn.init.constant_(method.scale.rho, math.log(10))
        loss = lab.objective(method, z)
        lab.assert_close(loss, expected["loss"])
        loss.backward()
        check_gradients(lab, z, expected)
        lab.assert_close([method.scale.rho.grad, method.bias.grad], expected["grad_extra"])


def test_siglip_on_unnormalised_embeddings(lab, oracles, case):
    method = lab.build(Siglip, unnormalised=True)
    torch.nn.init.constant_(method.scale.rho, math.log(10))
    z = {name: 3 * x for name, x in case("A").items()}
    lab.assert_close(lab.objective(method, z), oracles["siglip"]["nuclr_repo"]["on_embeddings_multiplied_by_3"])
    towers = lab.TinyTowers()
    raw = method.float().encode(towers, lab.some_rows(towers, 4))["image"]
    assert not torch.allclose(raw.norm(dim=1), torch.ones(4), atol=1e-3)
    unit = lab.build(Siglip).float().encode(towers, lab.some_rows(towers, 4))["image"]
    lab.assert_close(unit.norm(dim=1), torch.ones(4), rtol=1e-5)


def test_siglip_identities(lab, case):
    z = case("B")
    flat = lab.build(Siglip, scale=1.0, bias=0.0)
    torch.nn.init.constant_(flat.scale.rho, -1e9)
    lab.assert_close(lab.objective(flat, z), 6 * math.log(2))
    method = lab.build(Siglip, scale=4.0, bias=-1.0)
    logits = method.scale() * z["image"] @ z["text"].T - 1.0
    targets = torch.eye(6, dtype=torch.float64)
    lab.assert_close(lab.objective(method, z), F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / 6)


@pytest.mark.parametrize("name", ["A", "C"])
def test_label_augmentations_equal_the_oracle_for_given_labels(lab, oracles, case, name):
    for key, expected in oracles["label_augmentation"]["cases"][name].items():
        labels, other = expected["labels"], expected.get("inverse", expected["labels"])
        if key.startswith("secondary"):
            mixture = "additive" if "additive" in key else "convex"
            method = lab.build(LabelSecondary, gamma=expected["gamma"], mixture=mixture)
            given = {"labels": labels}
        elif key.startswith("reselect"):
            method, given = lab.build(LabelReselection), {"labels": labels}
        else:
            method, given = lab.build(LabelPermutation), {"image_labels": labels, "text_labels": other}
        torch.nn.init.constant_(method.scale.rho, -math.log(0.07))
        z = case(name)
        loss = given_labels(lab, method, z, given)
        lab.assert_close(loss, expected["loss"])
        loss.backward()
        check_gradients(lab, z, expected)


@pytest.mark.parametrize("kind", [LabelPermutation, LabelReselection, LabelSecondary])
def test_gamma_zero_is_clip(lab, case, kind):
    lab.assert_close(lab.objective(lab.build(kind, gamma=0.0), case("B")), lab.objective(lab.build(Clip), case("B")))


def smoothed(z, epsilon):
    """CLIP with label smoothing, scale 1/0.07."""
    logits = z["image"] @ z["text"].T / 0.07
    total = len(logits)
    targets = (1 - epsilon) * torch.eye(total, dtype=torch.float64) + epsilon / total
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2


def mean_loss(lab, method, z, all_labels):
    labels = [torch.tensor(row) for row in all_labels]
    torch.nn.init.constant_(method.scale.rho, -math.log(0.07))
    names = ("labels", "image_labels", "text_labels")
    return torch.stack([lab.sum_of_tiles(method, z, dict.fromkeys(names, row)) for row in labels]).mean()


def test_expectations_over_labels_are_label_smoothing(lab, oracles, case):
    z, expected = case("A"), oracles["label_augmentation"]["expectation_identities_A"]
    permutations = list(itertools.permutations(range(4)))
    secondary = mean_loss(lab, lab.build(LabelSecondary, gamma=0.3), z, permutations)
    lab.assert_close(secondary, smoothed(z, 0.3))
    lab.assert_close(secondary, expected["secondary_convex_g0_3_mean_over_all_24_permutations"])
    uniform = list(itertools.product(range(4), repeat=4))
    lab.assert_close(mean_loss(lab, lab.build(LabelSecondary, gamma=0.3, draw="uniform"), z, uniform), secondary)

    pairs = list(itertools.combinations(range(4), 2))
    swapped = [[{a: b, b: a}.get(i, i) if swap else i for i in range(4)] for a, b in pairs for swap in (0, 1)]
    permuted = mean_loss(lab, lab.build(LabelPermutation, gamma=0.5), z, swapped)
    lab.assert_close(permuted, smoothed(z, 4 / 3 * 0.5 * (1 - 1 / 2)))
    lab.assert_close(permuted, expected["permutation_subset2_of_4_mean"])

    redrawn = [[{a: x, b: y}.get(i, i) for i in range(4)] for a, b in pairs for x in range(4) for y in range(4)]
    reselected = mean_loss(lab, lab.build(LabelReselection, gamma=0.5), z, redrawn)
    lab.assert_close(reselected, smoothed(z, 0.5))
    lab.assert_close(reselected, expected["reselection_subset2_of_4_mean"])


def test_additive_is_convex_after_rescaling(lab, case):
    z, gamma, labels = case("A"), 0.3, {"labels": [1, 2, 3, 0]}
    additive = given_labels(lab, lab.build(LabelSecondary, gamma=gamma, mixture="additive"), z, labels)
    convex = given_labels(lab, lab.build(LabelSecondary, gamma=gamma / (1 + gamma)), z, labels)
    lab.assert_close(additive / (1 + gamma), convex)


@pytest.mark.parametrize("kind", [LabelPermutation, LabelReselection, LabelSecondary])
def test_permuting_the_batch_with_its_labels_changes_nothing(lab, case, kind):
    z, labels, order = case("B"), torch.tensor([2, 1, 0, 3, 3, 5]), torch.tensor([3, 1, 5, 0, 2, 4])
    moved = order.argsort()[labels][order]  # where the target of each row went
    names, method = ("labels", "image_labels", "text_labels"), lab.build(kind, gamma=0.4)
    loss = lab.sum_of_tiles(method, z, dict.fromkeys(names, labels))
    permuted = lab.sum_of_tiles(method, {name: x[order] for name, x in z.items()}, dict.fromkeys(names, moved))
    lab.assert_close(permuted, loss)


def test_portions_are_those_of_exact_arithmetic():
    assert [portion(0.29, 100), portion(0.1, 8), portion(0.125, 128), portion(1.0, 7)] == [29, 0, 16, 7]


def drawn(lab, method, total, step):
    z = {"image": torch.zeros(total, 2)}
    return method.observe(z, Batch(torch.arange(total), lab.clock(step)))


def test_drawn_permutations_are_bijections_that_move_at_most_their_share(lab):
    method = lab.build(LabelPermutation, gamma=0.29, text_labels="inverse")
    moved = []
    for step in range(30):
        labels = drawn(lab, method, 100, step)
        forward, backward = labels["image_labels"], labels["text_labels"]
        assert sorted(forward.tolist()) == list(range(100))
        assert torch.equal(backward[forward], torch.arange(100))
        moved.append(int((forward != torch.arange(100)).sum()))
    assert max(moved) <= 29
    assert sum(moved) / 30 > 26  # one of 29 stays in place on average
    same = drawn(lab, lab.build(LabelPermutation, gamma=0.29), 100, 0)
    assert torch.equal(same["image_labels"], same["text_labels"])
    assert torch.equal(drawn(lab, lab.build(LabelPermutation, gamma=0.01), 100, 3)["image_labels"], torch.arange(100))


def test_drawn_reselections_and_secondaries(lab):
    labels = [drawn(lab, lab.build(LabelReselection, gamma=0.5), 100, step)["labels"] for step in range(40)]
    assert all(set(x.tolist()) <= set(range(100)) for x in labels)
    changed = [int((x != torch.arange(100)).sum()) for x in labels]
    assert max(changed) <= 50
    assert sum(changed) / 40 > 48  # one in a hundred draws itself
    assert any(len(x.unique()) < 100 for x in labels)
    permuted = drawn(lab, lab.build(LabelSecondary), 100, 0)["labels"]
    assert sorted(permuted.tolist()) == list(range(100))
    uniform = drawn(lab, lab.build(LabelSecondary, draw="uniform"), 100, 0)["labels"]
    assert 50 < len(uniform.unique()) < 80  # 63 expected


@pytest.mark.parametrize("kind", [LabelPermutation, LabelReselection, LabelSecondary])
def test_draws_depend_on_seed_and_step(lab, kind):
    def labels(seed, step):
        return torch.cat(list(drawn(lab, lab.build(kind, gamma=0.5, seed=seed), 64, step).values()))

    assert torch.equal(labels(0, 1), labels(0, 1))
    assert not torch.equal(labels(0, 1), labels(0, 2))
    assert not torch.equal(labels(0, 1), labels(1, 1))
