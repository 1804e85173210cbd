"""An older store is read and runs go beside its own; a newer one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import UserError
from bench.models.stored_run import load
from bench.store import Store, format
from bench.store.merge import merge
from bench.suite import run as suite_run

SUITE = """\
name: small
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16}
evaluate: {tasks: [zero_shot]}
methods: [clip]
"""


def bench(store: Path, *arguments: str) -> Result:
    suite = store.with_name("small.yaml")
    suite.write_text(SUITE)
    given = [str(suite) if one == "SUITE" else one for one in arguments]
    return CliRunner().invoke(app, [*given, "--results", str(store)])


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("claim-")
    }


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of format 1: no store.json, no versions in settings, torch's choice of threads as null."""
    store = tmp_path / "results"
    with monkeypatch.context() as patch:
        patch.setattr(suite_run, "TRAINING_VERSION", 1)
        assert bench(store, "run", "SUITE").exit_code == 0
    (store / format.NAME).unlink()
    for path in store.glob("runs/*/settings.json"):
        settings = json.loads(path.read_text())
        del settings["format"], settings["training_version"], settings["address"]
        settings["train"]["threads"] = None
        path.write_text(json.dumps(settings))
    return store


def test_a_new_store_says_its_format_and_its_runs_their_version(tmp_path: Path) -> None:
    store = tmp_path / "results"
    assert bench(store, "run", "SUITE", "--dry-run").exit_code == 0
    assert json.loads((store / "store.json").read_text()) == {"format": format.FORMAT}
    assert bench(store, "run", "SUITE").exit_code == 0
    (run,) = Store(store).runs()
    found = run.settings()
    assert (found["format"], found["training_version"]) == (format.FORMAT, suite_run.TRAINING_VERSION)
    assert found["train"]["threads"] == 1


@pytest.mark.promise("an older store is read and never changed")
def test_an_older_store_is_read_and_new_runs_go_beside_its_own(older: Path) -> None:
    (old,) = Store(older).runs()
    before = files_of(old.folder)
    assert bench(older, "report", "SUITE").exit_code == 0
    assert bench(older, "status", "SUITE").exit_code == 0
    assert load(Store(older), old.id[:16]).run.train.threads == 1
    assert format.training_version(old.settings()) == 1

    assert bench(older, "run", "SUITE").exit_code == 0
    runs = {run.id: run for run in Store(older).runs()}
    assert len(runs) == 2
    assert files_of(old.folder) == before
    new = next(run for run in runs.values() if run.id != old.id)
    assert format.training_version(new.settings()) == suite_run.TRAINING_VERSION
    plan = Store(older).plan("small")
    assert plan is not None
    assert [cell["run"] for cell in plan["cells"]] == [new.id]
    assert json.loads((older / "store.json").read_text()) == {"format": format.FORMAT}


def test_an_older_store_can_be_imported(older: Path, tmp_path: Path) -> None:
    unsure = merge(older, Store(tmp_path / "other"))
    assert (unsure.new, len(unsure.problems)) == ([], 1)
    assert "an earlier version made it" in unsure.problems[0]
    merged = merge(older, Store(tmp_path / "other"), unverifiable=True)
    assert len(merged.new) == 1
    assert json.loads((tmp_path / "other" / "store.json").read_text()) == {"format": format.FORMAT}


@pytest.mark.promise("a store of a newer format is refused in one line")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format": 3}', "format: 3 is newer than 2, which this version reads; update this package"),
        ('{"format": "2"}', "format: '2' should be a whole number, at most 2"),
        ("[]", "format: None should be a whole number"),
        ("{", "cannot be read: "),
    ],
)
def test_a_newer_or_damaged_format_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    store = tmp_path / "results"
    (store / "runs").mkdir(parents=True)
    (store / "store.json").write_text(text)
    for verb in (["run", "SUITE"], ["run", "SUITE", "--dry-run"], ["report", "SUITE"], ["status", "SUITE"], ["gc"]):
        found = bench(store, *verb)
        assert isinstance(found.exception, UserError | SystemExit), verb
    assert files_of(store) == {"store.json": text.encode()}
    with pytest.raises(UserError, match=r"store\.json: ") as caught:
        merge(store, Store(tmp_path / "other"))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
