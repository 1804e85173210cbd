"""tools/gpu_bench.py measures every method and both ways of stepping, on whatever device there is."""

from __future__ import annotations

import math
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from bench.adapters import registry
from bench.training.job import available_device

TOOL = Path(__file__).parents[2] / "tools" / "gpu_bench.py"


def test_every_part_gives_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    tool = runpy.run_path(str(TOOL))
    (name, towers), *_ = tool["SMALL"].towers.items()
    scale = replace(tool["SMALL"], towers={name: towers}, batch=16, micro=8, steps=1, matmul=64)
    found = tool["measured"](scale, available_device())
    assert [row["micro-batch"] for row in found["training"]] == [16, 8]
    for row in found["training"]:
        assert all(row[key] > 0 for key in ("samples/s", "TFLOP/s", "share of matmul", "peak GiB"))
        assert 0 <= row["waiting for data"] < 1
    (equal,) = found["equality"]
    assert max(equal[key] for key in ("loss", "gradient_norm", "weights")) < 1e-4
    assert [row["method"] for row in found["losses"]] == list(registry.names())
    assert all(math.isfinite(row["ms"]) and row["ms"] > 0 for row in found["losses"])
    assert "share of matmul" in capsys.readouterr().out
