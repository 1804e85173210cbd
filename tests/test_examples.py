"""The scripts of docs/examples run as printed, each in an empty folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bench

FOLDER = Path(__file__).parents[1] / "docs" / "examples"
STATE = FOLDER / "own_state.py"  # a method alone, as `--plugin` takes it
EXAMPLES = sorted({*FOLDER.glob("*.py")} - {STATE})
SUITE = """
name: mine
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16}
evaluate: {tasks: [zero_shot], curve: []}
methods: [trust]
"""
#: what each prints or writes in the end
RESULTS = {
    "own_data": r"sogclr +0\.\d+",
    "own_features": r"rince +[01]\.\d+",
    "own_loss": "noise found emoji/train AUROC",
    "own_noise": r"label_permutation +0\.\d+",
    "paper_table": r"\\begin{tabular}",
}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_it_runs_to_its_end(script: Path, start_script: Callable[..., Any], tmp_path: Path) -> None:
    assert len(script.read_text().splitlines()) <= 40
    process = start_script(script, cwd=tmp_path, merged=False)
    code, output = process.finish()
    assert code == 0, process.errors
    assert re.search(RESULTS[script.stem], output), output


@pytest.mark.usefixtures("own_plugins")
def test_the_loss_with_state_passes_every_check() -> None:
    results = bench.check(STATE)
    assert {one.outcome for one in results} == {"passed", "skipped"}
    assert {one.check for one in results if one.outcome == "skipped"} == {"oracles", "identities"}


@pytest.mark.usefixtures("own_plugins")
def test_a_suite_with_a_method_of_a_file_runs_from_python(tmp_path: Path) -> None:
    suite = tmp_path / "mine.yaml"
    suite.write_text(SUITE)
    assert any("trust" in line for line in bench.dry_run(suite, tmp_path / "results", plugins=[STATE]))
    summary = bench.run_suite(suite, tmp_path / "results", jobs=1, plugins=[STATE])
    assert (len(summary.done), summary.failed) == (1, [])
