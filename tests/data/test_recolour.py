"""Augmentations of photographs follow from their draws alone. Levels are compared with torchvision in test_photo."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bench.data import recolour
from bench.data.recolour import auto_augment, jitter_or_grey, rand_augment

numbers = st.floats(0, 1, exclude_max=True)


def picture(seed: int = 0, size: tuple[int, int] = (24, 18)) -> Image.Image:
    corners = np.random.default_rng(seed).integers(0, 255, (3, 3, 3), dtype=np.uint8)
    return Image.fromarray(corners).resize(size, Image.Resampling.BICUBIC)


def array(image: Image.Image) -> np.ndarray:
    return np.asarray(image).astype(np.int64)


@settings(deadline=None, max_examples=80)
@given(st.lists(numbers, min_size=10, max_size=10), st.integers(0, 3))
def test_any_draws_give_an_rgb_picture_of_the_same_size_twice(draws, seed):
    for change in (rand_augment, auto_augment, jitter_or_grey):
        image = picture(seed)
        before = array(image)
        first, second = change(image, draws), change(picture(seed), draws)
        assert (first.mode, first.size) == ("RGB", image.size)
        np.testing.assert_array_equal(array(first), array(second))
        np.testing.assert_array_equal(array(image), before)  # what it is given is left as it was


def test_the_global_generator_neither_moves_nor_matters():
    draws = [0.3, 0.6]
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = array(auto_augment(picture(), draws))
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    np.testing.assert_array_equal(array(auto_augment(picture(), draws)), first)


def test_both_draws_choose_the_policy():
    drawn = np.random.default_rng(0).random(50).tolist()
    assert len({auto_augment(picture(), [draw, 0.5]).tobytes() for draw in drawn}) > 5
    assert len({auto_augment(picture(), [0.5, draw]).tobytes() for draw in drawn}) > 5


def test_a_sign_mirrors_a_shear_and_a_shift():
    """Operations 5 to 9 at a positive and a negative level, of a picture that is its own mirror image."""
    half = array(picture())
    for number, axis in ((5, 1), (6, 0), (7, 1), (8, 0)):
        own = Image.fromarray(np.concatenate([half, np.flip(half, axis)], axis).astype(np.uint8))
        draws = [(number + 0.5) / 10, 0.0]
        plus, minus = (array(rand_augment(own, [*draws, sign, 0, 0.9, 0])) for sign in (0.9, 0.1))
        assert (plus != array(own)).any()
        if number in (7, 8):
            np.testing.assert_array_equal(plus, np.flip(minus, axis))
        assert (plus != minus).any()


def test_what_enters_the_frame_is_grey():
    white = Image.new("RGB", (20, 20), "white")
    moved = array(rand_augment(white, [0.75, 0.0, 0.9, 0, 0.9, 0]))  # 7 pixels across
    assert (moved[:, :13] == 255).all()
    assert (moved[:, 13:] == 128).all()


def test_both_operations_are_done_in_turn():
    image = picture()
    one, two = [0.35, 0.2, 0.3], [0.45, 0.2, 0.8]
    first = rand_augment(image, [*one, 0, 0.5, 0])
    np.testing.assert_array_equal(array(rand_augment(image, one + two)), array(rand_augment(first, [*two, 0, 0.5, 0])))
    assert (array(rand_augment(image, one + two)) != array(first)).any()


def test_grey_is_drawn_apart_from_the_jitter():
    image, middle = picture(), [0.5] * 8
    np.testing.assert_array_equal(array(jitter_or_grey(image, [0.9, *middle, 0.2])), array(image))
    for first in (0.9, 0.1):
        grey = array(jitter_or_grey(image, [first, *middle, 0.1]))
        assert (grey == grey[..., :1]).all()
    np.testing.assert_array_equal(array(jitter_or_grey(image, [0.9, *middle, 0.1]))[..., 0], array(image.convert("L")))


@pytest.mark.parametrize(("place", "quantity"), [(1, np.mean), (2, np.std), (3, lambda x: np.ptp(x, axis=-1).mean())])
def test_each_draw_moves_its_own_quantity(place, quantity):
    """Brightness, contrast and saturation, less below 0.5 and more above."""
    image = picture().point(lambda value: 60 + value // 2)  # so that nothing is clipped
    values = []
    for draw in (0.0, 0.5, 0.999):
        draws = [0.1, *[0.5] * 8, 0.9]
        draws[place] = draw
        values.append(quantity(array(jitter_or_grey(image, draws))))
    assert values[0] < values[1] < values[2]
    assert values[0] / values[1] == pytest.approx(0.68, abs=0.08)


def test_the_order_of_the_jitter_is_drawn():
    image = picture()
    draws = [0.1, 0.9, 0.9, 0.9, 0.9]
    orders = {jitter_or_grey(image, [*draws, *order, 0.9]).tobytes() for order in np.eye(4).tolist()}
    assert len(orders) > 1


def test_a_whole_turn_of_the_hue_is_none():
    image = picture()
    still = array(recolour._turn_hue(image, 0.0))
    np.testing.assert_array_equal(array(recolour._turn_hue(image, 256 / 255)), still)
    red = Image.new("RGB", (2, 2), (200, 0, 0))
    assert array(recolour._turn_hue(red, 1 / 3))[0, 0].argmax() == 1
    assert array(recolour._turn_hue(red, -1 / 3))[0, 0].argmax() == 2
