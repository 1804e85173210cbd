"""`bench gaussian` and `bench hierarchy` on two tiny real runs."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.catalogue.families import FAMILIES
from bench.cli import app
from bench.console import progress
from bench.errors import UserError
from bench.launch.launchers.local import run_all
from bench.planning import planner
from bench.store import RunStore, Store, writing
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
    prompts = done / "prompts.txt"
    prompts.write_text("{}\n\na {}\nan icon of {}\nthe {}\n")
    rows, _ = table(done, ("gaussian", "prompts"), "prolip", "--templates", str(prompts), "--filter", "by_ranking=1")
    assert [row["value"] for row in rows if row["metric"] == "kept"] == ["0.25"]


def test_manipulated_images(done: Path) -> None:
    changes = ("--label", "subgroup", "--hidden", "0", "--hidden", "0.5", "--pgd", "2")
    rows, _ = table(done, ("gaussian", "manipulated"), "prolip", *changes)
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
    ]
    assert text.splitlines()[-2] == "weights were fitted to images of emoji/train"
    stored = records(done, "prolip", "prompts/group")
    values = [float(row["value"]) for row in own if row["metric"] == "top1"]
    assert [stored[name, "csd"] for name in ("all", "bprw_0", "bprw_5")] == pytest.approx(values)
    assert {name for name, score in stored if score == "csd"} == set(FAMILIES["prompts"].metrics)
    assert {name for name, _ in records(done, "clip", "prompts/group")} == {"all", "single"}
    leaked, text = table(done, ("gaussian", "bprw"), "prolip", "--label", "group", "--leak", "--shots", "9")
    assert [row["what"] for row in leaked[1:]] == ["9 labelled images (LEAK)"] * 2
    assert text.splitlines()[-2].endswith("emoji/iid, the scored set: LEAK")
    with pytest.raises(UserError, match=r"--dataset emoji/train: .* the images they are scored on; add --leak"):
        bench(done, "gaussian", "bprw", run_of(done, "prolip"), "--dataset", "emoji/train")


def test_the_weights_of_prompts_are_written_for_every_class(done: Path, tmp_path: Path) -> None:
    file = tmp_path / "weights.csv"
    own, _ = table(done, ("gaussian", "bprw"), "prolip", "--label", "group", "--shots", "5", "--weights", str(file))
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    assert {row["what"] for row in rows} == {"5 labelled images"}
    classes = {name: [row for row in rows if row["class"] == name] for name in {row["class"] for row in rows}}
    assert len({tuple(row["prompt"] for row in chosen) for chosen in classes.values()}) == 1
    weights = np.array([[float(row["weight"]) for row in chosen] for chosen in classes.values()])
    assert weights.sum(1) == pytest.approx(1)
    (largest,) = (float(row["value"]) for row in own if row["metric"] == "largest weight")
    assert weights.max(1).mean() == pytest.approx(largest)
    assert len(classes) == next(int(row["n"]) for row in own if row["metric"] == "largest weight")


def test_the_weights_of_prompts_are_drawn(done: Path, tmp_path: Path) -> None:
    run, out = run_of(done, "prolip"), tmp_path / "figures"
    options = ["--label", "group", "--shots", "5", "--figures", str(out)]
    text = bench(done, "gaussian", "bprw", run, *options, "--class", "objects").stdout
    files = sorted(file.name for file in out.iterdir())
    kinds = ("-column.pdf", ".pdf", ".png")
    assert files == [f"prompt_{name}{kind}" for name in ("statistics", "weights") for kind in kinds]
    assert all(str(out / name) in text for name in files)
    with pytest.raises(UserError, match="--class object: no class of emoji/iid; did you mean 'objects'"):
        bench(done, "gaussian", "bprw", run, *options, "--class", "object")
    with pytest.raises(UserError, match="--class objects: is for figures; --figures says where"):
        bench(done, "gaussian", "bprw", run, "--class", "objects")


@pytest.mark.parametrize("side", ["image", "text"])
def test_samples_are_the_ends_of_the_variances(done: Path, tmp_path: Path, side: str) -> None:
    page, file = tmp_path / "page.html", tmp_path / "rows.csv"
    options = ["--side", side, "--count", "2", "--html", str(page), "--csv", str(file)]
    text = bench(done, "gaussian", "samples", run_of(done, "prolip"), *options).stdout
    with file.open(newline="") as lines:
        rows = [*csv.DictReader(lines)]
    values = {row["key"]: float(row[f"variance of the {side}"]) for row in rows}
    other = "text" if side == "image" else "image"
    assert [*rows[0]] == ["key", f"variance of the {side}", f"variance of the {other}", "distance"]
    assert text.count(", distance ") == page.read_text().count(", distance ") == 4
    smallest, largest = text.split("largest")
    assert min(values, key=values.__getitem__) in smallest
    assert max(values.values()) == pytest.approx(float(largest.splitlines()[1].split()[0]), rel=1e-5)
    assert page.read_text().count("<img") == 4
    with pytest.raises(UserError, match="--side caption: should be image or text"):
        bench(done, "gaussian", "samples", run_of(done, "prolip"), "--side", "caption")


def test_uncertainty_and_inclusion(done: Path) -> None:
    rows, _ = table(done, ("gaussian", "uncertainty"), "prolip")
    assert {"level name and tags", "images of noto", "captions of 1 word"} <= {row["what"] for row in rows}
    assert all(float(row["value"]) > 0 for row in rows if row["metric"] == "variance")
    assert next(row["metric"] for row in rows if row["what"] == "adjacent levels") == "share surer"
    out = done / "levels"
    drawn = bench(done, "gaussian", "uncertainty", run_of(done, "prolip"), "--figures", str(out)).stdout
    assert str(out / "level_variances.png") in drawn
    assert (out / "level_variances.pdf").read_bytes()[:4] == b"%PDF"
    rows, _ = table(done, ("gaussian", "inclusion"), "prolip")
    assert [row["n"] for row in rows if "training" in row["what"]] == ["466", "466"]


def test_the_hierarchy_is_for_any_method_and_has_prolips_root_where_there_are_variances(done: Path) -> None:
    metrics = ["precision", "recall", "any", "r1_root"]
    rows, _ = table(done, ("hierarchy",), "clip")
    assert [(row["what"], row["metric"]) for row in rows] == [("empty text", name) for name in metrics]
    stored = records(done, "clip", "hierarchy")
    assert {(row["metric"], "cosine"): pytest.approx(float(row["value"])) for row in rows} == stored
    assert records(done, "prolip", "hierarchy").keys() == {(name, s) for name in metrics for s in ("cosine", "csd")}
    page = done / "ways.html"
    rows, _ = table(done, ("hierarchy",), "prolip", "--steps", "5", "--html", str(page), "--count", "3")
    assert [row["what"] for row in rows] == ["empty text"] * 4 + ["empty and most inclusive text"] * 4
    text = page.read_text()
    assert text.count("<img") == text.count("to the empty text:") == text.count("most inclusive text:") == 3


@pytest.mark.parametrize("verb", ["prompts", "bprw", "uncertainty", "samples", "inclusion"])
def test_a_method_without_variances_is_refused(done: Path, verb: str) -> None:
    with pytest.raises(UserError, match=r"clip, clean, seed 0: clip gives no variances; methods that do: .*prolip"):
        bench(done, "gaussian", verb, run_of(done, "clip"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prompts", "--filter", "by_rank=1"], "--filter by_rank=1: should be one of by_ranking"),
        (["prompts", "--filter", "abs=low"], "--filter abs=low: should be one of .* with a number"),
        (["prompts", "--filter", "by_ranking=nan"], "--filter by_ranking=nan: should be one of .* with a number"),
        (
            ["prompts", "--templates", sys.executable],
            "--templates .*: cannot be read: (it has more than|.* can't decode)",
        ),
        (["prompts", "--templates", "/dev/null"], "--templates /dev/null: cannot be read: it is a device, not a file"),
        (["prompts", "--label", "concpt"], "--label concpt: no label of emoji/iid; did you mean 'concept'"),
        (["prompts", "--dataset", "emoji/idd"], "data set 'emoji/idd' is unknown; did you mean 'emoji/iid'"),
        (["prompts", "--templates", "none.txt"], "--templates none.txt: cannot be read"),
        (["bprw", "--shots", "-1"], "--shots -1: should be from 0 to 100"),
        (["uncertainty", "--csv", "/nowhere/x.csv"], "--csv /nowhere/x.csv: cannot be written"),
    ],
)
def test_mistakes_are_named(done: Path, arguments: list[str], said: str) -> None:
    verb, *rest = arguments
    with pytest.raises(UserError, match=said):
        bench(done, "gaussian", verb, run_of(done, "prolip"), *rest)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{}\na cat\n", "'a cat' lacks {} for the class name"),
        (b"{}\n", "1 prompts"),
        (b"\xe9", "wrong.txt: cannot be read: .* can't decode"),
    ],
)
def test_prompts_of_a_file_need_a_place_for_the_name(done: Path, text: bytes, said: str) -> None:
    file = done / "wrong.txt"
    file.write_bytes(text)
    with pytest.raises(UserError, match=said):
        bench(done, "gaussian", "prompts", run_of(done, "prolip"), "--templates", str(file))


def test_a_run_without_weights_says_how_to_train_it(done: Path) -> None:
    suite = done / "longer.yaml"
    suite.write_text(SUITE.replace("name: tiny", "name: longer").replace("samples: 32", "samples: 48"))
    assert bench(done, "run", str(suite), "--dry-run").exit_code == 0
    store = Store(done / "out")
    plan = store.plan("longer")
    assert plan is not None
    cell = plan["cells"][1]
    with writing(store.run(cell["run"])) as out:
        out.write_settings({"label": "prolip"})
    command = f"bench run longer.yaml --only prolip --seeds 0 --results {done / 'out'}"
    with pytest.raises(UserError, match=rf"has no final weights \(missing\); train it with: {command}"):
        bench(done, "hierarchy", cell["run"])
