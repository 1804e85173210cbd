"""`--launcher ray` on a real cluster of two nodes: stopped, and with a worker killed, it gives one machine's bytes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.console.progress import Progress
from bench.errors import UserError
from bench.hashing import file_hash
from bench.launch.claimed import Call
from bench.launch.launchers.ray import MAX_LOSSES, _Attempt, _Queue
from bench.planning import planner
from bench.store import RunStore, Store
from bench.store.claim import live_holder
from bench.suite.launcher_settings import RaySettings
from bench.suite.suite import load_suite

pytestmark = pytest.mark.usefixtures("own_plugins")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'robust-cl-bench[ray]'")
ROOT = Path(__file__).parents[2]
SUITE = """
name: spread
budget: {samples: 1024}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1, checkpoint_seconds: 0.2}
evaluate: {tasks: [zero_shot], curve: []}
ray: {gpus: 0.5}
methods: [lasting, {method: lasting, label: other, lr: 2.0e-3}, ncu]
"""
LASTING = """
import time
from pathlib import Path
from methods.clip import Clip

class Lasting(Clip):
    name = "lasting"

    def after_step(self, clock):
        super().after_step(clock)
        if not Path("%s").exists():
            time.sleep(0.25)
"""


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a cluster."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:  # sockets: short
        environment["RAY_TMPDIR"] = folder  # Ray notes the cluster's address in its folder ray, which it does not make
        (Path(folder) / "ray").mkdir()
        command = [sys.executable, str(Path(__file__).with_name("ray_cluster.py")), folder]
        with (
            (Path(folder) / "errors").open("w+") as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
            ) as process,
        ):
            assert process.stdout is not None
            said = next((line for line in process.stdout if line.startswith("address ")), "")
            errors.seek(0)
            assert said, errors.read()
            yield said.split()[1]
            process.communicate()


def weights(results: Path) -> dict[str, str]:
    return {run.id: file_hash(run.path("weights-100.safetensors")) for run in Store(results).runs()}


def at_work(results: Path) -> list[RunStore]:
    """The runs in training that have a checkpoint and a live process."""
    runs = Store(results).runs()
    return [run for run in runs if run.path("checkpoint.pt").exists() and run.status()["state"] == "running"]


@pytest.mark.promise("Ray: a stopped call and a killed worker end with the bytes of one call")
@needs_ray
def test_a_stopped_call_and_a_killed_worker_give_the_bytes_of_one_undisturbed_call(
    cluster: str, start_bench: Callable[..., Any], tmp_path: Path, unreported: Callable[[Path, str], Path]
) -> None:
    """Two runs last until `go` exists. That the others end meanwhile needs a third place: two runs share a GPU."""
    plugin, go = tmp_path / "lasting.py", tmp_path / "go"
    plugin.write_text(LASTING % go)
    (tmp_path / "spread.yaml").write_text(SUITE)
    results = unreported(tmp_path / "out", "spread")
    suite = ("run", tmp_path / "spread.yaml", "--plugin", plugin)
    command = (*suite, "--results", results, "--launcher", "ray", "--set", f"ray.address='{cluster}'")
    first = start_bench(*command)
    first.wait_until(lambda: len(at_work(results)) == 2, "checkpoints of two runs")
    first.send_signal(signal.SIGTERM)
    code, output = first.finish()
    assert code == 75, output
    second = start_bench(*command)
    second.wait_until(lambda: len(done(results)) == 2, "the end of the others")
    assert len(at_work(results)) == 2, "they were to last"
    lines = CliRunner().invoke(app, ["status", str(tmp_path / "spread.yaml"), "--results", str(results)]).stdout
    killed = at_work(results)[0]
    there = live_holder(killed.folder)
    assert there is not None
    assert f"running (process {there['pid']} on " in lines, lines
    os.kill(there["pid"], signal.SIGKILL)
    second.wait_until(lambda: "its Ray task was lost" in second.output, "news of the loss")
    go.touch()
    code, output = second.finish()
    assert code == 0, output
    assert "failed" not in output
    alone = unreported(tmp_path / "alone", "spread")
    result = CliRunner().invoke(app, [str(part) for part in (*suite, "--results", alone, "--jobs", "1")])
    assert result.exit_code == 0, result.output
    assert weights(results) == weights(alone)
    assert len(weights(results)) == 4
    log = results / "spread" / "ray" / f"{killed.id[:16]}.log"
    assert log.read_text().count("started") == 3


def done(results: Path) -> list[RunStore]:
    return [run for run in Store(results).runs() if run.status()["state"] == "done"]


@needs_ray
def test_without_a_cluster_nothing_is_made(start_bench: Callable[..., Any], tmp_path: Path) -> None:
    command = ("run", "smoke", "--results", tmp_path / "out", "--launcher", "ray")
    environment = {"RAY_ADDRESS": "", "RAY_TMPDIR": str(tmp_path)}
    code, output = start_bench(*command, env=environment).finish()
    assert code == 2, output
    assert "ray.address: auto: no Ray cluster answers" in output
    assert not (tmp_path / "out").exists()


def test_a_run_fails_after_losses_without_progress_alone(tmp_path: Path) -> None:
    (tmp_path / "spread.yaml").write_text(SUITE.replace("lasting", "clip"))
    store = Store(tmp_path / "out")
    one = planner.plan(load_suite(tmp_path / "spread.yaml").runs()[:1], store)[0]
    queue = _Queue(Call(store, Progress(io.StringIO())), RaySettings(), "spread")
    attempt = _Attempt(one)
    for _ in range(MAX_LOSSES - 1):
        assert queue._after_loss(attempt, "gone", stopping=False) is None
    store.run(one.id).folder.mkdir(parents=True)
    store.run(one.id).path("checkpoint.pt").touch()
    for _ in range(MAX_LOSSES - 1):
        assert queue._after_loss(attempt, "gone", stopping=False) is None
    outcome = queue._after_loss(attempt, "gone", stopping=False)
    assert outcome == ("failed", "5 consecutive Ray tasks were lost without progress: gone")
    assert store.run(one.id).status()["state"] == "failed"


def test_what_a_run_asks_for_is_checked(tmp_path: Path) -> None:
    for wrong, complaint in (
        ("gpus: 1.5", "ray.gpus: 1.5 should be a share of one GPU or a whole number of them"),
        ("address: 'ray://head:10001'", "ray.address"),
        ("cpus: 0", "ray.cpus"),
    ):
        (tmp_path / "spread.yaml").write_text(SUITE.replace("lasting", "clip").replace("gpus: 0.5", wrong))
        with pytest.raises(UserError, match=r"spread\.yaml:7: ") as error:
            load_suite(tmp_path / "spread.yaml")
        assert complaint in str(error.value)
