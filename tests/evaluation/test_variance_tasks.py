"""The tasks that read variances, on two tiny real runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.catalogue.families import FAMILIES
from bench.console import progress
from bench.launch.launchers.local import run_all
from bench.planning import planner
from bench.store import RunStore, Store
from bench.suite.suite import load_suite

SUITE = """\
name: tiny
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot, hierarchy, prompts]}
methods: [clip, prolip]
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gaussian")
    (folder / "tiny.yaml").write_text(SUITE)
    store = Store(folder / "out")
    with progress.progress_on() as shown:  # without the report that `bench run` writes
        summary = run_all(planner.plan(load_suite(folder / "tiny.yaml").runs(), store), store, shown)
    assert len(summary.done) == 2
    return folder


def records(folder: Path, label: str, task: str) -> dict[tuple[str, str], float]:
    """(metric, score) -> value of a task of a stored run."""
    run = Store(folder / "out").run(next(run.id for run in Store(folder / "out").runs() if _label(run) == label))
    return {(one.metric, one.score): one.value for one in run.records() if one.task == task}


def _label(run: RunStore) -> str:
    return str(run.settings()["label"])


def test_prompts_and_hierarchy_by_variances_are_measured_where_there_are_some(done: Path) -> None:
    stored = records(done, "prolip", "prompts/group")
    assert {name for name, score in stored if score == "csd"} == set(FAMILIES["prompts"].metrics)
    assert {name for name, _ in records(done, "clip", "prompts/group")} == {"all", "single"}
    metrics = ["precision", "recall", "any", "r1_root"]
    assert records(done, "clip", "hierarchy").keys() == {(name, "cosine") for name in metrics}
    assert records(done, "prolip", "hierarchy").keys() == {(name, s) for name in metrics for s in ("cosine", "csd")}
