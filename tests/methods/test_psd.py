"""PSD (reconstructed): which rows are soft, what their targets are, and when distillation teaches nothing.

Its values: bench/checks/oracles/losses.py.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from methods.protocol import Clock
from methods.psd import Psd


def at(progress, step=0):
    return Clock(step, "train", progress, 0)


def soft_rows(lab, progress, step=0, total=64, seed=0, **config):
    method = lab.build_adapter(Psd, seed=seed, **config)
    return lab.observe(method, {"image": torch.zeros(total, 2)}, when=at(progress, step))["soft"]


def test_the_soft_share_grows_along_half_a_cosine(lab):
    counts = [int(soft_rows(lab, progress / 20).sum()) for progress in range(20)]
    assert counts[0] == 0
    assert counts[10] == 16
    assert counts == sorted(counts)
    assert 30 <= counts[-1] <= 32
    assert int(soft_rows(lab, 0.999, soft=1.0).sum()) == 63
    assert int(soft_rows(lab, 0.999, soft=0.0).sum()) == 0


def test_soft_rows_are_drawn_anew_by_seed_and_step(lab):
    first = soft_rows(lab, 0.5)
    assert torch.equal(first, soft_rows(lab, 0.5))
    assert not torch.equal(first, soft_rows(lab, 0.5, step=1))
    assert not torch.equal(first, soft_rows(lab, 0.5, seed=1))
    drawn = torch.stack([soft_rows(lab, 0.5, step) for step in range(40)]).double().mean(0)
    assert 0.02 < float(drawn.min()) <= float(drawn.max()) < 0.6


SOFT = torch.tensor([False, True, True, False, False, True])


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("sharpen", [0.0, 0.5, 1.0])
def test_targets_are_one_hot_or_the_teachers(lab, case, swap, sharpen):
    z, method = case("B"), lab.build_adapter(Psd, swap=swap, sharpen=sharpen)
    with torch.no_grad():
        targets = method.draw(z, {"soft": SOFT}, slice(1, 5))
        logits = sharpen * z["image"] @ z["text"].T / 0.07
    own, other = logits.softmax(1), logits.T.softmax(1)
    wanted = {"image_targets": other if swap else own, "text_targets": own if swap else other}
    hard = ~SOFT[1:5]
    for name, teacher in wanted.items():
        lab.assert_close(targets[name][~hard], teacher[1:5][~hard])
        assert torch.equal(targets[name][hard], torch.eye(6, dtype=torch.float64)[1:5][hard])
        lab.assert_close(targets[name].sum(1), torch.ones(4))


def gradients(loss, z):
    return torch.autograd.grad(loss, list(z.values()))


def test_without_a_swap_soft_rows_teach_nothing(lab, case):
    """Its gradient is CLIP's of the hard anchors alone: a model that is its own target is at rest."""
    z = case("B")
    distilled = gradients(lab.sum_of_tiles(lab.build_adapter(Psd, swap=False), z, {"soft": SOFT}), z)
    logits, rows = z["image"] @ z["text"].T / 0.07, torch.arange(6)
    hard = sum(F.cross_entropy(x[~SOFT], rows[~SOFT], reduction="sum") for x in (logits, logits.T)) / 12
    for one, other in zip(distilled, gradients(hard, z), strict=True):
        lab.assert_close(one, other)
    swapped = gradients(lab.sum_of_tiles(lab.build_adapter(Psd), z, {"soft": SOFT}), z)
    assert not torch.allclose(swapped[0], distilled[0], atol=1e-3)


def test_on_symmetric_similarities_the_swap_changes_nothing(lab, case):
    image = case("B")["image"]
    z = {"image": image, "text": image}
    losses = [lab.sum_of_tiles(lab.build_adapter(Psd, swap=swap), z, {"soft": SOFT}) for swap in (False, True)]
    lab.assert_close(*losses)


def test_a_sharp_teacher_names_the_row_that_it_finds_most_alike(lab, case):
    z = case("B")
    loss = lab.sum_of_tiles(lab.build_adapter(Psd, swap=False, sharpen=1e6), z, {"soft": SOFT})
    logits, rows = z["image"] @ z["text"].T / 0.07, torch.arange(6)
    labels = [torch.where(SOFT, x.argmax(1), rows) for x in (logits, logits.T)]
    lab.assert_close(loss, sum(F.cross_entropy(x, y) for x, y in zip((logits, logits.T), labels, strict=True)) / 2)


def test_targets_are_constants(lab, case, assert_same_gradients):
    """The gradient is that of the loss with the targets given as other tensors of the same value."""
    method, z = lab.build_adapter(Psd), case("A")
    with torch.no_grad():
        drawn = method.draw(z, {"soft": SOFT[:4]}, slice(0, 4))
    given = {name: x.clone() for name, x in drawn.items()}
    losses = lab.sum_of_tiles(method, z, {"soft": SOFT[:4]}), method.loss(z, given, slice(0, 4))["contrastive"]
    assert_same_gradients(*losses, z.values())


def test_equal_embeddings_and_a_batch_of_two(lab, case):
    image = case("B")["image"].detach()[:1].expand(2, -1)
    z = {"image": image.clone().requires_grad_(), "text": image.clone().requires_grad_()}
    loss = lab.step_loss(lab.build_adapter(Psd, soft=1.0), z, when=at(0.9))
    lab.assert_close(loss, math.log(2))
    assert all(bool(x.isfinite().all()) for x in gradients(loss, z))
