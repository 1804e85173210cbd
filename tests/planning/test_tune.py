"""The same number of trials for every method, made once, booked apart."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import UserError
from bench.planning import trial_settings, tune
from bench.planning.outcomes import RunOutcomes, is_complete
from bench.planning.planner import Planner
from bench.store import RunStore, Store, writing
from bench.store.files import write_json
from bench.suite.suite import Suite, load_suite

SUITE = """\
name: tuned
noise: {rates: [0.0, 0.4]}
budget: {samples: 192}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1, lr: 2.0e-3}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
tune: {trials: 4, budget: [{samples: 96}, {samples: 192}], keep: 0.5, lr: [1.0e-3, 16.0e-3]}
methods:
  - clip
  - sogclr
  - {method: sogclr, label: pinned, config: {temperature: 0.3}}
  - ncu
"""


def bench(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--results", str(folder / "out")], catch_exceptions=False)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, unreported: Callable[[Path, str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    (folder / "tuned.yaml").write_text(SUITE)
    unreported(folder / "out", "tuned")
    result = bench(folder, "run", str(folder / "tuned.yaml"))
    assert result.exit_code == 0, result.output
    return folder


def known(suite: Suite, store: Store) -> dict[str, tune.Choice]:
    return tune.follow_trials(suite, Planner(store)).choices


def plan(folder: Path) -> dict[str, object]:
    return json.loads((folder / "out" / "tuned" / "plan.json").read_text())


@pytest.mark.promise("every method gets the same number of trials, at the same points")
def test_every_method_gets_the_same_points(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(SUITE)
    suite = load_suite(tmp_path / "tuned.yaml")
    assert suite.tune is not None
    by_label = {entry.label: trial_settings.settings_of(suite.tune, entry) for entry in suite.methods}
    for settings in by_label.values():
        assert [trial.get("lr") for trial in settings] == [None, 0.004, 0.008, 0.002]
    assert set(by_label["clip"][1]) == {"lr", "temperature", "learnable_scale"}
    assert set(by_label["pinned"][1]) == {"lr", "gamma"}, "the entry names its temperature"
    assert set(by_label["sogclr"][1]) == {"lr", "temperature", "gamma"}
    assert [[entry.label for entry in stage] for stage in tune.stages(suite)] == [["clip", "sogclr", "pinned"], ["ncu"]]


def test_an_entry_waits_for_the_entry_that_it_starts_from(tmp_path: Path) -> None:
    """Not for the entry of the reference's method; and for none where it has a start."""
    base = "{method: clip, label: base, config: {temperature: 0.05}}, {method: osa, reference: base}"
    (tmp_path / "tuned.yaml").write_text(SUITE)
    suite = load_suite(tmp_path / "tuned.yaml", [f"methods=[clip, {base}, {{method: ncu, start: w.pt}}]"])
    first, late = tune.stages(suite)
    assert ([one.label for one in first], [one.label for one in late]) == (["clip", "base", "ncu"], ["osa"])
    assert [one.label for one in tune._wanted(suite.narrowed("osa"), first, {})] == ["base"]
    assert [one.label for one in tune._wanted(suite.narrowed("ncu"), first, {})] == ["ncu"]


def test_the_best_on_validation_is_what_runs(done: Path) -> None:
    store, written = Store(done / "out"), plan(done)
    rows = written["tuning"]["methods"]
    assert list(rows) == ["clip", "sogclr", "pinned", "ncu"]
    for label, row in rows.items():
        scores: dict[tuple[int, str], list[float]] = {}
        for trial in row["trials"]:
            run = store.run(trial["run"])
            settings = run.settings()
            assert settings["train"]["lr"] == trial["changes"].get("lr", 0.002)
            assert {**settings["config"], **trial["changes"], "lr": 0} == {**settings["config"], "lr": 0}
            assert settings["noise"]["rate"] == 0.4
            assert settings["seed"] == trial["seed"]
            assert settings["budget"]["value"] == (96, 192, 192)[trial["rung"]] * (0.5 if label == "ncu" else 1.0)
            records = [
                r for r in run.records() if (r.task, r.metric, r.score) == ("validation", "mean_recall", "cosine")
            ]
            assert [r.dataset for r in records] == ["emoji/validation"]
            assert trial["score"] == records[0].value
            scores.setdefault((trial["rung"], json.dumps(trial["changes"])), []).append(records[0].value)
        first = [(values[0], json.loads(key)) for (rung, key), values in scores.items() if rung == 0]
        finals = [(sum(values) / 3, json.loads(key)) for (rung, key), values in scores.items() if rung == 1]
        assert row["points"] == len(first) == 4
        assert [len(values) for values in scores.values()][:6] == [1] * 4 + [3] * 2, "the last budget has all seeds"
        assert [changes for _, changes in finals] == [{}, max(first[1:], key=lambda one: one[0])[1]]
        assert row["default"] == pytest.approx(finals[0][0])
        assert (row["score"], row["chosen"]) == (pytest.approx(max(finals)[0]), max(finals, key=lambda one: one[0])[1])
        for cell in (cell for cell in written["cells"] if cell["method"] == label):
            settings = store.run(cell["run"]).settings()
            values = {**settings["config"], "lr": settings["train"]["lr"]}
            assert {**values, **row["chosen"]} == values
            assert row["chosen"] or values["lr"] == 0.002


def test_a_setting_at_an_edge_asks_for_a_trial_elsewhere(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, suite = Store(done / "out"), load_suite(done / "tuned.yaml")
    before = known(suite, store)
    monkeypatch.setattr(trial_settings, "EDGE_SHARE", 0.3)  # of four points, two lie there
    followed = tune.follow_trials(suite, Planner(store))
    tried = 0
    for entry in suite.methods[:3]:
        elsewhere = trial_settings.settings_at_edge(suite, entry, before[entry.label].finals)
        assert (entry.label in followed.choices) == (not elsewhere)
        asked = [one for one in followed.todo.values() if one.run.label.startswith(f"{entry.label}, trial ")]
        assert len(asked) == 3 * len(elsewhere), "on all seeds of the last budget"
        tried += len(elsewhere)
    assert tried > 0


def test_a_further_trial_is_chosen_if_it_is_better(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, suite = linked(done, tmp_path), load_suite(done / "tuned.yaml")
    before = known(suite, store)
    monkeypatch.setattr(trial_settings, "EDGE_SHARE", 0.3)
    result = CliRunner().invoke(app, ["run", str(done / "tuned.yaml"), "--results", str(store.root)])
    assert result.exit_code == 0, result.output
    label, further = next(
        (label, own)
        for label, choice in known(suite, store).items()
        if (own := [trial for trial in choice.trials if trial.rung == 2])
    )
    changes, runs = further[0].changes, {trial.run for trial in further if trial.changes == further[0].changes}
    measured = tune._score
    for score, best in ((1.0, changes), (0.0, before[label].best[0])):
        monkeypatch.setattr(
            tune, "_score", lambda one, *more, score=score: score if one.id in runs else min(0.9, measured(one, *more))
        )
        choice = known(suite, store)[label]
        assert choice.best[0] == best
        assert bool(choice.edge) == (score == 0.0)
    assert choice.to_json()["points"] == 4 + len({str(trial.changes) for trial in further})


def test_the_end_beyond_which_a_method_does_not_exist_is_no_edge() -> None:
    suite = load_suite("features_regimes").narrowed(["sogclr"])
    (entry,) = [entry for entry in suite.methods if entry.label == "sogclr"]
    finals = [({}, 0.1), ({"lr": 2e-3, "temperature": 0.05, "gamma": 0.99}, 0.5)]
    assert trial_settings.settings_at_edge(suite, entry, finals) == {}
    low = [({}, 0.1), ({"lr": 2e-3, "temperature": 0.05, "gamma": 0.11}, 0.5)]
    assert list(trial_settings.settings_at_edge(suite, entry, low)) == ["gamma"]


def test_a_rung_that_was_interrupted_goes_on_where_it_was(done: Path, tmp_path: Path) -> None:
    store, suite = linked(done, tmp_path), load_suite(done / "tuned.yaml")
    whole = known(suite, store)["clip"]
    shutil.rmtree(store.run(whole.trials[-1].run).folder)
    assert "clip" not in known(suite, store)
    todo = [*tune.follow_trials(suite.narrowed(["clip"]), Planner(store)).todo.values()]
    assert {one.id for one in todo} == {trial.run for trial in whole.trials if trial.rung == 1}
    assert [one.id for one in todo if not is_complete(one, store)] == [whole.trials[-1].run]
    shutil.copytree(Store(done / "out").run(whole.trials[-1].run).folder, store.run(whole.trials[-1].run).folder)
    assert known(suite, store)["clip"] == whole


def test_a_start_has_the_settings_chosen_for_its_method(done: Path) -> None:
    store, written = Store(done / "out"), plan(done)
    chosen = written["tuning"]["methods"]["clip"]["chosen"].get("lr", 0.002)
    references = {cell["reference_run"] for cell in written["cells"] if cell["method"] == "ncu"}
    assert {store.run(identity).settings()["train"]["lr"] for identity in references} == {chosen}


def test_trials_are_booked_apart(done: Path) -> None:
    store = Store(done / "out")
    row = plan(done)["tuning"]["methods"]["clip"]
    runs = {trial["run"] for trial in row["trials"]}
    assert row["ledger"]["flops"] == sum(store.run(run).ledger()["flops"] for run in runs)
    cells = [cell["run"] for cell in plan(done)["cells"] if cell["method"] == "clip"]
    assert all(store.run(run).ledger()["samples"] == 192 for run in cells)


def test_trials_are_named_until_the_plan_does(tmp_path: Path) -> None:
    """A search that is interrupted leaves the list for `bench store gc`."""
    (tmp_path / "tuned.yaml").write_text(SUITE.replace("  - ncu\n", ""))
    suite, store = load_suite(tmp_path / "tuned.yaml"), Store(tmp_path / "out")
    choices, summary = tune.search_settings(
        suite.narrowed(["clip"]), Planner(store), lambda todo: RunOutcomes(interrupted=[one.id for one in todo])
    )
    assert choices == {}
    named = json.loads((tmp_path / "out" / "tuned" / "trials.json").read_text())
    assert named == sorted(summary.interrupted)
    assert len(named) == 4, "those of the first budget"


def test_none_is_named_twice(done: Path) -> None:
    assert not (done / "out" / "tuned" / "trials.json").exists()


def test_what_diverged_is_booked_in_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = store.run("a" * 64)
    with writing(run) as out:
        costs = {"step_flops": {"one": 10, "two": 100}, "batch": 4, "epoch_steps": 2}
        out.write_settings({"resolved": {"phases": [["one", 3], ["two", 5]], **costs}})
        out.set_status("failed", step=2, error={"type": "NotFinite", "step": 5})
    assert tune._spent_until(store, run.id) == {"samples": 20, "flops": 230}


def test_a_second_call_does_nothing_and_a_dry_run_knows_it(done: Path) -> None:
    result = bench(done, "run", str(done / "tuned.yaml"))
    assert result.exit_code == 0
    assert "nothing to do: all" in result.stdout
    dry = bench(done, "run", str(done / "tuned.yaml"), "--dry-run").stdout
    assert "missing" not in dry
    assert "trial" not in dry


def linked(done: Path, tmp_path: Path) -> Store:
    """The store once more. Its files, hundreds of MB, are the same; whoever changes one puts another in its place."""
    return Store(shutil.copytree(done / "out", tmp_path / "out", copy_function=os.link))


def failed(run: RunStore, error: dict[str, str]) -> None:
    """Forge the status of a finished run, which no writer changes."""
    write_json(run.path("status.json"), {"state": "failed", "error": error})


def test_a_trial_that_failed_is_made_again_and_one_that_diverged_is_not(done: Path, tmp_path: Path) -> None:
    store = linked(done, tmp_path)
    suite = load_suite(done / "tuned.yaml")
    trials = known(suite, store)["sogclr"].trials
    run = store.run(trials[-1].run)  # of the last budget: none other would go on in its place
    failed(run, {"type": "Process", "message": "its process ended with exit code -9"})
    assert "sogclr" not in known(suite, store)
    assert run.id in tune.follow_trials(suite, Planner(store)).todo
    failed(run, {"type": "NotFinite", "message": "contrastive is nan at step 1"})
    assert "sogclr" in known(suite, store)
    assert not tune.follow_trials(suite, Planner(store)).todo
    late = known(suite, store)["ncu"].trials[-1]
    for identity, kind in ((late.reference_run, "NotFinite"), (late.run, "Reference")):
        assert identity is not None
        failed(store.run(identity), {"type": kind, "message": ""})
    assert "ncu" in known(suite, store), "what starts from a run that diverged cannot be made"


def test_a_trial_that_was_measured_otherwise_is_measured_on_validation_first(done: Path, tmp_path: Path) -> None:
    """A run of a suite without trials can be a trial of the next."""
    store = linked(done, tmp_path)
    suite = load_suite(done / "tuned.yaml")
    run = store.run(known(suite, store)["clip"].trials[0].run)
    for path in run.path("evaluations").glob("*validation*"):
        shutil.rmtree(path)
    assert run.status()["state"] == "done"
    assert "clip" not in known(suite, store)


def test_a_dry_run_before_shows_the_trials(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(SUITE.replace("  - ncu\n", ""))
    dry = bench(tmp_path, "run", str(tmp_path / "tuned.yaml"), "--dry-run", "--only", "sogclr").stdout
    assert "sogclr, trial 3" in dry
    assert "clip" not in dry
    assert "entries whose trials are not finished are shown at the suite's settings" in dry


def test_ranges_are_checked(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(SUITE.replace("[1.0e-3, 16.0e-3]", "[2.0e-3, 1.0e-3]"))
    with pytest.raises(UserError, match=r"tuned.yaml:7.*tune.lr.*should be \[low, high\]"):
        load_suite(tmp_path / "tuned.yaml")


def test_a_trials_rate_is_not_below_the_last_one(tmp_path: Path) -> None:
    """The cosine would rise."""
    (tmp_path / "tuned.yaml").write_text(SUITE)
    with pytest.raises(UserError, match=r"tuned.yaml:7: tune\.lr\.0: 0\.001 is below train\.final_lr 0\.002"):
        load_suite(tmp_path / "tuned.yaml", ["train.final_lr=2.0e-3"])
