"""An older store is read and runs go beside its own; a newer one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import UserError
from bench.store import Store, format
from bench.store.merge import merge_store
from bench.suite import run as suite_run

SUITE = """\
name: small
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
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
        if path.is_file() and "claim" not in path.parts
    }


def test_a_new_store_says_its_format_and_its_runs_their_version(tmp_path: Path) -> None:
    store = tmp_path / "results"
    assert bench(store, "run", "SUITE", "--plan-only").exit_code == 0
    assert json.loads((store / "store.json").read_text()) == {"format": format.FORMAT}
    assert bench(store, "run", "SUITE").exit_code == 0
    (run,) = Store(store).runs()
    found = run.settings()
    assert (found["format"], found["training_version"]) == (format.FORMAT, suite_run.TRAINING_VERSION)
    assert found["train"]["threads"] == 1


@pytest.mark.promise("a store of a newer format is refused in one line")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format": 3}', "format: 3 is newer than 2, which this version reads; update this package"),
        ('{"format": "2"}', "format: should be a non-negative whole number"),
        ("[]", "should be an object"),
        ("{", "cannot be read: "),
    ],
)
def test_a_newer_or_damaged_format_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    store = tmp_path / "results"
    (store / "runs").mkdir(parents=True)
    (store / "store.json").write_text(text)
    for verb in (
        ["run", "SUITE"],
        ["run", "SUITE", "--dry-run"],
        ["report", "SUITE"],
        ["status", "SUITE"],
        ["store", "gc"],
    ):
        found = bench(store, *verb)
        assert isinstance(found.exception, UserError | SystemExit), verb
    assert files_of(store) == {"store.json": text.encode()}
    with pytest.raises(UserError, match=r"store\.json: ") as caught:
        merge_store(store, Store(tmp_path / "other"))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
