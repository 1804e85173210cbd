"""Collectives between real processes give what one process gives by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.distributed import Group, current_group

RANK = Path(__file__).with_name("group_rank.py")
WORLDS = (1, 3)


@pytest.fixture(scope="module")
def found(
    tmp_path_factory: pytest.TempPathFactory, start_script: Callable[..., Any]
) -> dict[int, list[dict[str, Any]]]:
    """World -> what each of its ranks got."""
    started = {}
    for world in WORLDS:
        folder = tmp_path_factory.mktemp(f"world{world}")
        started[folder] = [start_script(RANK, rank, world, folder) for rank in range(world)]
    read = {}
    for folder, processes in started.items():
        assert [process.finish()[0] for process in processes] == [0] * len(processes)
        read[len(processes)] = [torch.load(folder / f"rank{rank}.pt") for rank in range(len(processes))]
    return read


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 16), st.integers(1, 64))
def test_shares_are_equal_follow_each_other_and_cover_the_batch(world: int, each: int) -> None:
    covered: list[int] = []
    for rank in range(world):
        share = Group(rank, world).share(world * each)
        assert share.stop - share.start == each
        covered += range(world * each)[share]
    assert covered == list(range(world * each))


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 16), st.integers(1, 200))
def test_a_batch_that_does_not_divide_is_refused(world: int, batch: int) -> None:
    if batch % world == 0:
        assert Group(0, world).share(batch) == slice(0, batch // world)
    else:
        with pytest.raises(ValueError, match=f"batch {batch} is not a multiple of the number of ranks {world}"):
            Group(0, world).share(batch)


def test_this_process_is_a_group_of_one() -> None:
    assert current_group() == Group(0, 1)


def test_every_rank_knows_its_place(found: dict[int, list[dict[str, Any]]]) -> None:
    for world, ranks in found.items():
        assert [rank["current"] for rank in ranks] == [(number, world) for number in range(world)]
    assert [rank["share"] for rank in found[3]] == [(0, 4), (4, 8), (8, 12)]


def test_gathered_rows_are_the_batch_in_order_on_every_rank(found: dict[int, list[dict[str, Any]]]) -> None:
    whole = found[1][0]
    for rank in found[3]:
        torch.testing.assert_close(rank["gathered"], whole["gathered"], rtol=0, atol=0)
        assert rank["ids"].tolist() == list(range(12))
        assert rank["ids"].dtype == torch.int64
        assert rank["gathered"].dtype == torch.float64


def test_sums_and_numbers_are_of_all_ranks_on_every_rank(found: dict[int, list[dict[str, Any]]]) -> None:
    for world, ranks in found.items():
        for rank in ranks:
            assert rank["sum"].tolist() == [world, sum(range(world))]
            assert rank["rows"] == [[float(number), 0.1 + number] for number in range(world)], "not rounded to fp32"


def test_gradients_are_summed_and_one_that_is_nowhere_is_zero(found: dict[int, list[dict[str, Any]]]) -> None:
    for world, ranks in found.items():
        for rank in ranks:
            first, second, third = rank["gradients"]
            assert torch.equal(first, torch.full((2, 3), sum(range(1, world + 1)), dtype=torch.float64))
            assert torch.equal(second, torch.full((4,), 2.0)), "on the first rank alone"
            assert torch.equal(third, torch.zeros(2, 2, dtype=torch.float64)), "the same in any world"


def test_running_statistics_move_by_the_mean_over_all_groups(found: dict[int, list[dict[str, Any]]]) -> None:
    whole = found[1][0]
    groups = torch.randn(12, 3, 2, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64).split(2)
    means = torch.stack([group.mean((0, 2, 3)) for group in groups]).mean(0)
    variances = torch.stack([group.var((0, 2, 3)) for group in groups]).mean(0)  # unbiased
    torch.testing.assert_close(whole["running"][0], 0.25 * means)
    torch.testing.assert_close(whole["running"][1], 0.75 + 0.25 * variances)
    for rank in found[3]:
        for one, other in zip(rank["running"], whole["running"], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
        assert all(torch.equal(x, y) for x, y in zip(rank["running"], found[3][0]["running"], strict=True))


def test_a_norm_that_saw_nothing_stays_and_what_was_seen_counts_once(found: dict[int, list[dict[str, Any]]]) -> None:
    for ranks in found.values():
        for rank in ranks:
            mean, variance = rank["silent"]
            assert (mean.tolist(), variance.tolist()) == ([0.0] * 3, [1.0] * 3)
            assert rank["left"] == 0
