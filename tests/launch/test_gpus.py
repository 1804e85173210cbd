"""Several processes a run through `bench run`: what one process does, and each of them can fail or stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bench.store import RunStore, Store

EXACT = [  #: options with which losses are equal to 1e-9; the first four as in tests/training/worker.py
    part
    for change in (
        *("train.precision=fp64", "train.bn_group=32", "train.eps=1000.0", "train.lr=10.0"),
        *("noise.rates=[0.4]", "evaluate={tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}"),
    )
    for part in ("--set", change)
]
SUITE = """
name: several
budget: {samples: %d}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 64, bn_group: 32, threads: 1, checkpoint_seconds: 0.1}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}, curve: [0.5]}
methods: [%s]
"""
SLOW, ODD = (Path(__file__).with_name(name) for name in ("slow.py", "odd.py"))
STEPS = 8  #: of a slow CLIP


@pytest.fixture
def start(start_bench: Callable[..., Any]) -> Callable[..., Any]:
    return lambda suite, results, *more: start_bench("run", suite, "--results", results, *more)


@pytest.fixture
def start_slow(
    start_bench: Callable[..., Any], tmp_path: Path, unreported: Callable[[Path, str], Path]
) -> Callable[..., Any]:
    """Start a CLIP of STEPS steps on several processes; its steps are slow until the file `fast` is there."""
    suite, environment = written(tmp_path, 64 * STEPS, "slow"), {"SLOW_UNTIL": str(tmp_path / "fast")}
    start = ("run", suite, "--results", unreported(tmp_path / "out", "several"), "--plugin", SLOW)
    return lambda *more: start_bench(*start, *more, env=environment)


def written(folder: Path, samples: int, methods: str = "clip") -> Path:
    path = folder / "several.yaml"
    path.write_text(SUITE % (samples, methods))
    return path


def wait_for_checkpoint(process: Any, results: Path) -> None:
    process.wait_until(lambda: any(results.glob("runs/*/checkpoint.pt")), "a checkpoint")


def runs(results: Path) -> dict[str, RunStore]:
    return {run.settings()["method"]: run for run in Store(results).runs()}


@pytest.mark.promise("several processes of one run give its id, losses and weights")
def test_two_processes_give_the_order_losses_and_weights_of_one(
    start: Callable[..., Any], tmp_path: Path, unreported: Callable[[Path, str], Path]
) -> None:
    for number in ("1", "2"):
        results = unreported(tmp_path / number, "smoke")
        code, output = start("smoke", results, "--processes", number, "--only", "clip", *EXACT).finish()
        assert code == 0, output
    one, two = (list(Store(tmp_path / number).runs()) for number in ("1", "2"))
    assert [run.id for run in one] == [run.id for run in two], "the number of processes is no part of a run's identity"
    for single, double in zip(one, two, strict=True):
        assert double.environment()["ranks"]["world"] == 2
        losses = [[line["loss"] for line in run.metrics()] for run in (single, double)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-9)
        assert len(losses[0]) == 2
        assert double.ledger()["samples"] == single.ledger()["samples"] == 256
        weights = load_file(double.path("weights-100.safetensors"))
        for name, x in load_file(single.path("weights-100.safetensors")).items():
            torch.testing.assert_close(weights[name], x, rtol=1e-9, atol=1e-9 * float(x.double().abs().max()))


def test_a_rank_that_raises_fails_its_run_alone_and_seconds_are_of_all_ranks(
    start: Callable[..., Any], tmp_path: Path, unreported: Callable[[Path, str], Path]
) -> None:
    suite = written(tmp_path, 256, "odd, clip")
    every_step = ("--set", "train.checkpoint_seconds=0")
    more = ("--processes", "2", "--plugin", ODD, *every_step)
    code, output = start(suite, unreported(tmp_path / "out", "several"), *more).finish()
    assert code == 1, output
    assert "rank 1: ValueError: the second rank has had enough" in output
    found = runs(tmp_path / "out")
    assert found["clip"].status()["state"] == "done"
    status = found["odd"].status()
    assert (status["state"], status["step"]) == ("failed", 2)
    assert "ValueError" in status["error"]["traceback"]
    spent = torch.load(found["odd"].path("checkpoint.pt"), weights_only=True)["ledger"]
    assert spent["train_seconds"] >= 2 * 2 * 0.3  # two steps, in which both ranks wait for the slow one


def test_a_rank_that_dies_fails_its_run_alone_and_the_same_call_goes_on(
    start_slow: Callable[..., Any], tmp_path: Path
) -> None:
    process = start_slow("--processes", "2")
    wait_for_checkpoint(process, tmp_path / "out")
    ranks = process.workers()
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    code, output = process.finish()
    assert code == 1, output
    assert "of its 2 processes rank 1 ended with exit code -9" in output
    status = runs(tmp_path / "out")["slow"].status()
    assert (status["state"], status["error"]["type"]) == ("failed", "Process")
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks), "a process was left behind"
    (tmp_path / "fast").touch()
    code, output = start_slow("--processes", "2").finish()
    assert code == 0, output


def test_a_stop_request_to_any_rank_stops_all_after_one_step(start_slow: Callable[..., Any], tmp_path: Path) -> None:
    process = start_slow("--processes", "2")
    wait_for_checkpoint(process, tmp_path / "out")
    os.kill(process.workers()[1], signal.SIGTERM)
    code, output = process.finish()
    assert code == 75, output
    run = runs(tmp_path / "out")["slow"]
    assert run.status()["state"] == "interrupted"
    saved = torch.load(run.path("checkpoint.pt"), weights_only=True)
    assert saved["step"] == run.status()["step"] < STEPS
    (tmp_path / "fast").touch()
    code, output = start_slow().finish()  # one process goes on where two stopped
    assert code == 0, output


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--processes", "3"], "train.batch: 64 does not divide among 3 processes"),
        (
            ["--processes", "4"],
            "train.bn_group: 32 does not divide the 16 pairs of batch 64 that each of 4 processes has",
        ),
        (["--processes", "2", "--gpus", "2"], "--gpus and --processes: give one of them"),
        (["--processes", "2", "--set", "budget={device_seconds: 9}"], "calibrated on one device"),
        (["--launcher", "slrum"], "--launcher 'slrum' should be 'local', 'slurm' or 'ray'; did you mean 'slurm'?"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    start: Callable[..., Any], tmp_path: Path, more: list[str], said: str
) -> None:
    if "device_seconds" in more[-1]:
        more = [*more[:-1], "budget.device_seconds=9", "--set", "budget.samples=null"]
    code, output = start(written(tmp_path, 256), tmp_path / "out", *more).finish()
    assert code == 2, output
    assert said in output
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without GPUs")
def test_gpus_that_are_not_there_are_refused(start: Callable[..., Any], tmp_path: Path) -> None:
    code, output = start(written(tmp_path, 256), tmp_path / "out", "--gpus", "2").finish()
    assert code == 2, output
    assert "this machine has 0 GPUs that torch can use; --processes 2 trains on as many CPU processes" in output


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_give_the_losses_of_one(start: Callable[..., Any], tmp_path: Path) -> None:
    found = []
    for number in ("1", "2"):
        code, output = start("smoke", tmp_path / number, "--gpus", number, "--only", "clip", *EXACT).finish()
        assert code == 0, output
        found.append([line["loss"] for run in Store(tmp_path / number).runs() for line in run.metrics()])
    assert found[1] == pytest.approx(found[0], rel=1e-9)
