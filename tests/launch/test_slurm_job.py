"""What the tasks of a job over several nodes do: real processes with SLURM's variables. SLURM itself is in tests/slurm.

`scontrol` is a script here: it says that the job runs, or not, and notes that the job was queued again.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.launch.launchers import SEQUENTIAL
from bench.launch.slurm_job import MAX_LOSSES, PORTS, SlurmJob
from bench.planning.planner import plan
from bench.store import RunStore, Store
from bench.suite.suite import load_suite

SUITE = """
name: nodes
budget: {samples: 128}
noise: {rates: [0.4]}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, bn_group: 8, threads: 1, checkpoint_seconds: 0.1, precision: fp64, eps: 1000.0, lr: 10.0}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
methods: [slow]
"""
SLOW = Path(__file__).with_name("slow.py")
STEPS = 8  #: of a run
TASK = """
import pickle, sys
from pathlib import Path

print(pickle.loads(Path(sys.argv[1]).read_bytes())(), flush=True)
"""
DYING = '''
import os, signal

import torch.distributed as dist

from methods.clip import Clip


class Dying(Clip):
    """CLIP whose second rank is killed at its first step."""

    name = "dying"

    def encode(self, towers, rows):
        if dist.is_initialized() and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(towers, rows)
'''
SCONTROL = """#!/bin/sh
case "$1" in
    show) echo "JobId=$3 JobState=$(cat "$JOB_STATE") Reason=None" ;;
    requeue) echo "$2" >> "$REQUEUED" ;;
esac
"""


@pytest.fixture
def start_tasks(
    start_script: Callable[..., Any],
    tmp_path: Path,
    own_plugins: Callable[[Path], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., list[Any]]:
    """Start the tasks of a job over as many nodes, as a pickled job and SLURM's variables say."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "scontrol").write_text(SCONTROL)
    (tools / "scontrol").chmod(0o755)
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "nodes.yaml").write_text(SUITE)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", str(free_port() - PORTS[0]))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "localhost,elsewhere")
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    for name, value in {"REQUEUED": "requeued", "SLOW_UNTIL": "fast"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))

    def start(results: Path, tasks: int, plugin: Path = SLOW, state: str = "RUNNING", restarts: int = 0) -> list[Any]:
        own_plugins(plugin)
        suite = load_suite(tmp_path / "nodes.yaml", [f"methods=[{plugin.stem}]"])
        job = SlurmJob(tuple(plan(suite.runs(), Store(results))), results, [str(plugin)], 0, SEQUENTIAL)
        (tmp_path / "job.pickle").write_bytes(pickle.dumps(job))
        (tmp_path / "state").write_text(state)
        step = {"SLURM_NTASKS": str(tasks), "SLURM_JOB_NUM_NODES": str(tasks), "SLURM_LOCALID": "0"}
        step |= {"JOB_STATE": str(tmp_path / "state"), "SLURM_RESTART_COUNT": str(restarts)}
        return [
            start_script(tmp_path / "task.py", tmp_path / "job.pickle", env={**step, "SLURM_PROCID": str(rank)})
            for rank in range(tasks)
        ]

    return start


def free_port() -> int:
    """A port of those where jobs meet."""
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def requeued(folder: Path) -> int:
    """How often the job was queued again."""
    path = folder / "requeued"
    return len(path.read_text().splitlines()) if path.exists() else 0


def the_run(results: Path) -> RunStore:
    (run,) = Store(results).runs()
    return run


def losses(results: Path) -> list[float]:
    return [line["loss"] for line in the_run(results).metrics()]


def begun(start_tasks: Callable[..., list[Any]], results: Path, **more: Any) -> list[Any]:
    """Two tasks that have trained for a while."""
    both = start_tasks(results, 2, **more)
    both[0].wait_until(lambda: any(results.glob("runs/*/checkpoint.pt")), "a checkpoint")
    return both


@pytest.mark.parametrize("lost", [0, 1])
def test_after_a_lost_task_the_job_is_queued_once_more_and_goes_on_to_the_same_losses(
    start_tasks: Callable[..., list[Any]], tmp_path: Path, lost: int
) -> None:
    """After the first task on two nodes again, after the other one on one node alone."""
    results, whole = tmp_path / "out", tmp_path / "whole"
    both = begun(start_tasks, results)
    os.kill(both[lost].pid, signal.SIGKILL)
    code, output = both[1 - lost].finish()
    assert code == 0, output
    assert requeued(tmp_path) == 1
    if lost:
        assert "interrupted: rank 1 is lost; the last checkpoint is of step" in output
        assert output.endswith("queued again\n")
    assert the_run(results).status()["state"] == "interrupted"
    (tmp_path / "fast").touch()
    for folder, tasks in ((results, 1 + (lost == 0)), (whole, 1)):
        ended = [task.finish() for task in start_tasks(folder, tasks, restarts=1)]
        assert [code for code, _ in ended] == [0] * tasks, ended
        assert ended[0][1].endswith("done\n")
        assert the_run(folder).environment()["ranks"]["world"] == tasks
    assert losses(results) == pytest.approx(losses(whole), rel=1e-9)
    assert len(set(losses(whole))) == 2, "the weights did not move"
    assert requeued(tmp_path) == 1


def test_shortly_before_its_time_is_up_the_job_stops_at_a_checkpoint_and_is_queued_again(
    start_tasks: Callable[..., list[Any]], tmp_path: Path
) -> None:
    both = begun(start_tasks, tmp_path / "out")
    for task in both:
        task.send_signal(signal.SIGUSR2)
    ended = [task.finish() for task in both]
    assert [code for code, _ in ended] == [0, 0], ended
    assert ended[0][1].endswith("queued again\n")
    assert requeued(tmp_path) == 1
    assert 0 < the_run(tmp_path / "out").status()["step"] < STEPS


def test_a_job_of_an_array_is_queued_again_alone(
    start_tasks: Callable[..., list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM gives the last job of an array the array's own number, by which its commands mean all of them."""
    array = os.environ["SLURM_JOB_ID"]
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", array)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    (alone,) = start_tasks(tmp_path / "out", 1)
    alone.wait_until(lambda: any(tmp_path.glob("out/runs/*/checkpoint.pt")), "a checkpoint")
    alone.send_signal(signal.SIGUSR2)
    code, output = alone.finish()
    assert code == 0, output
    assert (tmp_path / "requeued").read_text() == f"{array}_2\n"


@pytest.mark.parametrize("lost", [0, 1])
def test_a_cancelled_job_stays_so(start_tasks: Callable[..., list[Any]], tmp_path: Path, lost: int) -> None:
    """Its processes end one after another, so that a rank may see the end of another one as a loss."""
    both = begun(start_tasks, tmp_path / "out", state="CANCELLED")
    os.kill(both[lost].pid, signal.SIGKILL)
    code, output = both[1 - lost].finish()
    assert code == lost, output  # rank 0 raises
    assert not requeued(tmp_path)


@pytest.mark.parametrize("restarts", [MAX_LOSSES - 1, MAX_LOSSES])
def test_a_job_that_loses_a_rank_again_and_again_without_progress_ends(
    start_tasks: Callable[..., list[Any]], tmp_path: Path, restarts: int
) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    first, second = start_tasks(tmp_path / "out", 2, plugin=tmp_path / "dying.py", restarts=restarts)
    assert second.finish()[0] == -signal.SIGKILL
    code, output = first.finish()
    assert code == (restarts == MAX_LOSSES), output
    assert requeued(tmp_path) == (restarts < MAX_LOSSES)
