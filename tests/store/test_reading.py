"""What no file of a store holds is refused, whatever stands beside it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.store.content import complaint
from bench.store.reading import MAX_DEPTH, unstorable

NUMBERS = st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 0, True, 1e308, math.inf, -math.inf, 0.5])
VALUES = st.recursive(
    NUMBERS | st.none() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)
SERIES = {"n": 3, "dropped": 0, "counts": [1, 2]}
HISTOGRAM = {"source": "training", "name": "w", "title": "t", "axis": "x", "log": False, "edges": [0, 1.5, 2]}


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        return [leaf for one in (value.values() if isinstance(value, dict) else value) for leaf in leaves(one)]
    return [value]


@settings(deadline=None)
@given(VALUES, st.integers(0, MAX_DEPTH))
def test_numbers_are_refused_at_any_depth(value: Any, depth: int) -> None:
    large = any(isinstance(one, int) and not -(2**63) <= one < 2**63 for one in leaves(value))
    infinite = any(isinstance(one, float) and math.isinf(one) for one in leaves(value))
    for _ in range(min(depth, 16)):
        value = {"beside": [3, "text"], "inner": [value]}
    reason = unstorable(value, b"")
    if not large and not infinite:
        assert reason in ("", f"is nested more than {MAX_DEPTH} deep")
    elif "nested" not in reason:
        assert (large and "64 bits" in reason) or (infinite and "infinite" in reason)


@pytest.mark.parametrize("leaf", [0, "text", None])
def test_values_are_nested_as_deep_as_allowed_and_no_deeper(leaf: Any) -> None:
    value = leaf
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert unstorable(value, b"") == ""
    assert unstorable([value], b"") == f"is nested more than {MAX_DEPTH} deep"


@pytest.mark.parametrize(
    ("edges", "counts", "reason"),
    [
        ([0, 1.5, 2], [1, 2], ""),
        ([0, 1.5, True], [1, 2], "edges.2: should be a finite number"),
        ([0, math.inf, 2], [1, 2], "edges.1: should be a finite number"),
        ((0, 1.5, 2), [1, 2], "edges: should be a list"),
        ([0, 2, 2], [1, 2], "edges: should rise"),
        ([0, 1.5, 2], [1, -2], "series.one.counts.1: should be a non-negative whole number"),
        ([0, 1.5, 2], [False, 2], "series.one.counts.0: should be a non-negative whole number"),
        ([0, 1.5, 2], [1, 2.0], "series.one.counts.1: should be a non-negative whole number"),
        ([0, 1.5, 2], [], ""),
        ([0, 1.5, 2], [1], "series: should have a count for each bin"),
    ],
)
def test_a_wrong_entry_of_a_histogram_is_named(edges: Any, counts: Any, reason: str) -> None:
    entry = {**HISTOGRAM, "edges": edges, "series": {"one": {**SERIES, "counts": counts}}}
    assert complaint({"diagnostics": [entry]}, "diagnostics") == (f"diagnostics.0.{reason}" if reason else "")
