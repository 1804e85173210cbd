"""Every shipped method passes every check."""

from __future__ import annotations

import pytest

from bench.adapters import registry
from bench.checks.pool import RankPool
from bench.checks.suite import CHECKS, run_checks, subject_of


@pytest.mark.promise("every shipped method passes all 22 checks, values of official code among them")
@pytest.mark.parametrize("name", [name for name in registry.method_names() if not registry.method_source(name).plugin])
def test_passes_every_check(name: str, pool: RankPool) -> None:
    results = list(run_checks(subject_of(name), pool))
    assert [result.check for result in results] == [check.name for check in CHECKS]
    assert [f"{result.check}: {result.reason}" for result in results if result.outcome == "failed"] == []
    applied = [result.check for result in results if result.outcome == "passed"]
    assert {"card", "gradient", "permutation", "ranks", "resume", "noise_mask", "cost", "learns"} <= set(applied)
    assert "micro_batches" in applied or registry.find_method(name).side == "none", "a side is the same in all of them"
