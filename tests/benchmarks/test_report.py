"""A report over 500 stored runs, each with the 20 or 21 evaluations of the emoji suites, in under five seconds."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

LIMIT = 5.0  #: seconds
CODE = """
import sys
from bench.store import Store
from reports.build import build
build("emoji_noisy", Store(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 methods, 5 noise rates, 5 seeds, 4 points of a curve."""
    stores = runpy.run_path(str(Path(__file__).parents[1] / "reports" / "stores.py"))
    methods = [
        (f"{label}{i}", title, quality, score) for i in range(3) for label, title, quality, score in stores["METHODS"]
    ]
    root = tmp_path_factory.mktemp("many")
    store = stores["write_store"](root, methods=methods[:20], rates=(0.0, 0.1, 0.2, 0.3, 0.4), seeds=range(5))
    assert len(list(store.runs())) == 500
    return root


def test_a_report_over_500_runs(benchmark: BenchmarkFixture, root: Path) -> None:
    """A new process each time, imports and figures included."""
    command = [sys.executable, "-c", CODE, str(root)]
    benchmark.pedantic(subprocess.run, args=(command,), kwargs={"check": True}, rounds=3, iterations=1)
    assert benchmark.stats.stats.min < LIMIT
