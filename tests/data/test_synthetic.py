"""Pairs of noise and numbered captions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.data import Pairs, synthetic
from bench.data.order import epoch_order
from bench.errors import UserError


@given(st.integers(2, 300), st.slices(300))
def test_keys_are_row_numbers_in_byte_order(n, part):
    keys = synthetic.make_synthetic_pairs("cc3m", f"synthetic:{n}", 4).keys
    expected = [f"{row:010d}" for row in range(n)]
    assert list(keys) == sorted(expected, key=str.encode) == expected
    assert keys[part] == expected[part]
    assert keys[-1] == expected[-1]
    with pytest.raises(IndexError):
        keys[n]


def test_they_are_pairs_with_nothing_in_common_but_pictures():
    pairs = synthetic.make_synthetic_pairs("cc3m", "synthetic:200", 4)
    assert isinstance(pairs, Pairs)
    assert (len(pairs), pairs.name, pairs.labels, pairs.classes) == (200, "cc3m", {}, {})
    assert len({pairs.captions(row) for row in range(200)}) == 200
    images = pairs.images(np.arange(200))
    assert (images.shape, images.dtype) == ((200, 4, 4, 3), np.uint8)
    np.testing.assert_array_equal(images[:136], images[64:])
    assert len({image.tobytes() for image in images}) == 64
    np.testing.assert_array_equal(pairs.sampled(np.array([3]), 5, 6, 1, "clip"), images[3:4])
    np.testing.assert_array_equal(pairs.order(2, 3), epoch_order(200, 2, 3))


def test_content_is_number_and_size():
    def content(n: int, size: int) -> str:
        return synthetic.make_synthetic_pairs("any", f"synthetic:{n}", size).content_hash

    assert content(5, 4) == synthetic.make_synthetic_pairs("other", "synthetic:5", 4).content_hash
    assert len({content(5, 4), content(6, 4), content(5, 8)}) == 3


@pytest.mark.parametrize("number", ["1", "0", "-3", "2.5", "", "many", "1e3", "²"])
def test_what_is_no_number_of_pairs_is_named(number):
    with pytest.raises(UserError, match=r"data\.shards: 'synthetic:.*' should be synthetic:N .* at least 2"):
        synthetic.make_synthetic_pairs("cc3m", f"synthetic:{number}", 4)
