"""`bench.Results`: figures and tables of a store with three seeds, without torch."""

from __future__ import annotations

import io
import subprocess
import sys

import pandas as pd
import pytest
from matplotlib.figure import Figure

import bench
from bench.store import Store


def test_figures_are_matplotlib_figures_that_can_be_saved_again(three: Store) -> None:
    results = bench.Results(three.root)
    for name in ("radar", "noise", "cost", "wins"):
        figure = results.figure(name)
        assert isinstance(figure, Figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=20)
        assert buffer.getvalue().startswith(b"\x89PNG")
    with pytest.raises(bench.UserError, match="did you mean 'radar'"):
        results.figure("rader")


def test_tables_are_those_of_the_csv_files(three: Store) -> None:
    results = bench.Results(three.root)
    (suite,) = results.suites
    results.report()
    for name in results.tables():
        written = pd.read_csv(three.suite(suite) / "tables" / f"{name}.csv")
        frame = results.table(name)
        assert list(frame.columns) == list(written.columns)
        assert list(frame["row"]) == list(written["row"])


def test_no_torch_is_loaded(three: Store) -> None:
    code = (
        f"import sys, bench; results = bench.Results({str(three.root)!r}); results.records(); "
        "results.table('overview'); results.figure('radar'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
