"""`bench gaussian` on two tiny real runs, and the tasks that read variances."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.catalogue.families import FAMILIES
from bench.cli import app
from bench.console import progress
from bench.errors import UserError
from bench.evaluation.probabilistic import manipulated
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
    with progress.on() as shown:  # without the report that `bench run` writes
        summary = run_all(planner.plan(load_suite(folder / "tiny.yaml").runs(), store), store, shown)
    assert len(summary.done) == 2
    return folder


def bench(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--results", str(folder / "out")], catch_exceptions=False)


def run_of(folder: Path, label: str) -> str:
    (found,) = (run.id for run in Store(folder / "out").runs() if run.settings()["label"] == label)
    return found[:12]


def table(folder: Path, verb: tuple[str, ...], label: str, *arguments: str) -> tuple[list[dict[str, str]], str]:
    """The rows that a verb writes, and what it prints."""
    file = folder / "table.csv"
    result = bench(folder, *verb, run_of(folder, label), "--csv", str(file), *arguments)
    assert result.exit_code == 0
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        assert float(row["low"]) <= float(row["value"]) <= float(row["high"])
    assert len(result.stdout.splitlines()) >= len(rows) + 3
    return rows, result.stdout


def test_manipulated_images(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manipulated, "SHARES", (0.0, 0.5))
    monkeypatch.setattr(manipulated, "ITERATIONS", (2,))
    rows, _ = table(done, ("gaussian", "manipulated"), "prolip", "--label", "subgroup")
    assert {row["what"] for row in rows} == {"0.0% hidden", "50.0% hidden", "PGD, 2 iterations"}
    assert {(row["metric"], row["score"]) for row in rows} == {("top1", "cosine"), ("top1", "csd"), ("variance", "")}
    stored = {record.score: record.value for record in Store(done / "out").run(_id(done)).records() if _iid(record)}
    untouched = [row for row in rows if row["what"] == "0.0% hidden" and row["metric"] == "top1"]
    assert {row["score"]: float(row["value"]) for row in untouched} == stored


def test_what_variances_cost(done: Path) -> None:
    rows, text = table(done, ("gaussian", "cost"), "prolip")
    values = {(row["what"], row["metric"]): float(row["value"]) for row in rows}
    width, dim = 96, 8  #: of tiny-resnet's last layer, which the head on pooled features reads
    assert values["its heads for means and variances", "parameters"] == width * dim + dim
    assert values["image tower", "parameters"] > 10_000
    assert values["with heads", "seconds / 1,000"] > 0
    assert values["with heads", "times the tower"] > 0.5  # timing noise; the tower is in both
    assert f"{width * dim + dim:,}" in text


def records(folder: Path, label: str, task: str) -> dict[tuple[str, str], float]:
    """(metric, score) -> value of a task of a stored run."""
    run = Store(folder / "out").run(next(run.id for run in Store(folder / "out").runs() if _label(run) == label))
    return {(one.metric, one.score): one.value for one in run.records() if one.task == task}


def _label(run: RunStore) -> str:
    return str(run.settings()["label"])


def _id(folder: Path) -> str:
    return next(run.id for run in Store(folder / "out").runs() if run.settings()["label"] == "prolip")


def _iid(record: object) -> bool:
    wanted = {"dataset": "emoji/iid", "task": "zero_shot/subgroup", "metric": "top1", "at": 1.0}
    return all(getattr(record, key) == value for key, value in wanted.items())


def test_prompts_and_hierarchy_by_variances_are_measured_where_there_are_some(done: Path) -> None:
    stored = records(done, "prolip", "prompts/group")
    assert {name for name, score in stored if score == "csd"} == set(FAMILIES["prompts"].metrics)
    assert {name for name, _ in records(done, "clip", "prompts/group")} == {"all", "single"}
    metrics = ["precision", "recall", "any", "r1_root"]
    assert records(done, "clip", "hierarchy").keys() == {(name, "cosine") for name in metrics}
    assert records(done, "prolip", "hierarchy").keys() == {(name, s) for name in metrics for s in ("cosine", "csd")}


@pytest.mark.parametrize("verb", ["manipulated", "cost"])
def test_a_method_without_variances_is_refused(done: Path, verb: str) -> None:
    with pytest.raises(UserError, match=r"clip, clean, seed 0: clip gives no variances; methods that do: .*prolip"):
        bench(done, "gaussian", verb, run_of(done, "clip"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["costs"], "bench gaussian costs: should be manipulated, cost; did you mean 'cost'"),
        (["manipulated", "--label", "concpt"], "--label concpt: no label of emoji/iid; did you mean 'concept'"),
        (["cost", "--dataset", "emoji/idd"], "data set 'emoji/idd' is unknown; did you mean 'emoji/iid'"),
        (["cost", "--csv", "/nowhere/x.csv"], "--csv /nowhere/x.csv: cannot be written"),
    ],
)
def test_mistakes_are_named(done: Path, arguments: list[str], said: str) -> None:
    verb, *rest = arguments
    with pytest.raises(UserError, match=said):
        bench(done, "gaussian", verb, run_of(done, "prolip"), *rest)
