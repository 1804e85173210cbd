"""`bench data stand-in`: what a suite needs, small and in the true formats, so that the suite runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import data_folder
from bench.cli import app
from bench.planning import requirements
from bench.suite.suite import load_suite

from ..command import call_bench

SMALL = (
    "methods=[clip]",
    "budget={samples: 64}",
    "train.batch=32",
    "data.size=32",
    "towers={image: tiny-resnet, text: tiny-transformer, dim: 16}",
    "noise.rates=[0.4]",
)


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data_folder.DATA_VARIABLE, "")


@pytest.mark.parametrize(
    ("suite", "sets", "training"),
    [
        ("cc3m_noisy", 21, "cc3m: 300 training pairs"),
        ("prolip_ablation", 8, "cc3m+cc12m+redcaps: 300 training pairs"),  # names shards in three folders
        ("cc3m_features", 7, "cc3m-clip-b32: 300 rows"),
        ("now_features", 1, "now-regions: 300 rows, 0 texts"),  # texts are tokens, and the evaluation set has no name
        ("features_quickstart", 0, "emoji-b-features: 1,947 rows"),  # of pairs that come with the package
    ],
)
def test_nothing_is_missing_afterwards(suite: str, sets: int, training: str, tmp_path: Path) -> None:
    lines = call_bench("data", "stand-in", suite, tmp_path / "toy", "--pairs", "300").splitlines()
    assert lines[0] == f"{tmp_path / 'toy' / 'evaluation'}: {sets} evaluation sets"
    assert any(training in line for line in lines), lines
    command = lines[-1].removeprefix("then: ").split(",")[0].split()
    assert command[:3] == ["bench", "run", suite]
    loaded = load_suite(suite, command[6:])  # behind --data DIR --set
    assert [gone for gone in requirements.missing_inputs(loaded) if not gone.what.startswith("weights to start")] == []


def test_the_main_suite_trains_and_is_scored_on_them(tmp_path: Path) -> None:
    toy, results = tmp_path / "toy", tmp_path / "results"
    call_bench("data", "stand-in", "cc3m_noisy", toy, "--pairs", "128")
    overrides = [word for one in SMALL for word in ("--set", one)]
    where = ("--data", toy, "--results", results, "--seeds", "0", *overrides)
    assert "1 done" in call_bench("run", "cc3m_noisy", *where)


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cc3m").mkdir()
    result = CliRunner().invoke(app, ["data", "stand-in", "quickstart", str(tmp_path)])
    assert "is not empty; real data and its stand-ins must not mix" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["cc3m"]
