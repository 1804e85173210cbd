"""Sample order and counter-based draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import counter
from bench.data import MemoryPairs
from bench.data.order import block_order, epoch_order, steps_per_epoch
from bench.errors import UserError
from bench.loading.loader import Batches


def pairs_of(n):
    keys = [f"k{i:05d}" for i in range(n)]
    return MemoryPairs.build("toy/train", "toy", keys, [["a"]] * n, {}, {}, np.zeros((n, 1, 1, 3), np.uint8))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 300), st.integers(0, 5), st.integers(0, 5), st.data())
def test_an_epoch_shows_every_row_at_most_once(n, epoch, seed, data):
    batch = data.draw(st.integers(1, n))
    order = epoch_order(n, epoch, seed)
    assert sorted(order.tolist()) == list(range(n))
    steps = steps_per_epoch(n, batch)
    assert steps == n // batch
    pairs = pairs_of(n)
    batches = Batches(pairs, batch, seed)
    got = [batches.rows(epoch * steps + i) for i in range(steps)]
    assert {e for _, e in got} == {epoch}
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in got]), order[: steps * batch])


def test_orders_differ_by_epoch_and_seed():
    first = epoch_order(1000, 0, 0)
    assert (first != epoch_order(1000, 1, 0)).mean() > 0.9
    assert (first != epoch_order(1000, 0, 1)).mean() > 0.9
    assert abs(np.corrcoef(first, np.arange(1000))[0, 1]) < 0.1


def test_order_is_pinned():
    """Another order gives other weights: a change here needs a new TRAINING_VERSION."""
    assert epoch_order(10, 0, 0).tolist() == [6, 7, 4, 2, 8, 9, 5, 3, 1, 0]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=200), st.integers(1, 12), st.integers(0, 3), st.integers(0, 3))
def test_blocks_hold_whole_shards_and_every_row_once(shards, block, epoch, seed):
    """Shards may be of any size, empty ones too, and their rows need not be neighbours."""
    shards = np.array(shards)
    order = block_order(shards, block, epoch, seed)
    assert sorted(order.tolist()) == list(range(len(shards)))
    seen = shards[order].tolist()
    places = {shard: [i for i, one in enumerate(seen) if one == shard] for shard in set(seen)}
    at_hand = [sum(where[0] <= i <= where[-1] for where in places.values()) for i in range(len(seen))]
    assert max(at_hand) <= block


def test_blocks_are_drawn_anew_and_shuffled_inside():
    shards = np.repeat(np.arange(40), 25)
    first, second, other = (block_order(shards, 8, epoch, seed) for epoch, seed in ((0, 0), (1, 0), (0, 1)))
    assert (shards[first] != shards[second]).mean() > 0.8
    assert (shards[first] != shards[other]).mean() > 0.8
    assert len(set(shards[first[:200]].tolist())) == 8
    assert abs(np.corrcoef(np.arange(200), shards[first[:200]])[0, 1]) < 0.25
    assert np.abs(np.diff(shards[first[:200]])).mean() > 1


def test_the_order_of_blocks_is_pinned():
    shards = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    assert block_order(shards, 2, 0, 0).tolist() == [4, 8, 9, 5, 2, 3, 1, 0, 6, 7]


def test_impossible_batches_are_named():
    with pytest.raises(UserError, match="batch is 11, but there are 10 training pairs"):
        Batches(pairs_of(10), 11, 0).rows(0)
    with pytest.raises(UserError, match="batch is 0"):
        Batches(pairs_of(10), 0, 0).rows(0)


def test_held_order_cannot_be_overwritten():
    rows, _ = Batches(pairs_of(10), 5, 0).rows(0)
    with pytest.raises(ValueError, match="read-only"):
        rows[0] = 3


def test_splitmix_reference():
    """First outputs of SplitMix64 seeded with 1234567, as in the public-domain reference implementation."""
    state = np.array([1234567], np.uint64)
    outputs = []
    for _ in range(3):
        outputs.append(int(counter.mix(state)[0]))
        state = state + np.uint64(0x9E3779B97F4A7C15)
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_uniforms_are_uniform_and_independent_of_company():
    rows = np.arange(20000)
    drawn = counter.uniforms(counter.word(0, "test"), rows, 2)
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert drawn.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.01)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.03
    np.testing.assert_array_equal(drawn[[7, 3]], counter.uniforms(counter.word(0, "test"), rows[[7, 3]], 2))
    assert (drawn[:100] != counter.uniforms(counter.word(1, "test"), rows[:100], 2)).mean() > 0.9
