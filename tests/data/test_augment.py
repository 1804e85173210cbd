"""Augmentation: keyed by row, epoch, seed and view; mild; white around."""

import numpy as np
import pytest
import torch

import bench.data
from bench.catalogue.augmentations import fitting_augmentations
from bench.data.augment import augment
from bench.errors import UserError


@pytest.fixture(scope="module")
def images():
    return bench.data.load_dataset("emoji/train", 32).images(np.arange(96))


ROWS = np.arange(1000, 1096)


def test_company_in_the_batch_is_nothing(images):
    whole = augment(images, ROWS, 3, 0)
    for size in (1, 7, 33):
        parts = [augment(images[i : i + size], ROWS[i : i + size], 3, 0) for i in range(0, 96, size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(augment(images[::-1], ROWS[::-1], 3, 0), whole[::-1])


def test_threads_are_nothing(images):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = augment(images, ROWS, 0, 0)
        torch.set_num_threads(3)
        np.testing.assert_array_equal(augment(images, ROWS, 0, 0), one)
    finally:
        torch.set_num_threads(before)


def test_every_part_of_the_key_counts(images):
    base = augment(images, ROWS, 0, 0)
    for other in (
        augment(images, ROWS, 1, 0),
        augment(images, ROWS, 0, 1),
        augment(images, ROWS, 0, 0, view=1),
        augment(images, ROWS + 1, 0, 0),
    ):
        assert other.shape == images.shape
        assert other.dtype == np.uint8
        assert (other != base).any(axis=(1, 2, 3)).mean() > 0.95


def test_it_stays_the_same_picture_on_white(images):
    """Nearest neighbours in pixels: an augmented picture is closer to its own source than to most others."""
    drawn = augment(images, ROWS, 0, 0).reshape(96, -1).astype(float)
    source = np.concatenate([images, images[:, :, ::-1]]).reshape(192, -1).astype(float)
    distance = ((drawn[:, None] - source[None]) ** 2).mean(-1).reshape(96, 2, 96).min(axis=1)
    rank = (distance < np.diag(distance)[:, None]).sum(axis=1)
    assert np.median(rank) < 5
    blank = np.full((8, 32, 32, 3), 255, np.uint8)
    np.testing.assert_array_equal(augment(blank, ROWS[:8], 0, 0), blank)


def test_half_of_the_emoji_are_mirrored_and_no_digit():
    left = np.full((400, 32, 32, 3), 255, np.uint8)
    left[:, 8:24, 8:14] = 0
    centre = np.arange(32)[None, :]
    for recipe, share in (("emoji", 0.5), ("digits", 0.0)):
        ink = 255.0 - augment(left, np.arange(400), 0, 0, recipe=recipe)[..., 0]
        right = ((ink.sum(axis=1) * centre).sum(axis=1) / ink.sum(axis=(1, 2))) > 16
        assert right.mean() == pytest.approx(share, abs=0.08)


def test_recipes(images):
    assert augment(images, ROWS, 0, 0, recipe="none") is images
    assert set(fitting_augmentations("drawn art")) == {"none", "emoji", "digits"}
    with pytest.raises(UserError, match="augment is 'emojy'; did you mean 'emoji'"):
        augment(images, ROWS, 0, 0, recipe="emojy")
