"""Features of the emoji's training pairs on one rank and on two, in turn within the same two processes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

LIMIT = 0.7  #: of one rank's CPU seconds that the busier of two ranks may take


def test_two_ranks_halve_the_work_of_one(
    benchmark: BenchmarkFixture, two_ranks: Callable[[str], list[dict[str, Any]]]
) -> None:
    first, second = two_ranks("extraction_rank.py")
    wall = [shared[0] / alone[0] for shared, alone in zip(first["shared"], first["alone"], strict=True)]
    alone = statistics.median(cpu for _, cpu in first["alone"])
    shares = [statistics.median(cpu for _, cpu in one["shared"]) / alone for one in (first, second)]
    benchmark.extra_info.update(peer="one rank", ratio=f"{statistics.median(wall):.2f} times its seconds")
    print(f"\nseconds {statistics.median(wall):.2f} of one rank's; CPU seconds of each rank {shares} of {alone:.2f}")
    assert max(shares) < LIMIT
