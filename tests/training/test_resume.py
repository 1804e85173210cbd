"""Killed, stopped or failing: the same command finishes the suite, to the same bytes."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.store import Store

SUITE = """
name: small
data: {name: emoji, size: 32}
noise: {kind: shuffled_captions, rates: [0.4]}
seeds: [1]
budget: {samples: 1024}
towers: {image: tiny-resnet, text: tiny-transformer, dim: 32, vocabulary: 300, context: 12}
train: {batch: 32, threads: 1, checkpoint_seconds: 0.2}
evaluate: {tasks: [zero_shot, noise_detection], curve: [0.5]}
methods: [sogclr]
"""

EXPLODING = '''
from methods.clip import Clip


class Exploding(Clip):
    """CLIP whose loss leaves the reals at its fourth step."""

    name = "exploding"

    def observe(self, z, batch):
        return {"step": batch.ids.new_tensor(batch.clock.step)}

    def loss(self, z, observed, anchors):
        terms = super().loss(z, observed, anchors)
        return {**terms, "bang": terms["contrastive"] / (0.0 if int(observed["step"]) == 3 else 1e9)}
'''

FULL, BRIEF = "{tasks: [zero_shot, noise_detection], curve: [0.5]}", "{tasks: [zero_shot], curve: []}"

MORTAL = '''
import os
import signal
import time
from pathlib import Path

from methods.clip import Clip


class Mortal(Clip):
    """CLIP whose steps take 0.05 s more, and whose process is killed in those that a file names, one a process."""

    name = "mortal"

    def after_step(self, clock):
        super().after_step(clock)
        time.sleep(0.05)
        path = Path(os.environ["MORTAL"])
        first, *others = path.read_text().split() or [""]
        if first == str(clock.step):
            path.write_text(" ".join(others))
            os.kill(os.getpid(), signal.SIGKILL)
'''


@pytest.fixture(scope="module")
def start(start_bench: Callable[..., Any], unreported: Callable[[Path, str], Path]) -> Callable[..., Any]:
    """Start `bench run`; it writes no report."""
    return lambda folder, suite, *more: start_bench("run", suite, "--results", unreported(folder, "small"), *more)


def the_run(results: Path) -> Path | None:
    found = sorted((results / "runs").glob("*")) if (results / "runs").is_dir() else []
    return found[0] if found else None


def promised(results: Path) -> dict[str, str]:
    """Hashes of all that is promised to be the same however often a run was interrupted."""
    run = the_run(results)
    assert run is not None
    names = ["weights-*.safetensors", "metrics.jsonl", "settings.json", "diagnostics.json", "evaluations/*/*"]
    files = [path for name in names for path in sorted(run.glob(name))]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def exists(results: Path, pattern: str) -> bool:
    run = the_run(results)
    return run is not None and any(run.glob(pattern))


def logged(results: Path, lines: int) -> bool:
    run = the_run(results)
    return run is not None and len(Store(results).run(run.name).metrics()) >= lines


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "in training, past a checkpoint": lambda results: logged(results, 3) and exists(results, "checkpoint.pt"),
    "between weights and ledger": lambda results: exists(results, "weights-100.safetensors"),
    "in evaluation": lambda results: exists(results, "evaluations/*"),
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("suite") / "small.yaml"
    path.write_text(SUITE)
    return path


@pytest.fixture(scope="module")
def uninterrupted(start: Callable[..., Any], suite: Path) -> dict[str, str]:
    results = suite.parent / "uninterrupted"
    code, output = start(results, suite).finish()
    assert code == 0, output
    found = promised(results)
    assert {"weights-050.safetensors", "weights-100.safetensors", "metrics.jsonl"} <= found.keys()
    return found


@pytest.mark.promise("killed at any moment, the same command gives the same weights and records, byte for byte")
@pytest.mark.parametrize("moment", MOMENTS)
def test_kill_and_the_same_call_again_give_the_same_bytes(
    moment: str, start: Callable[..., Any], suite: Path, uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    process = start(tmp_path, suite)
    process.wait_until(lambda: MOMENTS[moment](tmp_path), moment)
    process.send_signal(signal.SIGKILL)
    process.finish()
    code, output = start(tmp_path, suite).finish()
    assert code == 0, output
    assert promised(tmp_path) == uninterrupted


@pytest.fixture(scope="module")
def resumed(start: Callable[..., Any], suite: Path) -> Path:
    """A store whose run was asked to stop, and went on."""
    results = suite.parent / "resumed"
    process = start(results, suite)
    process.wait_until(lambda: logged(results, 2), "the second line of metrics")
    process.send_signal(signal.SIGTERM)
    code, output = process.finish()
    assert code == 75, output
    assert "resume with" in output
    assert exists(results, "checkpoint.pt")
    run = the_run(results)
    assert run is not None
    assert Store(results).run(run.name).status()["state"] == "interrupted"
    code, output = start(results, suite).finish()
    assert code == 0, output
    return results


def test_sigterm_keeps_a_checkpoint_and_says_how_to_go_on(resumed: Path, uninterrupted: dict[str, str]) -> None:
    assert promised(resumed) == uninterrupted


def test_two_calls_on_one_store_share_the_work(
    start: Callable[..., Any], suite: Path, uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    first = start(tmp_path, suite)
    first.wait_until(lambda: logged(tmp_path, 1), "the first line of metrics")
    first.send_signal(signal.SIGSTOP)  # else it may be done before the other has loaded torch
    code, output = start(tmp_path, suite).finish()
    first.send_signal(signal.SIGCONT)
    assert code == 75, output
    assert "busy" in output
    code, output = first.finish()
    assert code == 0, output
    assert promised(tmp_path) == uninterrupted


def test_a_loss_that_is_not_finite_fails_its_run_alone(start_bench: Callable[..., Any], tmp_path: Path) -> None:
    plugin = tmp_path / "exploding.py"
    plugin.write_text(EXPLODING)
    suite = tmp_path / "small.yaml"
    suite.write_text(SUITE.replace("[sogclr]", "[exploding, clip]").replace("1024", "256"))
    code, output = start_bench("run", suite, "--results", tmp_path / "results", "--plugin", plugin).finish()
    assert code == 1, output
    store = Store(tmp_path / "results")
    states = {run.settings()["method"]: run.status() for run in store.runs()}
    assert states["clip"]["state"] == "done"
    assert states["exploding"]["state"] == "failed"
    assert (states["exploding"]["error"]["step"], states["exploding"]["error"]["term"]) == (3, "bang")
    assert "Traceback" not in output
    assert "bang" in (tmp_path / "results" / "small" / "report.html").read_text()


@pytest.mark.promise("repeated seconds are exact after any number of kills")
def test_repeated_seconds_are_exact_after_any_number_of_kills(
    start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in steps 17 and 12 without a checkpoint: 17 and 12 finished steps were lost, whatever was logged."""
    plugin, suite, deaths = tmp_path / "mortal.py", tmp_path / "small.yaml", tmp_path / "deaths"
    plugin.write_text(MORTAL)
    changed = SUITE.replace("checkpoint_seconds: 0.2", "checkpoint_seconds: 1000").replace("1024", "640")
    suite.write_text(changed.replace("sogclr", "mortal").replace(FULL, BRIEF))
    deaths.write_text("17 12")
    monkeypatch.setenv("MORTAL", str(deaths))
    noted = [0.0]
    for lost in (17, 12):
        code, output = start(tmp_path / "results", suite, "--plugin", str(plugin)).finish()
        assert code == -signal.SIGKILL, output
        run = the_run(tmp_path / "results")
        assert run is not None
        noted.append(Store(tmp_path / "results").run(run.name).train_seconds())
        assert noted[-1] - noted[-2] >= lost * 0.05
    code, output = start(tmp_path / "results", suite, "--plugin", str(plugin)).finish()
    assert code == 0, output
    out = Store(tmp_path / "results").run(run.name)
    ledger = out.ledger()
    assert ledger["repeated_seconds"] == noted[-1]
    assert ledger["train_seconds"] >= 20 * 0.05
    assert out.train_seconds() == ledger["train_seconds"] + ledger["repeated_seconds"]


@pytest.mark.usefixtures("uninterrupted")
def test_a_run_that_was_not_killed_repeats_nothing(resumed: Path, suite: Path) -> None:
    for results in (resumed, suite.parent / "uninterrupted"):
        run = the_run(results)
        assert run is not None
        assert Store(results).run(run.name).ledger()["repeated_seconds"] == pytest.approx(0.0, abs=1e-9)
