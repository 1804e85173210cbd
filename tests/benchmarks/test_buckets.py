"""A backward pass whose gradients two gloo ranks sum meanwhile, beside the same with the sums after it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

LIMIT = 1.1  #: of the seconds with one flat message; a core that only sums would be needed to win by much


def test_sums_while_the_backward_pass_runs_cost_no_more(
    benchmark: BenchmarkFixture, two_ranks: Callable[[str], list[dict[str, Any]]]
) -> None:
    found, _ = two_ranks("bucket_rank.py")
    ratios = {}
    for number, what in enumerate(("wall", "cpu")):
        for way in ("while", "after"):
            pairs = zip(found[way], found["flat"], strict=True)
            ratios[what, way] = statistics.median(one[number] / flat[number] for one, flat in pairs)
    benchmark.extra_info.update({f"{what} {way}": ratio for (what, way), ratio in ratios.items()})
    print(f"\nof one flat message after it: {ratios}; seconds of that {[round(wall, 2) for wall, _ in found['flat']]}")
    assert ratios["wall", "while"] < LIMIT
