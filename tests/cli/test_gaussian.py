"""`bench gaussian` and `bench hierarchy` on two tiny real runs."""

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


def test_prompts(done: Path) -> None:
    rows, text = table(done, ("gaussian", "prompts"), "prolip", "--label", "subgroup")
    stored = {record.score: record.value for record in Store(done / "out").run(_id(done)).records() if _iid(record)}
    assert {row["score"]: float(row["value"]) for row in rows if row["what"] == "all prompts"} == stored
    assert {row["what"].split("=")[0] for row in rows[2:]} == {"by_ranking", "std_per_class", "std_all", "abs"}
    assert "prolip, clean, seed 0, on emoji/iid" in text


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


def test_bprw_says_where_its_images_are_from(done: Path) -> None:
    own, text = table(done, ("gaussian", "bprw"), "prolip", "--label", "group")
    assert [row["what"] for row in own] == [
        "all prompts alike",
        *["10 nearest images, no labels"] * 2,
        *["5 labelled images"] * 2,
        *["9 labelled images"] * 2,
    ]
    assert text.splitlines()[-2] == "weights were fitted to images of emoji/train"
    stored = records(done, "prolip", "prompts/group")
    values = [float(row["value"]) for row in own if row["metric"] == "top1"]
    assert [stored[name, "csd"] for name in ("all", "bprw_0", "bprw_5", "bprw_9")] == pytest.approx(values)
    assert {name for name, score in stored if score == "csd"} == set(FAMILIES["prompts"].metrics)
    assert {name for name, _ in records(done, "clip", "prompts/group")} == {"all", "single"}
    leaked, text = table(done, ("gaussian", "bprw"), "prolip", "--label", "group", "--leak")
    assert [row["what"] for row in leaked[-2:]] == ["9 labelled images (LEAK)"] * 2
    assert text.splitlines()[-2].endswith("emoji/iid, the scored set: LEAK")
    with pytest.raises(UserError, match=r"emoji/train: .* the images they are scored on; add --leak"):
        bench(done, "gaussian", "bprw", run_of(done, "prolip"), "--dataset", "emoji/train")


def test_uncertainty_and_inclusion(done: Path) -> None:
    rows, _ = table(done, ("gaussian", "uncertainty"), "prolip")
    assert {"level name and tags", "images of noto", "captions of 1 word"} <= {row["what"] for row in rows}
    assert all(float(row["value"]) > 0 for row in rows if row["metric"] == "variance")
    assert next(row["metric"] for row in rows if row["what"] == "adjacent levels") == "share surer"
    rows, _ = table(done, ("gaussian", "inclusion"), "prolip")
    assert [row["n"] for row in rows if "training" in row["what"]] == ["466", "466"]


def test_the_hierarchy_is_for_any_method_and_has_prolips_root_where_there_are_variances(done: Path) -> None:
    metrics = ["precision", "recall", "any", "r1_root"]
    rows, _ = table(done, ("hierarchy",), "clip")
    assert [(row["what"], row["metric"]) for row in rows] == [("empty text", name) for name in metrics]
    stored = records(done, "clip", "hierarchy")
    assert {(row["metric"], "cosine"): pytest.approx(float(row["value"])) for row in rows} == stored
    assert records(done, "prolip", "hierarchy").keys() == {(name, s) for name in metrics for s in ("cosine", "csd")}
    rows, _ = table(done, ("hierarchy",), "prolip")
    assert [row["what"] for row in rows] == ["empty text"] * 4 + ["empty and most inclusive text"] * 4


@pytest.mark.parametrize("verb", ["prompts", "bprw", "uncertainty", "inclusion", "manipulated", "cost"])
def test_a_method_without_variances_is_refused(done: Path, verb: str) -> None:
    with pytest.raises(UserError, match=r"clip, clean, seed 0: clip gives no variances; methods that do: .*prolip"):
        bench(done, "gaussian", verb, run_of(done, "clip"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prompt"], "bench gaussian prompt: should be prompts, .*did you mean 'prompts'"),
        (["prompts", "--label", "concpt"], "--label concpt: no label of emoji/iid; did you mean 'concept'"),
        (["prompts", "--dataset", "emoji/idd"], "data set 'emoji/idd' is unknown; did you mean 'emoji/iid'"),
        (["bprw", "--dataset", "emoji/novel"], "emoji/train has no image of .* no weights of prompts can be fitted"),
        (["uncertainty", "--csv", "/nowhere/x.csv"], "--csv /nowhere/x.csv: cannot be written"),
    ],
)
def test_mistakes_are_named(done: Path, arguments: list[str], said: str) -> None:
    verb, *rest = arguments
    with pytest.raises(UserError, match=said):
        bench(done, "gaussian", verb, run_of(done, "prolip"), *rest)
