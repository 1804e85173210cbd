"""Steps of a run by phase, and which rows each step trains on."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import data
from bench.data.source import data_source
from bench.errors import UserError
from bench.loading.loader import Batches
from bench.suite.settings import DataSettings
from bench.training.schedule import ResolvedSteps

PHASES = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**15)), min_size=1, max_size=4)
quick = settings(deadline=None, max_examples=40)


def resolved(lengths: list[tuple[int, int]]) -> ResolvedSteps:
    """Phases of (steps, FLOPs of one)."""
    return ResolvedSteps(
        tuple((f"phase {number}", steps) for number, (steps, _) in enumerate(lengths)),
        {f"phase {number}": flops for number, (_, flops) in enumerate(lengths)},
        batch=32,
        epoch_steps=7,
        budget_epoch_steps=9,
    )


@quick
@given(PHASES)
def test_a_runs_steps_and_flops_are_the_sums_over_its_phases(lengths: list[tuple[int, int]]) -> None:
    found = resolved(lengths)
    assert found.steps == sum(steps for steps, _ in lengths)
    assert found.flops == sum(steps * flops for steps, flops in lengths), "whole numbers, however large"


@quick
@given(PHASES)
def test_what_a_store_holds_of_it_is_the_same_again(lengths: list[tuple[int, int]]) -> None:
    found = resolved(lengths)
    stored = json.loads(json.dumps(found.to_json()))
    assert ResolvedSteps.from_json(stored) == found
    assert ResolvedSteps.from_json(stored).phases == found.phases, "tuples again, not JSON's lists"


def test_what_older_stores_hold_has_no_epoch_of_the_budget() -> None:
    stored = resolved([(3, 5)]).to_json()
    del stored["budget_epoch_steps"]
    assert ResolvedSteps.from_json(stored).budget_epoch_steps == 0


@pytest.fixture(scope="module")
def pairs() -> data.Pairs:
    return data_source(DataSettings()).pairs()


@pytest.mark.parametrize("batch", [100, 128, 257])
def test_an_epoch_sees_every_row_at_most_once_and_drops_less_than_a_batch(pairs: data.Pairs, batch: int) -> None:
    steps = len(pairs) // batch
    for epoch in (0, 2):
        seen = np.concatenate([Batches(pairs, batch, 3).rows(epoch * steps + step)[0] for step in range(steps)])
        assert len(seen) == len(set(seen.tolist())) == steps * batch
        assert 0 <= len(pairs) - len(seen) < batch
        assert seen.min() >= 0
        assert seen.max() < len(pairs)


def test_the_epoch_follows_from_the_step_and_the_order_from_epoch_and_seed(pairs: data.Pairs) -> None:
    steps = len(pairs) // 64
    assert [Batches(pairs, 64, 0).rows(step)[1] for step in (0, steps - 1, steps, 2 * steps)] == [0, 0, 1, 2]
    first = Batches(pairs, 64, 0).rows(0)[0]
    assert not np.array_equal(first, Batches(pairs, 64, 0).rows(steps)[0]), "another epoch, another order"
    assert not np.array_equal(first, Batches(pairs, 64, 1).rows(0)[0]), "another seed, another order"
    np.testing.assert_array_equal(first, Batches(pairs, 64, 0).rows(0)[0])


def test_nobody_can_change_an_order_that_others_read(pairs: data.Pairs) -> None:
    rows, _ = Batches(pairs, 64, 0).rows(5)
    with pytest.raises(ValueError, match="read-only"):
        rows[0] = 0


def test_a_batch_larger_than_the_data_is_refused(pairs: data.Pairs) -> None:
    with pytest.raises(UserError, match=f"batch is {len(pairs) + 1}, but there are {len(pairs)} training pairs"):
        Batches(pairs, len(pairs) + 1, 0).rows(0)
    assert len(Batches(pairs, len(pairs), 0).rows(0)[0]) == len(pairs)
