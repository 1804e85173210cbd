"""`bench.Results`: figures and tables of a store with three seeds, without torch."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

import bench
from bench.store import Store


def test_figures_are_matplotlib_figures_that_can_be_saved_again(three: Store) -> None:
    results = bench.Results(three.root)
    for name in ("differences", "radar", "noise", "cost"):
        figure = results.figure(name)
        assert isinstance(figure, Figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=20)
        assert buffer.getvalue().startswith(b"\x89PNG")
    with pytest.raises(bench.UserError, match="did you mean 'radar'"):
        results.figure("rader")
    few = results.figure("radar", methods=["sogclr", "clip"])
    assert [text.get_text() for text in few.legends[0].get_texts()] == ["SogCLR", "CLIP"]
    assert r"~\cite{sogclr}" in results.latex("overview", methods=["sogclr"])
    with pytest.raises(bench.UserError, match="'overvew' is not a table of this report; did you mean 'overview'"):
        results.latex("overvew")
    with pytest.raises(bench.UserError, match="the figure 'cost' shows all methods; only the radar takes a choice"):
        results.figure("cost", methods=["clip"])


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
    subprocess.run([sys.executable, "-c", code], check=True, timeout=1200)


def test_status_has_one_line_a_run_and_says_what_failed(three: Store) -> None:
    results = bench.Results(three.root)
    plan = three.plan(results.suites[0])
    frame = results.status()
    assert list(frame.columns) == ["method", "noise", "seed", "state", "step", "run", "note"]
    assert [(row.method, row.noise, row.seed) for row in frame.itertuples()] == [
        (cell["method"], cell["noise"], cell["seed"]) for cell in plan["cells"]
    ]
    assert set(frame["state"]) == {"done"}


@pytest.mark.parametrize("content", ['{"suite": "broken", "cel', "[1]", "{}"])
def test_a_damaged_plan_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "broken").mkdir()
    path = tmp_path / "broken" / "plan.json"
    path.write_text(content)
    results = bench.Results(tmp_path, suite="broken")
    assert results.suites == ["broken"]
    for read in (results.records, results.tables, results.status, results.report, lambda: results.compare("a", "b")):
        with pytest.raises(bench.UserError, match=re.escape(str(path))):
            read()
