"""Counter-based draws: keys, ranges, nesting. Uniformity and SplitMix64's own numbers are in test_order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import counter

rows_of = st.lists(st.integers(0, 2**40), min_size=1, max_size=30)


def test_mixing_is_a_bijection():
    """Its inverse, from the modular inverses of the two multipliers."""

    def unshift(z: int, by: int) -> int:
        out = z
        for _ in range(64 // by + 1):
            out = z ^ (out >> by)
        return out

    mask = 2**64 - 1
    for word in (0, 1, 2**63, mask, 0x123456789ABCDEF):
        z = unshift(int(counter.mix(np.array([word], np.uint64))[0]), 31)
        z = unshift(z * pow(0x94D049BB133111EB, -1, 2**64) & mask, 27)
        z = unshift(z * pow(0xBF58476D1CE4E5B9, -1, 2**64) & mask, 30)
        assert (z - 0x9E3779B97F4A7C15) & mask == word


def test_keys_are_told_apart_by_every_part_and_its_type():
    keys = [(0, "captions", 1), (1, "captions", 1), (0, "order", 1), (0, "captions", 2), (0, "captions"), ("0",), (0,)]
    assert len({int(counter.word(*key)) for key in keys}) == len(keys)
    assert counter.word(0, "captions", 1) == counter.word(0, "captions", 1)


@settings(deadline=None, max_examples=60)
@given(rows_of, st.integers(1, 5), st.integers(0, 3))
def test_a_draw_follows_from_key_row_and_number_alone(rows, draws, seed):
    """More draws, fewer rows and another order change none of them."""
    key = counter.word(seed, "test")
    words = counter.random_words(key, np.array(rows), draws)
    assert words.shape == (len(rows), draws)
    np.testing.assert_array_equal(counter.random_words(key, np.array(rows[::-1]), draws + 2)[::-1, :draws], words)
    np.testing.assert_array_equal(counter.random_words(key, np.array(rows[:1]), draws), words[:1])
    assert len(np.unique(words)) == len(set(rows)) * draws


def test_draws_are_pinned():
    """Other numbers give other orders, captions, crops and noise: a change needs a new TRAINING_VERSION."""
    assert counter.random_words(counter.word(0, "pinned"), np.arange(2), 2).ravel().tolist() == [
        5490040522573160619,
        6694514047046127670,
        11232572243756815440,
        224946371789982442,
    ]
    assert counter.hash_order(["a", "b", "c", "d", "e"], b"0").tolist() == [1, 2, 4, 3, 0]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 2**32 - 1), st.integers(0, 2**64 - 1)), min_size=1, max_size=20))
def test_integers_below_a_count_are_the_words_share_of_it(pairs):
    counts = np.array([count for count, _ in pairs], np.int64)
    below = counter.integers_below(counts, np.array([word for _, word in pairs], np.uint64))
    assert below.tolist() == [(word >> 32) * count >> 32 for count, word in pairs]
    assert ((below >= 0) & (below < counts)).all()


def test_the_ends_of_uniform_draws(monkeypatch):
    for word, expected in ((0, 0.0), (2**64 - 1, 1 - 2.0**-24), (2**63, 0.5)):
        monkeypatch.setattr(counter, "random_words", lambda *_, w=word: np.array([[w]], np.uint64))
        drawn = counter.uniforms(np.uint64(0), np.array([0]), 1)
        assert drawn.dtype == np.float32
        assert drawn[0, 0] == expected < 1


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), unique=True, max_size=20), st.data())
def test_hash_orders_of_fewer_keys_nest(keys, data):
    order = [keys[i] for i in counter.hash_order(keys, b"salt")]
    assert sorted(order) == sorted(keys)
    some = data.draw(st.sets(st.sampled_from(keys))) if keys else set()
    kept = [key for key in keys if key in some]
    assert [kept[i] for i in counter.hash_order(kept, b"salt")] == [key for key in order if key in some]


def test_hash_orders_hang_on_the_salt_and_ties_on_rows():
    keys = [f"k{i}" for i in range(500)]
    first, second = counter.hash_order(keys, b"share"), counter.hash_order(keys, b"0")
    assert (first == second).mean() < 0.05
    assert counter.hash_order(["x"] * 5, b"").tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_the_rows_type_is_nothing(kind):
    rows = np.array([0, 5, 2**31 - 1], kind)
    np.testing.assert_array_equal(
        counter.random_words(counter.word(0), rows, 1), counter.random_words(counter.word(0), rows.astype(np.int64), 1)
    )
