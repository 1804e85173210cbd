"""Processes that make pixels ahead of time."""

import os
import signal
import time

import numpy as np
import pytest
import torch

from bench.data import MemoryPairs
from bench.data.noise.manifest import Noise
from bench.errors import UserError
from bench.loading import workers
from bench.loading.loader import RowMaker, RowRequest
from bench.loading.workers import Prefetcher, buffer_sizes, worker_count


def square(item: int) -> list[torch.Tensor]:
    time.sleep(0.02 * (item % 3))
    if item == 7:
        raise UserError("item 7: is unlucky")
    if item == 99:
        os.kill(os.getpid(), signal.SIGKILL)
    return [torch.tensor(item * item), torch.tensor(os.getpid())]


def taken(prefetcher: Prefetcher, count: int) -> list[int]:
    return [int(next(prefetcher)[0]) for _ in range(count)]


def test_items_come_in_order_from_other_processes():
    state = torch.random.get_rng_state()
    prefetcher = Prefetcher(square, iter(range(6)), 2, 1, 4)
    try:
        results = [next(prefetcher) for _ in range(6)]
        with pytest.raises(StopIteration):
            next(prefetcher)
    finally:
        prefetcher.close()
    assert [int(value) for value, _ in results] == [0, 1, 4, 9, 16, 25]
    pids = {int(pid) for _, pid in results}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_users_error_is_raised_at_its_item_and_as_it_is():
    prefetcher = Prefetcher(square, iter([5, 6, 7, 8]), 1, 1, 2)
    try:
        assert taken(prefetcher, 2) == [25, 36]
        with pytest.raises(UserError, match=r"^item 7: is unlucky$"):
            next(prefetcher)
        assert taken(prefetcher, 1) == [64]
    finally:
        prefetcher.close()


def test_a_process_that_dies_is_no_silence():
    prefetcher = Prefetcher(square, iter([99, 1]), 1, 1, 2)
    try:
        with pytest.raises(RuntimeError, match=r"exited unexpectedly|killed by signal|decodes images died"):
            taken(prefetcher, 2)
    finally:
        prefetcher.close()


def test_closing_ends_the_processes():
    prefetcher = Prefetcher(square, iter(range(10**6)), 1, 1, 2)
    pid = int(next(prefetcher)[1])
    prefetcher.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_signals_of_a_terminal_or_a_scheduler_are_the_parents():
    prefetcher = Prefetcher(square, iter(range(0, 300, 3)), 1, 1, 2)
    try:
        pid = int(next(prefetcher)[1])
        os.kill(pid, signal.SIGINT)
        assert taken(prefetcher, 5) == [9, 36, 81, 144, 225]
        assert int(next(prefetcher)[1]) == pid
    finally:
        prefetcher.close()


def test_rows_become_views_captions_and_tokens():
    pixels = np.random.default_rng(0).integers(0, 255, (3, 8, 8, 3), np.uint8)
    pairs = MemoryPairs.build("toy/train", "toy", list("abc"), [["x"]] * 3, {}, {}, pixels)
    rows = np.array([2, 0])
    made = RowMaker(pairs, Noise(), lambda captions: torch.zeros(len(captions), 1), 5, "emoji", 3)(
        RowRequest(rows, rows, 4)
    )
    assert made.captions == ["x", "x"]
    assert len(made.pixels) == 3
    for view, pixels_of_view in enumerate(made.pixels):
        np.testing.assert_array_equal(pixels_of_view.numpy(), pairs.sampled(rows, 4, 5, view, "emoji"))


@pytest.mark.parametrize(
    ("cores", "asked", "ranks", "local", "expected"),
    [
        (8, None, 1, None, 7),
        (8, None, 2, None, 3),
        (8, None, 2, "4", 1),
        (64, None, 1, None, 16),
        (1, None, 1, None, 1),
        (2, None, 4, None, 1),
        (8, 0, 1, None, 0),
        (8, 40, 2, None, 40),
    ],
)
def test_processes_share_the_cores(monkeypatch, cores, asked, ranks, local, expected):
    monkeypatch.setattr(workers, "cores", lambda: cores)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if local:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    assert worker_count(asked, ranks) == expected


def test_room_is_bounded_by_rows_limit_and_shared_memory(monkeypatch, tmp_path):
    free = [1000]
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr(workers, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(workers.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 2 * free[0]}))
    assert buffer_sizes(1, 500, 2, 1) == (125, 500)  # no more than is asked for, two chunks for each process
    assert buffer_sizes(10, 500, 2, 1) == (25, 100)  # half of the shared memory, two chunks for each process
    assert buffer_sizes(10, 500, 2, 4) == (6, 25)  # ranks share it
    assert buffer_sizes(10_000, 500, 2, 1) == (1, 0)  # a chunk has a row at least
    free[0] = 2**60
    assert buffer_sizes(2**20, 4000, 2, 1) == (workers.CHUNK_ROWS, 4000)  # of large rows
    assert buffer_sizes(2**10, 40_000, 2, 1) == (workers.CHUNK_BYTES // 2**10, 40_000)  # small ones fill a chunk
    assert buffer_sizes(2**30, 500, 2, 1) == (1, workers.MAX_BUFFER_BYTES // 2**30)
    assert buffer_sizes(2**10, 500, 0, 1) == (workers.CHUNK_BYTES // 2**10, 0)  # without workers
    monkeypatch.setattr(workers, "SHARED_MEMORY", tmp_path / "none")
    free[0] = 0
    assert buffer_sizes(2**30, 500, 2, 1) == (1, 4)
