"""A backward pass whose gradients two gloo ranks sum meanwhile, beside the same with the sums after it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

RANK = Path(__file__).with_name("bucket_rank.py")
LIMIT = 1.1  #: of the seconds with one flat message; a core that only sums would be needed to win by much


def test_sums_while_the_backward_pass_runs_cost_no_more(
    benchmark: BenchmarkFixture, tmp_path: Path, start_script: Callable[..., Any]
) -> None:
    def both() -> None:
        for process in [start_script(RANK, rank, 2, tmp_path) for rank in range(2)]:
            code, said = process.finish()
            assert code == 0, said

    benchmark.pedantic(both, rounds=1)
    found = json.loads((tmp_path / "rank0.json").read_text())
    ratios = {}
    for number, what in enumerate(("wall", "cpu")):
        for way in ("while", "after"):
            pairs = zip(found[way], found["flat"], strict=True)
            ratios[what, way] = statistics.median(one[number] / flat[number] for one, flat in pairs)
    benchmark.extra_info.update({f"{what} {way}": ratio for (what, way), ratio in ratios.items()})
    print(f"\nof one flat message after it: {ratios}; seconds of that {[round(wall, 2) for wall, _ in found['flat']]}")
    assert ratios["wall", "while"] < LIMIT
