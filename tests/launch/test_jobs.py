"""Runs side by side: the bytes of runs in turn, and each process fails or stops alone."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import bench
from bench.cli import app
from bench.store import Store

ROOT = Path(bench.__file__).parents[1]
SUITE = """
name: many
noise: {rates: [0.0, 0.4]}
budget: {samples: %d}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1, checkpoint_seconds: 0.2}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}, curve: []}
methods: [%s]
"""
SLOW = Path(__file__).with_name("slow.py")


@pytest.fixture
def start(start_bench: Callable[..., Any], unreported: Callable[[Path, str], Path]) -> Callable[..., Any]:
    """Start the runs of a slow CLIP, with and without noise; they are slow until the file `fast` is there."""

    def run(folder: Path, steps: int, *changes: str) -> Any:
        suite = folder / "many.yaml"
        suite.write_text(SUITE % (16 * steps, "slow"))
        more = ("--jobs", "2", "--plugin", SLOW, *(part for change in changes for part in ("--set", change)))
        command = ("run", suite, "--results", unreported(folder / "out", "many"), *more)
        return start_bench(*command, env={"SLOW_UNTIL": str(folder / "fast")})

    return run


def weights(folder: Path) -> dict[str, str]:
    runs = folder / "out" / "runs"
    return {
        path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in runs.glob("*/weights-100.safetensors")
    }


def wait_for_checkpoints(process: Any, folder: Path, count: int) -> None:
    runs = folder / "out" / "runs"
    process.wait_until(lambda: len(list(runs.glob("*/checkpoint.pt"))) >= count, "checkpoints of all")


@pytest.mark.promise("runs side by side give the bytes of runs in turn")
def test_side_by_side_gives_the_bytes_of_in_turn(tmp_path: Path, unreported: Callable[[Path, str], Path]) -> None:
    """Side by side from a script without a main guard, which no process of ours may run again."""
    suite, script = tmp_path / "many.yaml", tmp_path / "script.py"
    suite.write_text((SUITE % (96, "clip, ncu")).replace("[0.0, 0.4]", "[0.4]"))
    results = str(unreported(tmp_path / "turn" / "out", "many"))
    result = CliRunner().invoke(app, ["run", str(suite), "--results", results])
    assert result.exit_code == 0, result.output
    assert "runs: 3 done" in result.output  # NCU starts from a CLIP run of its own share of the budget
    script.write_text(
        f"import bench\nprint(bench.run_suite({str(suite)!r}, {str(tmp_path / 'side' / 'out')!r}, jobs=2))"
    )
    command, environment = [sys.executable, str(script)], {**os.environ, "PYTHONPATH": str(ROOT)}
    beside = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert beside.returncode == 0, beside.stderr
    assert beside.stdout.count("RunOutcomes(") == 1
    assert weights(tmp_path / "turn") == weights(tmp_path / "side")
    assert len(weights(tmp_path / "side")) == 3
    lines = [re.match(r"\[(\d)/3\] .*: (started|done)$", line) for line in beside.stderr.splitlines()]
    order = [match.group(2) for match in lines if match]
    assert order[:2] == ["started", "started"], "nothing ran beside the first run"
    turn = [re.sub(r".* (started|done)$", r"\1", line) for line in result.output.splitlines() if line[:1] == "["]
    assert [word for word in turn if word in ("started", "done")] == 3 * ["started", "done"], "so short runs go in turn"


IDLE = """
from bench.cli import main
from bench.launch.launchers import local
from forked_server import prepare

prepare()
local.MIN_PARALLEL_FLOPS, local.cores = 0, lambda: 3
main()
"""


def test_left_open_it_is_as_many_as_the_machine_takes(
    tmp_path: Path, start_script: Callable[..., Any], unreported: Callable[[Path, str], Path]
) -> None:
    """The same runs as above, on three cores, where ten seconds of work count as none."""
    suite, script, results = tmp_path / "many.yaml", tmp_path / "idle.py", unreported(tmp_path / "out", "many")
    suite.write_text(SUITE % (96, "clip"))
    script.write_text(IDLE)
    code, output = start_script(script, "run", suite, "--results", results).finish()
    assert code == 0, output
    words = re.findall(r"^\[\d/2\] .*: (started|done|failed)$", output, re.MULTILINE)
    assert words.index("done") > 1, "nothing ran beside the first run"
    assert words.count("done") == 2


@pytest.mark.promise("a process that dies fails its run alone")
def test_a_process_that_dies_fails_its_run_alone(start: Callable[..., Any], tmp_path: Path) -> None:
    process = start(tmp_path, 32)
    wait_for_checkpoints(process, tmp_path, 2)
    os.kill(process.workers()[0], signal.SIGKILL)
    (tmp_path / "fast").touch()
    code, output = process.finish()
    assert code == 1, output
    assert "its process ended with exit code -9" in output
    assert "runs: 1 done, 1 failed" in output
    states = sorted(run.status()["state"] for run in Store(tmp_path / "out").runs())
    assert states == ["done", "failed"]
    code, output = start(tmp_path, 32).finish()
    assert code == 0, output
    assert "runs: 1 done, 1 done before" in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_request_reaches_every_process(
    start: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    process = start(tmp_path, 1000)
    wait_for_checkpoints(process, tmp_path, 2)
    workers = process.workers()
    assert len(workers) == 2
    process.send_signal(number)
    code, output = process.finish()
    assert code == 75, output
    assert "resume with: bench run" in output
    assert {run.status()["state"] for run in Store(tmp_path / "out").runs()} == {"interrupted"}
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_a_stop_request_to_one_process_stops_all_and_starts_nothing_more(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    process = start(tmp_path, 1000, "seeds=[0, 1]")
    wait_for_checkpoints(process, tmp_path, 2)
    os.kill(process.workers()[0], signal.SIGTERM)
    code, output = process.finish()
    assert code == 75, output
    assert len(re.findall(r": started$", output, re.MULTILINE)) == 2, output


def test_runs_timed_in_seconds_are_never_beside_another(start_bench: Callable[..., Any], tmp_path: Path) -> None:
    suite = tmp_path / "timed.yaml"
    suite.write_text((SUITE % (320, "clip")).replace("{samples: 320}", "{device_seconds: 60}"))
    code, output = start_bench("run", suite, "--results", tmp_path / "out", "--jobs", "2").finish()
    assert code == 2
    assert "--jobs 2: runs with a budget in device seconds need the device alone; use --jobs 1" in output
