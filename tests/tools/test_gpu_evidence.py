"""tools/gpu_evidence.py: parts that fail are written down, the page says whether there was a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

PATH = Path(__file__).parents[2] / "tools" / "gpu_evidence.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_evidence", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_part_that_fails_costs_itself_alone(tool: ModuleType, tmp_path: Path) -> None:
    def broken(_: Path) -> dict[str, object]:
        raise RuntimeError("the card <fell> out")

    rows = [{"runs at a time": 1, "seconds": 1.25}]
    found = tool.gather(tmp_path, {"broken": broken, "whole": lambda _: {"rows": rows}})
    assert found["parts"]["broken"]["error"] == "RuntimeError: the card <fell> out"
    assert found["parts"]["whole"]["rows"] == rows
    assert tool.failed(found)
    text = tool.page(found)
    assert "the card &lt;fell&gt; out" in text
    assert "<td>1.25</td>" in text
    assert ("No GPU on this machine" in text) == (not torch.cuda.is_available())


def test_a_failed_test_is_a_failure_and_a_clean_one_is_none(tool: ModuleType) -> None:
    part = {"passed": 3, "skipped": 1, "failed": [], "seconds": 1.0}
    assert not tool.failed({"parts": {"tests": part}})
    assert tool.failed({"parts": {"tests": {**part, "failed": ["test_x"]}}})


def test_the_sweep_makes_its_runs(tool: ModuleType, tmp_path: Path) -> None:
    found = tool.sweep(tmp_path)
    assert [row["runs at a time"] for row in found["rows"]] == ([1, 2, 4, 8] if torch.cuda.is_available() else [1, 2])
    assert all(row["seconds"] > 0 for row in found["rows"])
