"""How many runs are made at the same time if nobody says it: by work, cores, memory and GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import bench
from bench.launch.launchers import local
from bench.launch.launchers.local import MIN_PARALLEL_FLOPS, suitable_jobs
from bench.planning import planner
from bench.planning.planned import Planned
from bench.store import Store

SUITE = """
name: waiting
seeds: [0, 1, 2, 3, 4, 5]
budget: {samples: 160}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16}
evaluate: {tasks: [zero_shot]}
methods: [clip]
"""
GIB = 2**30


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> list[Planned]:
    """Six runs, each of which is long enough to be worth a process of its own."""
    folder = tmp_path_factory.mktemp("waiting")
    (folder / "waiting.yaml").write_text(SUITE)
    planned = planner.plan(bench.load_suite(folder / "waiting.yaml").runs(), Store(folder / "out"))
    long = replace(
        planned[0].resolved, step_flops=dict.fromkeys(planned[0].resolved.step_flops, int(MIN_PARALLEL_FLOPS))
    )
    return [replace(one, resolved=long) for one in planned]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set what the machine has."""

    def has(cores: int, gpus: int = 0, free: int | None = 64 * GIB) -> None:
        for name, value in (("cores", cores), ("gpu_count", gpus), ("free_memory", free)):
            monkeypatch.setattr(local, name, lambda value=value: value)

    return has


def with_train(waiting: list[Planned], **changes: object) -> list[Planned]:
    return [replace(one, run=replace(one.run, train=one.run.train.model_copy(update=changes))) for one in waiting]


@pytest.mark.parametrize(
    ("cores", "gpus", "threads", "ranks", "number"),
    [
        (2, 0, 1, 1, 2),
        (4, 0, 2, 1, 2),
        (3, 0, 2, 1, 1),
        (1, 0, 2, 1, 1),
        (64, 0, 1, 1, 6),
        (64, 0, 1, 2, 1),
        (8, 1, 1, 1, 1),
        (1, 2, 1, 1, 2),
        (64, 8, 1, 1, 6),
    ],
)
def test_the_number_follows_cores_threads_and_what_waits(
    waiting: list[Planned], machine: Callable[..., None], cores: int, gpus: int, threads: int, ranks: int, number: int
) -> None:
    machine(cores, gpus)
    assert suitable_jobs(with_train(waiting, threads=threads), ranks) == number


def test_one_at_a_time_where_company_does_not_pay_or_is_not_allowed(
    waiting: list[Planned], machine: Callable[..., None]
) -> None:
    machine(8)
    short = replace(waiting[0].resolved, step_flops=dict.fromkeys(waiting[0].resolved.step_flops, 1000))
    assert suitable_jobs([replace(one, resolved=short) for one in waiting], 1) == 1
    budget = type(waiting[0].run.budget)(device_seconds=60.0)
    assert budget.timed
    assert suitable_jobs([replace(one, run=replace(one.run, budget=budget)) for one in waiting], 1) == 1


@pytest.mark.parametrize(("free", "number"), [(64, 4), (7, 3), (1, 1), (None, 4)])
def test_each_run_has_room_in_memory(
    waiting: list[Planned], machine: Callable[..., None], free: int | None, number: int
) -> None:
    machine(4, free=None if free is None else free * GIB)
    assert suitable_jobs(waiting, 1) == number
