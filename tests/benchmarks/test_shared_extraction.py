"""Features of the emoji's training pairs on one rank and on two, in turn within the same two processes."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

RANK = Path(__file__).with_name("extraction_rank.py")
LIMIT = 0.7  #: of one rank's CPU seconds that the busier of two ranks may take


def test_two_ranks_halve_the_work_of_one(
    benchmark: BenchmarkFixture, tmp_path: Path, start_script: Callable[..., Any]
) -> None:
    def both() -> None:
        for process in [start_script(RANK, rank, 2, tmp_path) for rank in range(2)]:
            code, said = process.finish()
            assert code == 0, said

    benchmark.pedantic(both, rounds=1)
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    wall = [shared[0] / alone[0] for shared, alone in zip(first["shared"], first["alone"], strict=True)]
    alone = statistics.median(cpu for _, cpu in first["alone"])
    shares = [statistics.median(cpu for _, cpu in one["shared"]) / alone for one in (first, second)]
    benchmark.extra_info.update(wall=statistics.median(wall), cpu_shares=shares)
    print(f"\nseconds {statistics.median(wall):.2f} of one rank's; CPU seconds of each rank {shares} of {alone:.2f}")
    assert max(shares) < LIMIT
