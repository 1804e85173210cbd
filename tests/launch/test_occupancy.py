"""How many runs are made at the same time if nobody says it: by work, cores, memory, and GPUs that are timed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

import bench
from bench.launch import occupancy
from bench.launch.occupancy import STEADY, WORTHWHILE, Occupancy, most
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


@dataclass
class AtWork:
    """A team as the rule sees it; `steps` lets it report its speed in FLOPs a second."""

    has_worked: bool = False
    rates: list[float] = field(default_factory=list)
    gpu_memory: tuple[int, int] | None = None
    pid: int = os.getpid()

    def steps(self, rate: float, count: int = STEADY, free: int = 100 * GIB) -> None:
        self.has_worked, self.gpu_memory = True, (free, 140 * GIB)
        self.rates += [rate] * count


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> list[Planned]:
    """Six runs, each of which is long enough to be worth a process of its own."""
    folder = tmp_path_factory.mktemp("waiting")
    (folder / "waiting.yaml").write_text(SUITE)
    planned = planner.plan(bench.load_suite(folder / "waiting.yaml").runs(), Store(folder / "out"))
    long = replace(planned[0].resolved, step_flops=dict.fromkeys(planned[0].resolved.step_flops, int(WORTHWHILE)))
    return [replace(one, resolved=long) for one in planned]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set what the machine has."""

    def has(cores: int, gpus: int = 0, free: int | None = 64 * GIB) -> None:
        for name, value in (("cores", cores), ("gpus", gpus), ("free_memory", free)):
            monkeypatch.setattr(occupancy, name, lambda value=value: value)

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
        (8, 1, 1, 1, 6),
        (64, 1, 1, 1, 6),
        (2, 1, 1, 1, 2),
        (1, 2, 1, 1, 2),
        (64, 8, 1, 1, 6),
    ],
)
def test_the_number_follows_cores_threads_and_what_waits(
    waiting: list[Planned], machine: Callable[..., None], cores: int, gpus: int, threads: int, ranks: int, number: int
) -> None:
    machine(cores, gpus)
    assert most(with_train(waiting, threads=threads), ranks) == number


def test_one_at_a_time_where_company_does_not_pay_or_is_not_allowed(
    waiting: list[Planned], machine: Callable[..., None]
) -> None:
    machine(8)
    short = replace(waiting[0].resolved, step_flops=dict.fromkeys(waiting[0].resolved.step_flops, 1000))
    assert most([replace(one, resolved=short) for one in waiting], 1) == 1
    budget = type(waiting[0].run.budget)(device_seconds=60.0)
    assert budget.timed
    assert most([replace(one, run=replace(one.run, budget=budget)) for one in waiting], 1) == 1


def test_runs_that_read_shards_have_a_gpu_each(waiting: list[Planned], machine: Callable[..., None]) -> None:
    machine(64, gpus=2)
    shards = waiting[0].run.data.model_copy(update={"name": "cc3m"})
    assert not shards.embedded
    assert most([replace(one, run=replace(one.run, data=shards)) for one in waiting], 1) == 2


@pytest.mark.parametrize(("free", "allowed"), [(64, 4), (3, 3), (1, 1), (None, 4)])
def test_on_a_cpu_the_first_run_shows_how_much_memory_one_takes(
    monkeypatch: pytest.MonkeyPatch, machine: Callable[..., None], free: int | None, allowed: int
) -> None:
    machine(4, free=None if free is None else free * GIB)
    monkeypatch.setattr(occupancy, "_peak_memory", lambda _: GIB)
    rule, team = Occupancy(4, 0), AtWork()
    rule.update([team])
    assert rule.allowed == 1, "nothing is known yet"
    team.has_worked = True
    rule.update([team])
    assert rule.allowed == allowed


def test_a_number_that_was_asked_for_stays(monkeypatch: pytest.MonkeyPatch, machine: Callable[..., None]) -> None:
    machine(4, free=0)
    monkeypatch.setattr(occupancy, "_peak_memory", lambda _: GIB)
    rule = Occupancy(4, 0, 4, settled=True)
    rule.update([AtWork(has_worked=True)])
    assert rule.allowed == 4


def test_the_peak_is_the_processes_own() -> None:
    assert occupancy._peak_memory(os.getpid()) > 50 * 2**20
    assert occupancy._peak_memory(2**30) == 0, "there is no such process"


def test_twice_as_many_runs_on_every_gpu_stay_while_they_bring_speed_and_fit(machine: Callable[..., None]) -> None:
    machine(64)
    rule, teams = Occupancy(16, gpus=2, allowed=2), [AtWork() for _ in range(16)]

    def work(rate: float, **more: int) -> int:
        for team in teams[: rule.allowed]:
            team.steps(rate, **more)
        rule.update(teams[: rule.allowed])
        return rule.allowed

    assert work(100.0, count=STEADY - 1) == 2, "not steady yet"
    assert work(100.0, count=1) == 4
    assert work(80.0) == 8, "320 a second of four are more than 200 of two"
    assert work(43.0) == 4, "344 of eight are hardly more"
    assert work(80.0) == 4, "that is settled"


@pytest.mark.parametrize(("free", "allowed"), [(70, 1), (90, 2), (115, 4), (130, 4)])
def test_a_gpu_takes_as_many_more_as_it_has_memory_for(machine: Callable[..., None], free: int, allowed: int) -> None:
    """Of 140 GiB; at most twice as many at a time."""
    machine(64)
    rule, teams = Occupancy(8, gpus=1, allowed=1 if free < 100 else 2), [AtWork(), AtWork()]
    for team in teams:
        team.steps(100.0, free=free * GIB)
    rule.update(teams[: rule.allowed])
    assert rule.allowed == allowed


def test_the_hosts_memory_limits_runs_on_a_gpu_too(
    monkeypatch: pytest.MonkeyPatch, machine: Callable[..., None]
) -> None:
    machine(64, free=5 * GIB)
    monkeypatch.setattr(occupancy, "_peak_memory", lambda _: 4 * GIB)
    rule, teams = Occupancy(8, gpus=1, allowed=4), [AtWork() for _ in range(4)]
    for team in teams:
        team.steps(100.0)
    rule.update(teams)
    assert rule.allowed == 5


def test_a_team_between_two_runs_is_waited_for(machine: Callable[..., None]) -> None:
    machine(64)
    rule, teams = Occupancy(4, gpus=1, allowed=2), [AtWork(), AtWork()]
    teams[0].steps(100.0)
    rule.update(teams)
    assert rule.allowed == 2
    teams[1].steps(100.0)
    rule.update(teams)
    assert rule.allowed == 4
