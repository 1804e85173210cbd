"""The verbs on a real suite of two tiny runs: dry run, run, run again, report, status, show, compare."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import UserError
from bench.resources import suite_names
from bench.store import Store
from bench.suite.suite import load_suite

SUITE = """\
name: tiny
noise: {rates: [0.4]}
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
methods: [clip, {method: label_permutation, label: permuted}]
"""


def bench(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--results", str(folder / "out")], catch_exceptions=False)


def listed(text: str) -> list[list[str]]:
    return [re.split(" {2,}", line) for line in text.splitlines()]


def files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in (folder / "out").rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "tiny.yaml").write_text(SUITE)
    result = bench(folder, "run", str(folder / "tiny.yaml"), "--dry-run")
    assert result.exit_code == 0
    assert not (folder / "out").exists(), "a dry run writes nothing"
    (folder / "dry.txt").write_text(result.stdout)
    assert bench(folder, "run", str(folder / "tiny.yaml"), "--plan-only").exit_code == 0
    return folder


@pytest.fixture(scope="module")
def done(planned: Path) -> Path:
    result = bench(planned, "run", str(planned / "tiny.yaml"))
    assert result.exit_code == 0
    assert "runs: 2 done\n" in result.stdout
    assert f"report: {planned / 'out' / 'tiny' / 'report.html'}" in result.stdout
    return planned


def test_status_without_a_suite_lists_shipped_and_planned_suites(done: Path) -> None:
    heading, *rows = listed(bench(done, "status").stdout)
    assert heading == ["suite", "rows", "runs done", "data", "description"]
    assert [row[0] for row in rows] == sorted([*suite_names(), "tiny"])
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["tiny"][:3] == ["2", "2 of 2", "emoji/train"]
    assert by_name["smoke"] == ["2", "-", "emoji", "Two methods for a few steps, to see that everything runs"]


def test_a_dry_run_says_what_is_planned_and_writes_nothing(planned: Path) -> None:
    plan = json.loads((planned / "out" / "tiny" / "plan.json").read_text())
    suite = load_suite(planned / "tiny.yaml")
    assert plan["suite_hash"] == suite.hash
    assert [(cell["method"], cell["noise"], cell["seed"], cell["steps"]) for cell in plan["cells"]] == [
        (label, "40 % shuffled captions", 0, 2) for label in ("clip", "permuted")
    ]
    assert [entry["title"] for entry in plan["methods"]] == ["CLIP", "Label permutation"]
    assert plan["cells"][0]["manifest"]["rows"] == round(0.4 * plan["data"]["rows"])
    assert plan["datasets"]["emoji/iid"]["chance"]
    text = (planned / "dry.txt").read_text()
    for cell in plan["cells"]:
        (line,) = [line for line in text.splitlines() if cell["run"].startswith(line.split()[0])]
        assert line.split()[1:3] == ["missing", "2"]


def test_a_second_call_does_nothing(done: Path) -> None:
    before = files(done)
    result = bench(done, "run", str(done / "tiny.yaml"))
    assert result.exit_code == 0
    assert "nothing to do: all 2 runs are done" in result.stdout
    assert files(done) == before
    assert " done " in bench(done, "run", str(done / "tiny.yaml"), "--dry-run").stdout


def test_a_selection_leaves_the_plan_whole(done: Path) -> None:
    result = bench(done, "run", str(done / "tiny.yaml"), "--only", "permuted")
    assert "all 1 runs are done" in result.stdout
    plan = Store(done / "out").plan("tiny")
    assert plan is not None
    assert len(plan["cells"]) == 2


def test_a_report_is_made_anew_when_a_run_has_changed_since(done: Path) -> None:
    page = done / "out" / "tiny" / "report.html"
    plan = Store(done / "out").plan("tiny")
    assert plan is not None
    os.utime(page, ns=(0, (done / "out" / "runs" / plan["cells"][0]["run"] / "status.json").stat().st_mtime_ns - 1))
    before = page.stat().st_mtime_ns
    assert "nothing to do" in bench(done, "run", str(done / "tiny.yaml"), "--only", "permuted").stdout
    assert page.stat().st_mtime_ns != before


def test_report_is_built_again_from_the_store(done: Path) -> None:
    page = done / "out" / "tiny" / "report.html"
    page.unlink()
    result = bench(done, "report", str(done / "tiny.yaml"))
    assert result.exit_code == 0
    assert str(page) in result.stdout.splitlines()
    assert page.exists()


def test_status_and_show(done: Path) -> None:
    text = bench(done, "status", str(done / "tiny.yaml")).stdout
    (line,) = [line for line in text.splitlines() if line.startswith("permuted")]
    assert "done" in line
    assert "2/2" in line
    plan = Store(done / "out").plan("tiny")
    assert plan is not None
    run = plan["cells"][1]["run"]
    shown = bench(done, "show", run[:12]).stdout
    assert f"run {run}" in shown
    assert "zero_shot/concept" in shown


def test_compare(done: Path) -> None:
    assert "permuted against CLIP" in bench(done, "compare", str(done / "tiny.yaml"), "permuted", "clip").stdout
    with pytest.raises(UserError, match="'clpi' is not an entry of suite tiny; did you mean 'clip'"):
        bench(done, "compare", str(done / "tiny.yaml"), "permuted", "clpi")


def test_a_suite_whose_file_is_gone_is_found_by_name(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(done)
    assert "permuted" in bench(done, "status", "tiny").stdout


def test_a_stale_plan_is_said(done: Path) -> None:
    other = done / "other.yaml"
    other.write_text(SUITE.replace("samples: 32", "samples: 48"))
    result = bench(done, "status", str(other))
    assert "the last plan of tiny was made from other settings (budget) than" in result.stderr
    assert "other settings" not in bench(done, "status", str(done / "tiny.yaml")).stderr


def test_a_stale_plan_with_a_method_of_a_plugin_is_read_without_the_plugin(
    done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.adapters import registry

    monkeypatch.setattr(registry, "_plugins", {})
    (done / "own.py").write_text("from methods.clip import Clip\n\n\nclass Own(Clip):\n    name = 'own'\n")
    suite = done / "own.yaml"
    suite.write_text(SUITE.replace("name: tiny", "name: own").replace("[clip,", "[own,"))
    bench(done, "run", str(suite), "--plugin", str(done / "own.py"), "--set", "budget={samples: 64}", "--plan-only")
    registry.clear_caches()
    monkeypatch.setattr(registry, "_plugins", {})
    result = bench(done, "status", str(suite))
    assert "own" in result.stdout
    assert "the last plan of own was made from other settings than" in result.stderr


def test_a_failed_run_is_exit_code_1(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.adapters import registry

    file = done / "broken.py"
    file.write_text(
        "from methods.clip import Clip\n\n\n"
        'class Broken(Clip):\n    name = "broken"\n\n'
        "    def loss(self, z, observed, anchors):\n"
        "        terms = super().loss(z, observed, anchors)\n"
        "        return {name: term / 0 for name, term in terms.items()}\n"
    )
    monkeypatch.setattr(registry, "_plugins", {})
    suite = done / "broken.yaml"
    suite.write_text(SUITE.replace("name: tiny", "name: broken").replace("[clip,", "[broken,"))
    result = bench(done, "run", str(suite), "--plugin", str(file))
    registry.clear_caches()
    assert result.exit_code == 1
    assert "runs: 1 done before, 1 failed" in result.stdout
    assert "bench show RUN says why" in result.stderr
    assert "failed" in bench(done, "status", str(suite)).stdout


def test_an_interrupted_run_says_how_to_resume(start_bench: Callable[..., Any], done: Path) -> None:
    command = ("run", "tiny.yaml", "--set", "budget.samples=64_000", "--set", "name=long")
    process = start_bench(*command, cwd=done, merged=False)
    process.wait_until(lambda: ": train\n" in process.errors, "training")
    process.send_signal(signal.SIGTERM)
    code, _ = process.finish()
    assert code == 75
    resume = "resume with: bench run tiny.yaml --set budget.samples=64_000 --set name=long\n"
    assert process.errors.endswith(resume)
    assert not (done / "results" / "long" / "report.html").exists()
    assert "interrupted" in CliRunner().invoke(app, ["status", "long", "--results", str(done / "results")]).stdout
