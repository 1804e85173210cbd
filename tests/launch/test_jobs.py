"""Runs side by side: the bytes of runs in turn, and each process fails or stops alone."""

from __future__ import annotations

import hashlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.store import Store

SUITE = """
name: many
noise: {rates: [0.0, 0.4]}
budget: {samples: %d}
towers: {dim: 32, vocabulary: 500}
train: {batch: 32, threads: 1, checkpoint_seconds: 0.2}
evaluate: {tasks: [zero_shot]}
methods: [clip, ncu]
"""


@pytest.fixture
def start(start_bench: Callable[..., Any]) -> Callable[..., Any]:
    def run(folder: Path, samples: int, *more: str) -> Any:
        suite = folder / "many.yaml"
        suite.write_text(SUITE % samples)
        return start_bench("run", suite, "--results", folder / "out", *more)

    return run


def weights(folder: Path) -> dict[str, str]:
    runs = folder / "out" / "runs"
    return {
        path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in runs.glob("*/weights-100.safetensors")
    }


def workers_of(process: Any) -> list[int]:
    """The processes that run beside each other."""
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in text.split()}
    return [pid for pid, command in commands.items() if "spawn_main" in command]


def wait_for_checkpoints(process: Any, folder: Path, count: int) -> None:
    runs = folder / "out" / "runs"
    process.wait_until(lambda: len(list(runs.glob("*/checkpoint.pt"))) >= count, "checkpoints of all")


def test_side_by_side_gives_the_bytes_of_in_turn(start: Callable[..., Any], tmp_path: Path) -> None:
    for name, more in (("turn", ()), ("side", ("--jobs", "2"))):
        (tmp_path / name).mkdir()
        code, output = start(tmp_path / name, 320, *more).finish()
        assert code == 0, output
        assert "runs: 6 done" in output  # NCU starts from a CLIP run of its own share of the budget
    assert weights(tmp_path / "turn") == weights(tmp_path / "side")
    assert len(weights(tmp_path / "side")) == 6
    lines = [re.match(r"\[(\d)/6\] .*: (started|done)$", line) for line in output.splitlines()]
    order = [match.group(2) for match in lines if match]
    assert order[:2] == ["started", "started"], "nothing ran beside the first run"


def test_a_process_that_dies_fails_its_run_alone(start: Callable[..., Any], tmp_path: Path) -> None:
    process = start(tmp_path, 6400, "--jobs", "2", "--only", "clip")
    wait_for_checkpoints(process, tmp_path, 2)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    code, output = process.finish()
    assert code == 1, output
    assert "its process ended with exit code -9" in output
    assert "runs: 1 done, 1 failed" in output
    states = sorted(run.status()["state"] for run in Store(tmp_path / "out").runs())
    assert states == ["done", "failed"]
    code, output = start(tmp_path, 6400, "--jobs", "2", "--only", "clip").finish()
    assert code == 0, output
    assert "runs: 1 done, 1 done before" in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_request_reaches_every_process(
    start: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    process = start(tmp_path, 32000, "--jobs", "2", "--only", "clip")
    wait_for_checkpoints(process, tmp_path, 2)
    workers = workers_of(process)
    process.send_signal(number)
    code, output = process.finish()
    assert code == 75, output
    assert "resume with: bench run" in output
    assert {run.status()["state"] for run in Store(tmp_path / "out").runs()} == {"interrupted"}
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_a_stop_request_to_one_process_stops_all_and_starts_nothing_more(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    process = start(tmp_path, 32000, "--jobs", "2")
    wait_for_checkpoints(process, tmp_path, 2)
    os.kill(workers_of(process)[0], signal.SIGTERM)
    code, output = process.finish()
    assert code == 75, output
    assert len(re.findall(r": started$", output, re.MULTILINE)) == 2, output


def test_runs_timed_in_seconds_are_never_beside_another(start_bench: Callable[..., Any], tmp_path: Path) -> None:
    suite = tmp_path / "timed.yaml"
    suite.write_text((SUITE % 320).replace("{samples: 320}", "{device_seconds: 60}"))
    code, output = start_bench("run", suite, "--results", tmp_path / "out", "--jobs", "2").finish()
    assert code == 2
    assert "--jobs 2: runs with a budget in device seconds need the device alone; use --jobs 1" in output
