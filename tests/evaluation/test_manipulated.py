"""Hidden squares and attacks on pixels: how much they change, and that an attack does what it is for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bench import data
from bench.checks import lab
from bench.data import MemoryPairs, Pairs
from bench.evaluation.features import Features
from bench.evaluation.probabilistic.manipulated import EPS, MEAN_COLOUR, attacked, occluded, with_pixels
from methods.clip import Clip
from methods.protocol import Facts


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    whole = data.load("emoji/iid", 32)
    few = np.arange(12)
    texts = [whole.captions(row) for row in few.tolist()]
    labels = {name: values[few] for name, values in whole.labels.items()}
    return MemoryPairs.build("few", "", list(whole.keys[:12]), texts, labels, whole.classes, whole.images(few))


def test_a_square_of_the_middle_is_hidden(pairs: Pairs) -> None:
    before, after = (one.images(np.arange(12)) for one in (pairs, occluded(pairs, 0.25)))
    assert (after[:, 8:24, 8:24] == MEAN_COLOUR).all()
    untouched = np.ones((32, 32), bool)
    untouched[8:24, 8:24] = False
    assert np.array_equal(before[:, untouched], after[:, untouched])
    assert np.array_equal(occluded(pairs, 0.0).images(np.arange(12)), before)
    assert (occluded(pairs, 1.0).images(np.arange(12)) == MEAN_COLOUR).all()


def test_an_attack_raises_the_loss_within_its_bounds(pairs: Pairs) -> None:
    towers = lab.TinyTowers("vit")
    method = Clip(Clip.Config(), Facts(rows=12, batch=12, dim=towers.dim, seed=0))
    features = Features(method, towers, "checkpoint", "1", None)
    labels, classes = torch.arange(12) % 5, F.normalize(torch.randn(5, towers.dim, generator=torch.Generator()))

    def losses(images: Pairs) -> torch.Tensor:
        cosines = features.images(images)["embedding"] @ classes.T
        return F.cross_entropy(10 * cosines, labels, reduction="none")

    before = pairs.images(np.arange(12)).astype(int)
    one, ten = (attacked(features, pairs, labels, classes, count) for count in (1, 10))
    for moved in (one, ten):
        assert np.abs(moved.images(np.arange(12)).astype(int) - before).max() <= EPS
    assert (losses(ten) > losses(pairs)).all()
    assert losses(ten).mean() > losses(one).mean() > losses(pairs).mean()
    assert not any(parameter.grad is not None for parameter in towers.parameters())


def test_other_images_are_other_content(pairs: Pairs) -> None:
    moved = with_pixels(pairs, pairs.images(np.arange(12)) // 2)
    assert moved.content_hash != pairs.content_hash
    assert [moved.captions(row) for row in range(12)] == [pairs.captions(row) for row in range(12)]
