"""Workers share a folder: each run is made once, a killed worker loses nothing, the bytes are those of `bench run`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bench.cli import app
from bench.errors import UserError
from bench.hashing import file_hash
from bench.resources import suite_names
from bench.store import Store
from bench.suite.suite import load_suite, parse_suite
from bench.yaml_source import YamlSource

pytestmark = pytest.mark.usefixtures("own_plugins")
SUITE = """
name: shared
budget: {samples: 320}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1, checkpoint_seconds: 0.2}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}, curve: []}
methods: [%s]
"""
WAITING = """
import os, time
from pathlib import Path
from methods.clip import Clip

class Waiting(Clip):
    name = "waiting"

    def after_step(self, clock):
        super().after_step(clock)
        end = Path(os.environ["WAIT_FOR"])
        if not end.exists():
            time.sleep(0.25)  # so that a checkpoint is due after each step
        while clock.step >= 8 and not end.exists():
            time.sleep(0.05)
"""
FAILING = """
import os
from methods.clip import Clip

class Failing(Clip):
    name = "failing"

    def after_step(self, clock):
        with open(os.environ["TRIED"], "a") as file:
            file.write("tried\\n")
        raise RuntimeError("on purpose")
"""


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments: object) -> str:
    """The lines of the UserError of a verb."""
    with pytest.raises(UserError) as error:
        CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return str(error.value)


def queued(folder: Path, methods: str, *more: object, settings: str = SUITE) -> Path:
    """A folder of results where a suite of these rows is queued."""
    (folder / "shared.yaml").write_text(settings % methods)
    result = bench("run", folder / "shared.yaml", "--results", folder / "out", "--plan-only", *more)
    assert result.exit_code == 0, result.output
    assert "bench worker" in result.stdout
    assert not list(Store(folder / "out").runs()), "it trained"
    return folder / "out"


def weights(results: Path) -> dict[str, str]:
    return {run.id: file_hash(run.path("weights-100.safetensors")) for run in Store(results).runs()}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plug-in whose method `waiting` waits until the file "go" is there."""
    monkeypatch.setenv("WAIT_FOR", str(tmp_path / "go"))
    path = tmp_path / "waiting.py"
    path.write_text(WAITING)
    return path


@pytest.mark.promise("workers on a shared folder, one of them killed, give the bytes of one call")
def test_two_workers_and_a_kill_give_the_bytes_of_one_undisturbed_call(
    start_bench: Callable[..., Any],
    tmp_path: Path,
    plugin: Path,
    unreported: Callable[[Path, str], Path],
) -> None:
    """The first worker holds a run that waits until it is killed; the second makes the others, waits and takes over."""
    results = queued(tmp_path, "waiting, clip, ncu", "--plugin", plugin)
    command = ("worker", results, "--plugin", plugin, "--jobs", "1")
    first = start_bench(*command)
    first.wait_until(lambda: len(list(results.glob("runs/*/checkpoint.pt"))) == 1, "a checkpoint of its run")
    second = start_bench(*command)
    second.wait_until(lambda: "waiting for run" in second.output, "the others' end")
    store = Store(results)
    assert sorted(run.status()["state"] for run in store.runs()) == ["done", "done", "done", "running"]
    assert f"process {first.pid} on" in second.output
    os.kill(first.pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    code, output = second.finish()
    assert code == 0, output
    assert "runs: 4 done\n" in output
    alone = unreported(tmp_path / "alone", "shared")
    result = bench("run", tmp_path / "shared.yaml", "--results", alone, "--plugin", plugin, "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert weights(results) == weights(alone)
    assert len(weights(results)) == 4
    last = bench(*command)
    assert (last.exit_code, last.stdout) == (0, "nothing to do: all 4 runs are done\n")


def test_a_run_that_failed_is_tried_again_only_when_its_suite_is_queued_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, tried = tmp_path / "failing.py", tmp_path / "tried"
    plugin.write_text(FAILING)
    monkeypatch.setenv("TRIED", str(tried))
    results = queued(tmp_path, "failing, clip", "--plugin", plugin, "--set", "budget.samples=32")
    command = ("worker", results, "--plugin", plugin, "--jobs", "1")
    for expected in ("runs: 1 done, 1 failed\n", "runs: 1 done before, 1 failed\n"):
        result = bench(*command)
        assert (result.exit_code, result.stdout) == (1, expected)
    assert tried.read_text() == "tried\n"
    again = bench("run", tmp_path / "shared.yaml", "--results", results, "--plan-only", "--only", "failing")
    assert again.exit_code == 0, again.output
    assert bench(*command).exit_code == 1
    assert tried.read_text() == "tried\ntried\n"


def test_trials_come_before_the_runs_that_they_choose_for(tmp_path: Path) -> None:
    tuned = SUITE.replace("samples: 320", "samples: 32")
    tuned += "tune: {trials: 2, budget: [{samples: 16}, {samples: 32}], lr: [1.0e-3, 1.0e-2]}\n"
    results = queued(tmp_path, "clip", settings=tuned)
    result = bench("worker", results, "--suite", "shared", "--jobs", "1")
    assert result.exit_code == 0, result.output
    plan = Store(results).plan("shared")
    assert plan is not None
    assert len(plan["tuning"]["methods"]["clip"]["trials"]) == 2 + 2 * 3
    assert len(list(Store(results).runs())) == 2 + 2 * 3 + 1


def test_bad_input_is_refused_by_name(tmp_path: Path) -> None:
    results = tmp_path / "out"
    assert "`bench run SUITE --plan-only` queues one" in refused("worker", results)
    queued(tmp_path, "clip")
    assert "did you mean 'shared'?" in refused("worker", results, "--suite", "shard")
    both = refused("run", tmp_path / "shared.yaml", "--results", results, "--plan-only", "--jobs", "2")
    assert "and --launcher are for `bench worker`" in both
    (results / "shared" / "queue.json").write_text('{"suite": {"name": "shared"}, "only": []')
    cut = refused("worker", results)
    assert "queue.json: " in cut
    assert "--plan-only` writes it again" in cut
    (results / "shared" / "queue.json").write_text('{"suite": {"name": "shared"}, "only": [], "seeds": []}')
    assert "queue.json:1: budget: is missing" in refused("worker", results)
    assert not list(Store(results).runs())


def test_every_shipped_suite_is_the_same_after_the_queue() -> None:
    several = [
        "noise=[{rates: [0, 0.4], seeds: [1, 1]}, {kind: edited_captions, rates: [0.4], options: {op: drop}}]",
        "budget=[{epochs: 1}, {epochs: 2}]",
        "tune={trials: 4, budget: [{epochs: 1}, {epochs: 2}]}",
    ]
    loaded = [load_suite(name, check_methods=False) for name in suite_names()]
    for suite in (*loaded, load_suite("smoke", several, check_methods=False)):
        name, content = suite.name, json.loads(suite.model_dump_json(exclude_unset=True))
        again = parse_suite(YamlSource(name, content, {}), check_methods=False)
        assert (again, again.hash) == (suite, suite.hash)
