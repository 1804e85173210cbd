"""A run of a user's own method: what rebuilds it asks for the file, and what only reads results does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bench.adapters import registry
from bench.cli import app
from bench.errors import UserError
from bench.store import RunStore, Store

SUITE = """\
name: own
data: {name: emoji, size: 32}
budget: {samples: 64}
noise: {rates: [0.4]}
train: {batch: 32, threads: 1}
evaluate: {tasks: [retrieval]}
towers: {dim: 16, vocabulary: 300}
methods: [mine]
"""
MINE = """\
from methods.clip import Clip


class Mine(Clip):
    name = "mine"
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, unreported: Callable[[Path, str], Path]) -> Path:
    """A folder with a file, a suite and their results. The method claims what CLIP's own card says."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "mine.py").write_text(MINE)
    (folder / "own.yaml").write_text(SUITE)
    (folder / "other.yaml").write_text(SUITE.replace("[mine]", "[clip]").replace("name: own", "name: other"))
    registry._plugins.clear()
    unreported(folder / "results", "own")
    assert bench(folder, "run", str(folder / "own.yaml"), "--plugin", str(folder / "mine.py")).exit_code == 0
    return folder


def _unknown_again() -> None:
    registry._plugins.clear()
    registry.clear_caches()


@pytest.fixture(autouse=True)
def _unknown() -> Iterator[None]:
    """Every test begins as a process that was not told of the file."""
    _unknown_again()
    yield
    _unknown_again()


def bench(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--results", str(folder / "results")], catch_exceptions=False)


def run_of(folder: Path) -> RunStore:
    (run,) = Store(folder / "results").runs()
    return run


def rebuilding(folder: Path, run: RunStore, out: Path) -> list[list[str]]:
    return [
        ["export", run.id, str(out)],
        ["eval", str(run.path("weights-100.safetensors")), "--suite", str(folder / "other.yaml")],
        ["inspect", "state", run.id, "any"],
    ]


@pytest.mark.parametrize("place", range(3))
def test_what_rebuilds_the_model_asks_for_the_file(trained: Path, tmp_path: Path, place: int) -> None:
    command = rebuilding(trained, run_of(trained), tmp_path / "out")[place]
    said = r"settings\.json: was trained with the method 'mine'; give the file that defines it: --plugin FILE$"
    with pytest.raises(UserError, match=said):
        bench(trained, *command)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", range(2))
def test_with_the_file_it_works(trained: Path, tmp_path: Path, place: int) -> None:
    command = rebuilding(trained, run_of(trained), tmp_path / "out")[place]
    result = bench(trained, *command, "--plugin", str(trained / "mine.py"))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "command", [["run", "own.yaml"], ["eval", "x", "--suite", "own.yaml"], ["methods", "--cite", "--suite", "own.yaml"]]
)
def test_a_suite_that_names_it_asks_too(trained: Path, command: list[str]) -> None:
    command = [str(trained / word) if word == "own.yaml" else word for word in command]
    with pytest.raises(UserError, match=r"'mine' is not a method.*\(one in a file of your own: --plugin FILE\)"):
        CliRunner().invoke(app, command, catch_exceptions=False)


@pytest.mark.parametrize("command", [["show"], ["report", "own"], ["status", "own"]])
def test_what_reads_results_needs_no_file(trained: Path, command: list[str]) -> None:
    given = [*command, run_of(trained).id] if command == ["show"] else command
    assert bench(trained, *given).exit_code == 0


def test_a_claim_without_values_is_not_printed_as_such(trained: Path) -> None:
    plan = json.loads((trained / "results" / "own" / "plan.json").read_text())
    assert [entry["fidelity"] for entry in plan["methods"]] == ["unchecked"]
    assert "mine,unchecked (not verified)," in (trained / "results" / "own" / "tables" / "overview.csv").read_text()


def test_its_author_verifies_a_run_and_reruns_a_bundle(trained: Path, tmp_path: Path) -> None:
    (run,) = Store(trained / "results").runs()
    with pytest.raises(UserError, match="give the file that defines it: --plugin FILE"):
        bench(trained, "store", "retrain", run.id)
    plugin = "--plugin", str(trained / "mine.py")
    assert "consistent: the weights have the same bytes" in bench(trained, "store", "retrain", run.id, *plugin).stdout
    results = Path(shutil.copytree(trained / "results", tmp_path / "results"))
    environment = results / "runs" / run.id / "environment.json"
    environment.write_text(json.dumps({**run.environment(), "commit": "0" * 40}))
    bundle = tmp_path / "own.tar.xz"
    for verb in (("board", "submit", str(results), "own", "--out"), ("board", "check", "--rerun", "cheapest")):
        _unknown_again()
        result = CliRunner().invoke(app, [*verb, str(bundle), *plugin], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert "rerun: mine, 40 % shuffled captions, seed 0: the weights have the same bytes" in result.stdout
