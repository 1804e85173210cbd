"""Sample order and counter-based draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data import counter
from bench.data.order import batch_rows, epoch_order, steps_per_epoch
from bench.errors import UserError


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 300), st.integers(0, 5), st.integers(0, 5), st.data())
def test_an_epoch_shows_every_row_at_most_once(n, epoch, seed, data):
    batch = data.draw(st.integers(1, n))
    order = epoch_order(n, epoch, seed)
    assert sorted(order.tolist()) == list(range(n))
    steps = steps_per_epoch(n, batch)
    assert steps == n // batch
    got = [batch_rows(n, batch, epoch * steps + i, seed) for i in range(steps)]
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


def test_impossible_batches_are_named():
    with pytest.raises(UserError, match="batch is 11, but there are 10 training pairs"):
        batch_rows(10, 11, 0, 0)
    with pytest.raises(UserError, match="batch is 0"):
        batch_rows(10, 0, 0, 0)


def test_held_order_cannot_be_overwritten():
    rows, _ = batch_rows(10, 5, 0, 0)
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
