"""`bench --help` answers at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

import bench

ROOT = Path(bench.__file__).parents[1]


def test_help_takes_less_than_half_a_second(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(
        subprocess.run,
        args=([sys.executable, "-m", "bench", "--help"],),
        kwargs={"cwd": ROOT, "capture_output": True, "check": True},
        rounds=5,
        warmup_rounds=1,
    )
    assert benchmark.stats.stats.min < 0.5
