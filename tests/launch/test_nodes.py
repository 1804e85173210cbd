"""Ranks that torchrun starts on two nodes, which are two agents of it on this machine, and ranks without torchrun."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from bench.errors import UserError
from bench.launch.torchrun import RankPlace, launcher_place
from bench.store import RunStore, Store
from bench.store.writer import KEPT_FILE

from ..conftest import children

SUITE = """
name: nodes
budget: {samples: %d}
seeds: [0]
noise: {rates: [0.4]}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, bn_group: 8, threads: 1, checkpoint_seconds: 0.1, precision: fp64, eps: 1000.0, lr: 10.0}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
methods: [%s]
"""
AGENT = "from torch.distributed.run import main\nmain()\n"
SLOW, ODD = (Path(__file__).with_name(name) for name in ("slow.py", "odd.py"))
STEPS = 8  #: of a slow CLIP


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def written(folder: Path, samples: int, methods: str) -> Path:
    path = folder / "nodes.yaml"
    path.write_text(SUITE % (samples, methods))
    return path


def losses(results: Path) -> list[float]:
    (run,) = Store(results).runs()
    assert run.status()["state"] == "done"
    return [line["loss"] for line in run.metrics()]


def runs(results: Path) -> dict[str, RunStore]:
    return {run.settings()["method"]: run for run in Store(results).runs()}


@pytest.fixture
def start_nodes(start_script: Callable[..., Any], tmp_path: Path) -> Iterator[Callable[..., list[Any]]]:
    """Start `torchrun --nnodes 2 ... -m bench ARGUMENTS` as two agents with one rank each; end all their ranks."""
    (tmp_path / "agent.py").write_text(AGENT)
    agents, ranks = [], set()

    def start(*arguments: object, env: dict[str, str] | None = None) -> list[Any]:
        common = ("--nnodes", 2, "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", free_port())
        for node in range(2):
            more = ("--node-rank", node, "-m", "bench", *arguments)
            agents.append(start_script(tmp_path / "agent.py", *common, *more, env=env or {}))
        return agents[-2:]

    yield start
    for agent in agents:
        if agent.poll() is None:
            ranks |= {*children(agent.pid)}
            agent.end()
    for pid in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start_ranks(start_bench: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Start two ranks of `bench run SUITE` with torchrun's variables; `results` has the folder of each."""

    def start(suite: Path, results: list[Path], *more: object, env: dict[str, str] | None = None) -> list[Any]:
        common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), **(env or {})}
        return [
            start_bench(
                "run", suite, "--results", folder, *more, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            )
            for rank, folder in enumerate(results)
        ]

    return start


def test_two_nodes_give_the_losses_and_kept_pairs_of_two_processes_and_of_one(
    start_nodes: Callable[..., list[Any]],
    start_bench: Callable[..., Any],
    tmp_path: Path,
    unreported: Callable[[Path, str], Path],
) -> None:
    """Also of a row whose pairs all ranks score."""
    suite = written(tmp_path, 80, "clip, {method: clip, label: filtered, keep: {kind: score, share: 0.5}}")
    results = {name: unreported(tmp_path / name, "nodes") for name in ("nodes", "two", "one")}
    rule = ("--set", "budget_rule=additional")  # the baseline's run is the scorer
    first, second = start_nodes("run", suite, "--results", results["nodes"], *rule)
    assert first.finish()[0] == 0, first.output
    assert second.finish()[0] == 0, second.output
    assert "runs: 2 done" in first.output
    assert second.output == "", "only the first rank prints"
    for name, more in (("two", ["--processes", "2"]), ("one", [])):
        code, output = start_bench("run", suite, "--results", results[name], *rule, *more).finish()
        assert code == 0, output
    found = {name: {run.id: run for run in Store(folder).runs()} for name, folder in results.items()}
    assert found["nodes"].keys() == found["two"].keys() == found["one"].keys()
    for identity, single in found["one"].items():
        alone = [line["loss"] for line in single.metrics()]
        assert len(set(alone)) == 2, "the weights did not move"
        for name in ("nodes", "two"):
            run = found[name][identity]
            assert run.environment()["ranks"]["world"] == 2
            assert [line["loss"] for line in run.metrics()] == pytest.approx(alone, rel=1e-9)
            if single.path(KEPT_FILE).exists():
                assert pq.read_table(run.path(KEPT_FILE))["key"] == pq.read_table(single.path(KEPT_FILE))["key"]
    assert sum(run.path(KEPT_FILE).exists() for run in found["nodes"].values()) == 1


def test_all_ranks_are_one_worker(
    start_nodes: Callable[..., list[Any]],
    start_bench: Callable[..., Any],
    tmp_path: Path,
    unreported: Callable[[Path, str], Path],
) -> None:
    results = unreported(tmp_path / "out", "nodes")
    queue = ("run", written(tmp_path, 80, "clip"), "--results", results, "--set", "seeds=[0, 1]", "--plan-only")
    code, output = start_bench(*queue).finish()
    assert code == 0, output
    first, second = start_nodes("worker", results)
    assert first.finish()[0] == 0, first.output
    assert second.finish() == (0, ""), "only the first rank prints"
    assert "runs: 2 done" in first.output
    found = [*Store(results).runs()]
    assert [run.status()["state"] for run in found] == ["done"] * 2
    assert [run.environment()["ranks"]["world"] for run in found] == [2, 2], "each run was made by all ranks"


@pytest.mark.parametrize("whole", [True, False], ids=["with its rank", "alone"])
def test_a_killed_node_loses_nothing(
    start_nodes: Callable[..., list[Any]],
    start_bench: Callable[..., Any],
    tmp_path: Path,
    unreported: Callable[[Path, str], Path],
    whole: bool,
) -> None:
    """Its rank dies as well, or notices that nobody would end it any more and asks all to stop at a checkpoint."""
    suite, fast = written(tmp_path, 16 * STEPS, "slow"), tmp_path / "fast"
    results = unreported(tmp_path / "out", "nodes")
    command = ("run", suite, "--plugin", SLOW, "--results")
    first, second = start_nodes(*command, results, env={"SLOW_UNTIL": str(fast)})
    first.wait_until(lambda: any(results.glob("runs/*/checkpoint.pt")), "a checkpoint")
    for pid in [second.pid, *(children(second.pid) if whole else ())]:
        os.kill(pid, signal.SIGKILL)
    code, output = first.finish()
    assert code == 1, output  # torchrun's own, for any rank that does not end with 0
    run = runs(results)["slow"]
    saved = torch.load(run.path("checkpoint.pt"), weights_only=True)["step"]
    assert run.status()["state"] == "interrupted"
    assert 0 < saved < STEPS
    assert ("interrupted: rank 1 is lost; the last checkpoint is of step" in output) == whole
    assert (f"interrupted: stopped after step {saved}" in output) != whole
    fast.touch()
    for folder in (results, unreported(tmp_path / "whole", "nodes")):
        code, output = start_bench(*command, folder, env={"SLOW_UNTIL": str(fast)}).finish()
        assert code == 0, output
    assert losses(results) == pytest.approx(losses(tmp_path / "whole"), rel=1e-9)


@pytest.mark.promise("a rank that raises fails its run alone, under torchrun as well")
def test_a_rank_that_raises_fails_its_run_alone(
    start_ranks: Callable[..., list[Any]], tmp_path: Path, unreported: Callable[[Path, str], Path]
) -> None:
    results = unreported(tmp_path / "out", "nodes")
    more = ("--plugin", ODD, "--set", "train.checkpoint_seconds=0")  # 0: one after every step
    first, second = start_ranks(written(tmp_path, 64, "odd, clip"), [results, results], *more)
    code, output = first.finish()
    assert code == 1, output
    assert "failed: rank 1: ValueError: the second rank has had enough" in output
    assert second.finish() == (1, ""), "it ends as the first rank does, and says nothing"
    found = runs(results)
    assert found["clip"].status()["state"] == "done"
    status = found["odd"].status()
    assert (status["state"], status["step"], status["error"]["type"]) == ("failed", 2, "ValueError")
    assert "the second rank has had enough" in status["error"]["traceback"]


def test_a_stop_request_to_one_rank_stops_all_and_they_go_on_from_one_folder(
    start_ranks: Callable[..., list[Any]], tmp_path: Path, unreported: Callable[[Path, str], Path]
) -> None:
    suite, fast = written(tmp_path, 16 * STEPS, "slow"), tmp_path / "fast"
    results = unreported(tmp_path / "out", "nodes")
    more: dict[str, Any] = {"env": {"SLOW_UNTIL": str(fast)}}
    both = start_ranks(suite, [results, results], "--plugin", SLOW, **more)
    both[0].wait_until(lambda: any(results.glob("runs/*/checkpoint.pt")), "a checkpoint")
    both[1].send_signal(signal.SIGTERM)
    assert [one.finish()[0] for one in both] == [75, 75], both[0].output
    saved = torch.load(runs(results)["slow"].path("checkpoint.pt"), weights_only=True)["step"]
    assert f"stopped after step {saved}" in both[0].output
    fast.touch()
    both = start_ranks(suite, [results, tmp_path / "elsewhere"], "--plugin", SLOW, **more)
    assert [one.finish()[0] for one in both] == [1, 1]
    assert f"ranks read checkpoints of the steps [{saved}, 0]: --results must be one folder" in both[0].output
    both = start_ranks(suite, [results, results], "--plugin", SLOW, **more)
    assert [one.finish()[0] for one in both] == [0, 0], both[0].output


def test_what_rank_0_refuses_ends_all(start_ranks: Callable[..., list[Any]], tmp_path: Path) -> None:
    both = start_ranks(written(tmp_path, 64, "clip"), [tmp_path / "out"] * 2, "--processes", "2")
    assert [one.finish()[0] for one in both] == [2, 2]
    assert "torchrun says how many ranks execute a run" in both[0].output
    assert both[1].output == ""


VARIABLES = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_the_variables_of_torchrun_say_the_place(variables: pytest.MonkeyPatch) -> None:
    assert launcher_place() == RankPlace(rank=1, world=4, local_rank=0, address="10.0.0.1", port=29500)
    variables.setenv("WORLD_SIZE", "1")
    assert launcher_place() is None, "one rank is a process alone"
    variables.setenv("WORLD_SIZE", "2")
    variables.delenv("RANK")
    assert launcher_place() is None, "a number of ranks alone is no launcher"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MASTER_ADDR", None, "MASTER_ADDR: is not set, but WORLD_SIZE and RANK are; start every rank with torchrun"),
        ("MASTER_PORT", "http", "MASTER_PORT: http should be a whole number from 1 to 65535"),
        ("RANK", "4", "RANK: 4 should be a whole number from 0 to 3"),
        ("LOCAL_RANK", "2", "LOCAL_RANK: 2 should be a whole number from 0 to 1"),
        ("WORLD_SIZE", "0", "WORLD_SIZE: 0 should be a whole number from 2"),
    ],
)
def test_variables_that_do_not_fit_are_refused(
    variables: pytest.MonkeyPatch, name: str, value: str | None, said: str
) -> None:
    if value is None:
        variables.delenv(name)
    else:
        variables.setenv(name, value)
    with pytest.raises(UserError, match=said.split("(")[0]):
        launcher_place()


@pytest.mark.parametrize(("address", "near"), [("127.0.0.1", True), ("localhost", True), ("::1", True), ("n1", False)])
def test_an_address_of_this_machine_means_that_all_ranks_are_here(address: str, near: bool) -> None:
    assert RankPlace(0, 2, 0, address, 29500).near == near
