"""The tour runs from its first cell to its last, and what is committed in it is one such run.

`python tests/docs/test_tour.py` runs it as it stands, for minutes, and writes its outputs anew.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import bench

TOUR = Path(bench.__file__).resolve().parents[1] / "docs" / "tour.ipynb"
#: what the test changes, so that a run takes a second; each stands in the notebook once
SMALLER = {
    '"quickstart"': '"smoke"',
    "epochs: 3": "samples: 128",
    "tasks: [zero_shot, retrieval,": "tasks: [linear_probe,",  # which is above chance without much training
    "headline: retrieval": "headline: linear_probe, datasets: {linear_probe: [digits/test]}",
    'run_suite(suite, "results")': 'run_suite(suite, "results", jobs=1)',
    'checked = bench.check("gce.py")': "from bench.checks import suite as own; "
    'own.run_checks.__defaults__ = (own.CHECKS[:2], None); checked = bench.check("gce.py")',
}

#: of tornado and zmq, which nbclient talks to the kernel through
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def kinds(cell: Any) -> set[str]:
    """What a cell shows: "stdout", and the richest form of what it returns; progress on stderr comes and goes."""
    forms = ("image/png", "text/html", "text/plain")
    shown = {next(one for one in forms if one in out["data"]) for out in cell["outputs"] if "data" in out}
    return shown | {out["name"] for out in cell["outputs"] if out["output_type"] == "stream"} - {"stderr"}


def run(notebook: Any, folder: Path) -> None:
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=3600, coalesce_streams=True, record_timing=False, resources=place).execute()


def test_every_cell_runs_and_shows_what_is_committed(tmp_path: Path) -> None:
    notebook = nbformat.read(TOUR, as_version=4)
    committed = [kinds(cell) for cell in notebook.cells if cell.cell_type == "code"]
    text = TOUR.read_text()
    for long, short in SMALLER.items():
        assert text.count(json.dumps(long)[1:-1]) == 1, long
        for cell in notebook.cells:
            cell.source = cell.source.replace(long, short)
    notebook.cells.append(nbformat.v4.new_code_cell("bench.load_suite('smok')"))
    with pytest.raises(CellExecutionError, match="did you mean 'smoke'"):  # so that one that fails fails the run
        run(notebook, tmp_path)
    *shown, _ = (kinds(cell) for cell in notebook.cells if cell.cell_type == "code")
    assert shown == committed
    assert (tmp_path / "results" / "smoke" / "report.html").is_file()


def test_the_committed_run_is_whole_and_small() -> None:
    assert TOUR.stat().st_size < 400_000
    code = [cell for cell in nbformat.read(TOUR, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [out for cell in code for out in cell.outputs if out.output_type == "error"]
    assert sum("image/png" in kinds(cell) for cell in code) == 2
    (checked,) = (cell.outputs for cell in code if "bench.check(" in cell.source)
    assert "'passed': " in str(checked)
    assert "'failed'" not in str(checked)


if __name__ == "__main__":
    whole = nbformat.read(TOUR, as_version=4)
    with tempfile.TemporaryDirectory() as empty:
        run(whole, Path(empty))
    nbformat.write(whole, TOUR)
