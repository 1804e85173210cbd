"""Some rows of a set of pairs as a set of its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data import MemoryPairs, Pairs
from bench.data.kept import KeptPairs
from bench.data.noise.manifest import Noise
from bench.data.noise.shuffled import Resampled, shuffled_captions


def pairs_of(n: int) -> MemoryPairs:
    keys, texts = [f"k{i:03d}" for i in range(n)], [[f"text {i}", f"another {i}"] for i in range(n)]
    pixels = np.arange(n * 12, dtype=np.uint8).reshape(n, 2, 2, 3)
    return MemoryPairs.build("emoji/toy", "toy", keys, texts, {"odd": [i % 2 for i in range(n)]}, {"odd": "eo"}, pixels)


def kept(whole: Pairs, rows: list[int], noise: Noise | None = None) -> KeptPairs:
    return KeptPairs(whole, np.array(rows, np.int64), noise or Noise())


class Inverted(Noise):
    """Noise that changes images."""

    def applied(self, pairs: Pairs) -> Pairs:
        assert isinstance(pairs, MemoryPairs)
        labels = {name: values.tolist() for name, values in pairs.labels.items()}
        texts = list(pairs.texts)
        return MemoryPairs.build(pairs.name, "", pairs.keys, texts, labels, pairs.classes, 255 - pairs.pixels)


rows_of_20 = st.sets(st.integers(0, 19), min_size=1).map(sorted)


@settings(deadline=None, max_examples=40)
@given(rows_of_20, st.integers(0, 3), st.integers(0, 3))
def test_columns_are_those_of_the_kept_rows(rows, epoch, seed):
    whole = pairs_of(20)
    some = kept(whole, rows)
    assert isinstance(some, Pairs)
    assert len(some) == len(rows)
    assert some.keys == [whole.keys[row] for row in rows]
    assert some.labels["odd"].tolist() == [row % 2 for row in rows]
    assert (some.name, some.description, some.classes) == (whole.name, whole.description, whole.classes)
    assert [some.captions(i) for i in range(len(rows))] == [whole.captions(row) for row in rows]
    here = np.arange(len(rows))[::-1]
    np.testing.assert_array_equal(some.images(here), whole.images(np.array(rows)[::-1]))
    np.testing.assert_array_equal(
        some.sampled(here, epoch, seed, 1, "emoji"), whole.sampled(np.array(rows)[::-1], epoch, seed, 1, "emoji")
    )


@settings(deadline=None, max_examples=40)
@given(rows_of_20, st.integers(0, 5), st.integers(0, 5))
def test_the_order_is_the_wholes_without_the_others(rows, epoch, seed):
    whole = pairs_of(20)
    order = kept(whole, rows).order(epoch, seed)
    assert [rows[i] for i in order] == [row for row in whole.order(epoch, seed).tolist() if row in rows]


def test_captions_are_those_that_the_noise_gives():
    """A donor may be among the rows that are left out."""
    whole = pairs_of(20)
    manifest = shuffled_captions(whole, 0.5, 0)
    rows = manifest.rows[:3].tolist()
    some = kept(whole, rows, manifest)
    assert [some.captions(i) for i in range(3)] == [whole.captions(donor) for donor in manifest.donors[:3].tolist()]
    clean = [row for row in range(20) if row not in manifest.rows]
    assert kept(whole, clean, manifest).captions(1) == whole.captions(clean[1])


def test_images_are_those_that_the_noise_makes():
    whole = pairs_of(6)
    some = kept(whole, [1, 4], Inverted())
    np.testing.assert_array_equal(some.images(np.array([1])), 255 - whole.images(np.array([4])))
    np.testing.assert_array_equal(some.sampled(np.array([0]), 0, 0, 0, "none"), 255 - whole.images(np.array([1])))


def test_content_is_that_of_the_whole_its_rows_and_its_noise():
    whole = pairs_of(20)
    manifests = [shuffled_captions(whole, 0.5, seed) for seed in (0, 1)]
    sets = [
        kept(whole, [1, 2]),
        kept(whole, [1, 3]),
        kept(pairs_of(19), [1, 2]),
        *(kept(whole, [1, 2], manifest) for manifest in manifests),
    ]
    assert len({some.content_hash for some in sets}) == len(sets)
    assert kept(pairs_of(20), [1, 2]).content_hash == sets[0].content_hash
    assert kept(whole, [1, 2], Resampled(0.5, 3)).content_hash == sets[0].content_hash  # it changes no row for the run


def test_the_keys_hash_is_that_of_the_keys():
    assert kept(pairs_of(20), [1, 2]).keys_hash == kept(pairs_of(9), [1, 2]).keys_hash
    assert kept(pairs_of(20), [1, 2]).keys_hash != kept(pairs_of(20), [1, 3]).keys_hash


def test_rows_beyond_the_kept_ones_are_errors():
    with pytest.raises(IndexError):
        kept(pairs_of(5), [0, 1]).images(np.array([2]))
