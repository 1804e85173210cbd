"""The scripts of docs/examples run as printed, each in an empty folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "docs" / "examples").glob("*.py"))
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
