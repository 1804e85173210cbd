"""A method that was renamed is found under its old name as well: in suites, options, stored runs and reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.adapters import registry
from bench.adapters.scaffold import new_method
from bench.checks.suite import subject_of
from bench.cli import app
from bench.errors import UserError
from bench.store import Store
from bench.suite.run import run_of_settings
from bench.suite.suite import Suite, load_suite

pytestmark = pytest.mark.usefixtures("own_plugins")
SUITE = """\
name: old
data: {name: emoji, size: 32}
budget: {samples: 64}
noise: {rates: [0.4]}
train: {batch: 32, threads: 1}
evaluate: {tasks: [retrieval]}
towers: {dim: 16, vocabulary: 300}
methods:
  - %s
"""
NOTE = "note: the method 'decl' is named 'decomposable_cl' now, because DECL of Qin et al. 2022 is another method\n"


@pytest.fixture(autouse=True)
def _not_noted_yet() -> None:
    registry._note_old_name.cache_clear()


def suite(folder: Path, entry: str) -> Suite:
    file = folder / "suite.yaml"
    file.write_text(SUITE % entry)
    return load_suite(file)


def test_every_old_name_leads_to_a_method() -> None:
    assert {now for now, _ in registry.former_names().values()} <= set(registry.names())
    assert not set(registry.former_names()) & set(registry.names()), "it is listed under its name alone"


def test_a_suite_that_says_the_old_name_plans_the_same_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = suite(tmp_path, "decl"), suite(tmp_path, "decomposable_cl")
    assert [run.key for run in old.runs()] == [run.key for run in new.runs()]
    assert old.runs()[0].method == "decomposable_cl"
    assert old.methods[0].label == "decl", "rows keep the label that stored plans have"
    assert capsys.readouterr().err == NOTE, "said once"


def test_hyper_parameters_are_read_under_the_old_name(tmp_path: Path) -> None:
    assert suite(tmp_path, "{method: decl, config: {alpha: 0.5}}").runs()[0].config["alpha"] == 0.5
    with pytest.raises(UserError, match=r"unknown hyper-parameter of decomposable_cl; did you mean 'alpha'\?"):
        suite(tmp_path, "{method: decl, config: {alpah: 0.5}}")


def test_only_takes_the_old_name(tmp_path: Path) -> None:
    assert len(suite(tmp_path, "decl").select(["decl"]).runs()) == 1
    assert len(suite(tmp_path, "decomposable_cl").select(["decl"]).runs()) == 1


def test_verbs_take_the_old_name() -> None:
    assert subject_of("decl").name == "decomposable_cl"
    result = CliRunner().invoke(app, ["cite", "decl"], catch_exceptions=False)
    assert "chen2022decl" in result.stdout
    assert result.exit_code == 0


def test_a_stored_run_is_rebuilt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unreported: Callable[[Path, str], Path]
) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(SUITE % "decomposable_cl")
    out = ["--results", str(unreported(tmp_path / "results", "old"))]
    assert CliRunner().invoke(app, ["run", str(file), *out], catch_exceptions=False).exit_code == 0
    (run,) = Store(tmp_path / "results").runs()
    settings = {**run.settings(), "method": "decl", "label": "decl"}
    run.path("settings.json").write_text(json.dumps(settings))  # as a store of before the new name has it
    capsys.readouterr()
    assert run_of_settings(run.settings(), run.path("settings.json")).method == "decomposable_cl"
    assert capsys.readouterr().err == NOTE
    exported = CliRunner().invoke(app, ["export", run.id, str(tmp_path / "folder"), *out], catch_exceptions=False)
    assert exported.exit_code == 0, exported.output
    assert "method: `decomposable_cl`, reconstructed, label 'decl'" in (tmp_path / "folder" / "README.md").read_text()


def test_the_old_name_is_not_free(tmp_path: Path) -> None:
    file = tmp_path / "other.py"
    file.write_text('from methods.clip import Clip\n\n\nclass Other(Clip):\n    name = "decl"\n')
    with pytest.raises(UserError, match=r"other\.py: the method name 'decl' is an old name of 'decomposable_cl'"):
        registry.add_plugin(file)
    assert "decl" not in registry.names()
    with pytest.raises(UserError, match="'decl': is an old name of the method 'decomposable_cl'"):
        new_method("decl", tmp_path / "new")


def test_a_start_under_an_old_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "starts.py"
    file.write_text('from methods.clip import Clip\n\n\nclass S(Clip):\n    name = "starts"\n    reference = "decl"\n')
    registry.add_plugin(file)
    with pytest.raises(UserError, match=r"reference 'decl' is an old name; write 'decomposable_cl'"):
        registry.find("starts")
