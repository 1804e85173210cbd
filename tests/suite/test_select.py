"""`select` of a suite and of a row: no part of a run, refused in one line where it has nothing to choose by."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import UserError
from bench.planning import plan_file, planner
from bench.store import Store
from bench.suite.suite import load_suite

SUITE = """\
name: selects
noise: {rates: [0.0, 0.4]}
budget: [{samples: 128}, {samples: 256}]
evaluate:
  tasks: [zero_shot, retrieval, noise_detection, noisy_validation, clean_validation]
  curve: [0.5]
  along: [zero_shot, noisy_validation, clean_validation]
methods:
  - clip
  - {method: clip, label: early, select: noisy_validation}
  - {method: clip, label: told, select: clean_validation}
  - {method: clip, label: oracle, keep: oracle}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "suite.yaml").write_text(SUITE)
    return tmp_path / "suite.yaml"


def test_rows_that_differ_in_it_share_their_runs_and_the_plan_names_it(path: Path, tmp_path: Path) -> None:
    suite = load_suite(path)
    planned = planner.plan(suite.runs(), Store(tmp_path / "store"))
    assert len(planned) == 6, "clip and its oracle, which is clip on clean pairs, under two budgets"
    plan = plan_file.build_plan(suite, planned, {})
    runs = {(cell["method"], cell["noise"]): cell["run"] for cell in plan["cells"]}
    for noise in {cell["noise"] for cell in plan["cells"]}:
        assert runs["clip", noise] == runs["early", noise] == runs["told", noise]
    assert [entry.get("select") for entry in plan["methods"]] == [None, "noisy_validation", "clean_validation", None]
    assert plan["primary"]["task"] == "zero_shot/concept"


def test_a_suites_own_is_that_of_the_rows_without_one_and_changes_no_run(path: Path, tmp_path: Path) -> None:
    plain, suite = load_suite(path), load_suite(path, ["select=clean_validation", "methods.1.select=last"])
    assert [run.key for run in suite.runs()] == [run.key for run in plain.runs()]
    plan = plan_file.build_plan(suite, planner.plan(suite.runs(), Store(tmp_path / "store")), {})
    rules = [entry.get("select", "last") for entry in plan["methods"]]
    assert rules == ["clean_validation", "last", "clean_validation", "clean_validation"]
    assert suite.hash != plain.hash


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("select=best", "select: 'best' should be 'last', 'noisy_validation' or 'clean_validation'"),
        ("methods.1.select=first", "methods.1.select: 'first' should be 'last', 'noisy_validation' or"),
        ("evaluate={curve: []}", "methods.1.select: chooses among the points of evaluate.curve, which has none"),
        (
            "evaluate={tasks: [zero_shot, noisy_validation], curve: [0.5], along: [noisy_validation]}",
            "methods.1.select: noisy_validation needs 'zero_shot' in evaluate.tasks and evaluate.along",
        ),
        (
            "evaluate={tasks: [zero_shot, retrieval], curve: [0.5], headline: retrieval}",
            "methods.1.select: noisy_validation needs 'noisy_validation' and 'retrieval' in evaluate.tasks and",
        ),
        (
            "noise={kind: resampled_positives, rates: [0.4]}",
            "evaluate.tasks.3: 'noisy_validation': held-out pairs cannot have noise of kind resampled_positives",
        ),
    ],
)
def test_mistakes_are_one_line(path: Path, override: str, said: str) -> None:
    asked = [override, "methods.3.keep=all"] if "resampled" in override else [override]
    with pytest.raises(UserError) as found:
        load_suite(path, asked)
    assert said in str(found.value)
    assert all(len(line) < 300 for line in str(found.value).splitlines())
