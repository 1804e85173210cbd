"""Two gloo ranks that time the same work in several ways, in turn; the load of the machine beside what was measured."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    machine_info["load"] = os.getloadavg()[0]


@pytest.fixture
def two_ranks(
    benchmark: BenchmarkFixture, tmp_path: Path, start_script: Callable[..., Any]
) -> Callable[[str], list[dict[str, Any]]]:
    """Run a script of this folder as two ranks, once; return what each measured (`ranks_in_turn.in_turn`)."""

    def measured(script: str) -> list[dict[str, Any]]:
        def both() -> None:
            for process in [start_script(Path(__file__).with_name(script), rank, 2, tmp_path) for rank in range(2)]:
                code, said = process.finish()
                assert code == 0, said

        benchmark.pedantic(both, rounds=1)
        return [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]

    return measured
