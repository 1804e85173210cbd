"""Buffers that worker processes fill in turn: how many there are, what they hold, and that they are few."""

from __future__ import annotations

import pytest
import torch

from bench.data.ring import Plan, Ring, buffers_for, plan
from bench.data.workers import MESSAGE, message, pieces


def most_apart(messages: list[int], ahead: int) -> int:
    """Buffers between the first that a step uses and the furthest that workers were asked for in it, counted out."""
    step = messages[-1] + 1
    numbers = [round * step + number for round in range(ahead + 2) for number in messages]
    return max(numbers[taken + ahead] for taken in range(len(messages))) + 1


@pytest.mark.parametrize("messages", [[0], [0, 0, 0], [0, 0, 1, 1, 2], [0, 1, 2, 3]])
@pytest.mark.parametrize("ahead", [1, 2, 3, 7])
def test_buffers_hold_a_step_and_what_is_made_ahead(messages: list[int], ahead: int) -> None:
    assert buffers_for(messages, ahead) == most_apart(messages, ahead)


def test_a_ring_holds_two_steps_or_less_where_memory_is_small() -> None:
    assert plan(1024, 1024, 128, 2, 1024, 10**9) == Plan(2, 1024)
    assert plan(1024, 1024, 128, 2, 1024, 2048) == Plan(2, 1024)
    assert plan(1024, 1024, 128, 2, 1024, 2047) is None, "a step and one that is made do not fit"
    assert plan(16384, 512, 128, 16, 16384, 2 * 16384) == Plan(64, 16384)
    less = plan(16384, 512, 128, 16, 16384, 28000)
    assert less is not None
    assert less.waiting < 16384
    assert 512 * less.buffers <= 28000
    assert plan(16384, 512, 128, 16, 16384, 16384) is None
    for workers in (1, 3, 16):
        for size in (1, 5, 16):
            found = plan(16, size, 2, workers, 16, 10**6)
            assert found is not None
            assert found.waiting >= 2 * workers, "no worker is without work"


def test_a_worker_is_asked_for_whole_chunks_and_never_all_at_once() -> None:
    assert message(34, 1024, 1) == 3 * 34
    assert message(32, 1024, 16) == 32
    assert message(1700, 1700, 1) == 1700
    assert message(32, 10**6, 1) == MESSAGE
    assert message(1, 0, 4) == 1


def test_buffers_come_in_turn_and_are_seen_by_every_process() -> None:
    ring = Ring(
        [torch.zeros(1, 4, 4, 3, dtype=torch.uint8), torch.zeros(1, 7, dtype=torch.int64)], 5, 2, torch.device("cpu")
    )
    assert [x.shape for x in ring.fields] == [(2, 5, 4, 4, 3), (2, 5, 7)]
    assert all(x.is_shared() for x in ring.fields)
    ring.fields[1][0], ring.fields[1][1] = 10, 11
    assert [int(ring.take(rows)[1].unique()) for rows in (5, 3, 5)] == [10, 11, 10]
    assert [x.shape for x in ring.take(2)] == [(2, 4, 4, 3), (2, 7)]
    assert [range(7)[piece] for piece in pieces(7, 3)] == [range(3), range(3, 6), range(6, 7)]
    ring.close()
    assert ring.fields == []
