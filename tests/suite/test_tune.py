"""The same number of trials for every method, made once, booked apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench import tune
from bench.cli import app
from bench.errors import UserError
from bench.store import Store
from bench.suite import load_suite

SUITE = """\
name: tuned
noise: {rates: [0.0, 0.4]}
budget: {samples: 192}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1, lr: 2.0e-3}
evaluate: {tasks: [zero_shot]}
tune: {trials: 3, lr: [1.0e-3, 16.0e-3], temperature: [0.01, 0.16]}
methods:
  - clip
  - sogclr
  - {method: sogclr, label: pinned, config: {temperature: 0.3}}
  - ncu
"""


def bench(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--results", str(folder / "out")], catch_exceptions=False)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    (folder / "tuned.yaml").write_text(SUITE)
    result = bench(folder, "run", str(folder / "tuned.yaml"))
    assert result.exit_code == 0, result.output
    return folder


def plan(folder: Path) -> dict[str, object]:
    return json.loads((folder / "out" / "tuned" / "plan.json").read_text())


def test_every_method_gets_the_same_points(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(SUITE)
    suite = load_suite(tmp_path / "tuned.yaml")
    assert suite.tune is not None
    by_label = {entry.label: tune.settings_of(suite.tune, entry) for entry in suite.methods}
    assert by_label["clip"] == [{}, {"lr": 0.002}, {"lr": 0.008}]
    assert by_label["pinned"] == by_label["clip"], "the entry names its temperature"
    assert {trial.get("lr") for trial in by_label["sogclr"]} == {None, 0.002, 0.008}
    assert {trial.get("temperature") for trial in by_label["sogclr"]} == {None, 0.02, 0.08}
    assert [[entry.label for entry in stage] for stage in tune.stages(suite)] == [["clip", "sogclr", "pinned"], ["ncu"]]


def test_the_best_on_validation_is_what_runs(done: Path) -> None:
    store, found = Store(done / "out"), plan(done)
    rows = found["tuning"]["methods"]
    assert list(rows) == ["clip", "sogclr", "pinned", "ncu"]
    for label, row in rows.items():
        scores = []
        for trial in row["trials"]:
            run = store.run(trial["run"])
            assert run.settings()["train"]["lr"] == trial["changes"].get("lr", 0.002)
            assert run.settings()["seed"] == 1000
            assert run.settings()["noise"]["rate"] == 0.4
            records = [
                r for r in run.records() if (r.task, r.metric, r.score) == ("validation", "mean_recall", "cosine")
            ]
            assert [r.dataset for r in records] == ["emoji/validation"]
            assert trial["score"] == records[0].value
            scores.append(records[0].value)
        assert row["score"] == max(scores)
        chosen = next(trial["changes"] for trial in row["trials"] if trial["score"] == row["score"])
        for cell in (cell for cell in found["cells"] if cell["method"] == label):
            settings = store.run(cell["run"]).settings()
            assert settings["train"]["lr"] == chosen.get("lr", 0.002)
            if "temperature" in chosen:
                assert settings["config"]["temperature"] == chosen["temperature"]


def test_a_start_has_the_settings_chosen_for_its_method(done: Path) -> None:
    store, found = Store(done / "out"), plan(done)
    chosen = found["tuning"]["methods"]["clip"]["chosen"].get("lr", 0.002)
    references = {cell["reference_run"] for cell in found["cells"] if cell["method"] == "ncu"}
    assert {store.run(identity).settings()["train"]["lr"] for identity in references} == {chosen}


def test_trials_are_booked_apart(done: Path) -> None:
    store = Store(done / "out")
    row = plan(done)["tuning"]["methods"]["clip"]
    runs = {trial["run"] for trial in row["trials"]}
    assert row["ledger"]["flops"] == sum(store.run(run).ledger()["flops"] for run in runs)
    cells = [cell["run"] for cell in plan(done)["cells"] if cell["method"] == "clip"]
    assert all(store.run(run).ledger()["samples"] == 192 for run in cells)


def test_a_second_call_does_nothing_and_a_dry_run_knows_it(done: Path) -> None:
    result = bench(done, "run", str(done / "tuned.yaml"))
    assert result.exit_code == 0
    assert "nothing to do: all" in result.stdout
    dry = bench(done, "run", str(done / "tuned.yaml"), "--dry-run").stdout
    assert "missing" not in dry
    assert "trial" not in dry


def test_a_dry_run_before_shows_the_trials(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(SUITE.replace("  - ncu\n", ""))
    dry = bench(tmp_path, "run", str(tmp_path / "tuned.yaml"), "--dry-run", "--only", "sogclr").stdout
    assert "sogclr, trial 2" in dry
    assert "clip" not in dry
    assert "rows whose trials are still to be made are shown at the suite's settings" in dry


def test_ranges_are_checked(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(SUITE.replace("[1.0e-3, 16.0e-3]", "[2.0e-3, 1.0e-3]"))
    with pytest.raises(UserError, match=r"tuned.yaml:7.*tune.lr.*should be \[low, high\]"):
        load_suite(tmp_path / "tuned.yaml")
