"""What a method learned is stored as counts that lose no number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.store import RunStore, RunWriter, Store
from bench.store.histograms import BINS, QUANTILES, histogram, store_diagnostics
from methods.protocol import Diagnostic

FINITE = st.floats(-1e6, 1e6)
SERIES = st.lists(FINITE | st.sampled_from([math.nan, math.inf, -math.inf, 0.0]), max_size=40)
quick = settings(deadline=None, max_examples=60)


def diagnostic(name: str = "weights", log: bool = False, **series: list[float]) -> Diagnostic:
    values = {legend: torch.tensor(one, dtype=torch.float64) for legend, one in series.items()}
    return Diagnostic(name, "weights of pairs", "weight", values, log)


@quick
@given(SERIES, SERIES, st.booleans())
def test_every_number_is_counted_once_or_dropped_and_said(one: list[float], two: list[float], log: bool) -> None:
    found = histogram(diagnostic(log=log, one=one, two=two))
    edges = found["edges"]
    assert all(low < high for low, high in itertools.pairwise(edges)), "rising"
    for legend, values in (("one", one), ("two", two)):
        own = found["series"][legend]
        good = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        assert (own["n"], own["dropped"]) == (len(good), len(values) - len(good))
        assert sum(own["counts"]) == len(good), "none lies outside the edges"
        if good:
            assert own["mean"] == pytest.approx(np.mean(good), rel=1e-5)
            assert edges[0] <= min(good) + 1e-5 * abs(min(good))
        else:
            assert (own["mean"], own["quantiles"], own["counts"]) == (None, {}, [])


@quick
@given(st.lists(FINITE, min_size=1, max_size=60))
def test_quantiles_are_those_of_the_numbers(values: list[float]) -> None:
    own = histogram(diagnostic(one=values))["series"]["one"]
    assert [float(q) for q in own["quantiles"]] == list(QUANTILES)
    quantiles = list(own["quantiles"].values())
    assert quantiles == pytest.approx([float(np.quantile(values, q)) for q in QUANTILES], rel=1e-5)
    assert quantiles == sorted(quantiles)


def test_bins_are_equally_wide_and_common_to_all_series() -> None:
    found = histogram(diagnostic(one=[0.0, 1.0], two=[4.0]))
    np.testing.assert_allclose(found["edges"], np.linspace(0, 4, BINS + 1), rtol=1e-5)
    assert found["series"]["one"]["counts"][:11] == [1] + [0] * 9 + [1]
    assert found["series"]["two"]["counts"] == [0] * (BINS - 1) + [1], "the last bin holds its upper edge"


def test_numbers_have_six_digits_unless_the_bins_are_narrower() -> None:
    found = histogram(diagnostic(one=[1 / 3, 2 / 3]))
    assert found["edges"][0] == 0.333333
    assert found["series"]["one"]["quantiles"]["0.5"] == 0.5
    assert found["series"]["one"]["mean"] == 0.5
    narrow = histogram(diagnostic(one=[1 / 3, 1 / 3 + 1e-9]))["edges"]
    assert narrow[0] == 1 / 3
    assert len(set(narrow)) == BINS + 1


def test_bins_of_magnitudes_are_equally_wide_in_the_logarithm() -> None:
    found = histogram(diagnostic(log=True, one=[1e-4, 1.0, -3.0, 0.0]))
    np.testing.assert_allclose(np.diff(np.log10(found["edges"])), 4 / BINS, rtol=1e-4)
    assert found["series"]["one"]["dropped"] == 2
    assert found["log"] is True


@pytest.mark.parametrize(
    ("value", "log", "edges"),
    [(5.0, False, [2.5, 7.5]), (0.1, False, [-0.4, 0.6]), (-8.0, False, [-12.0, -4.0]), (3.0, True, [1.5, 6.0])],
)
def test_equal_numbers_have_one_bin_around_them(value: float, log: bool, edges: list[float]) -> None:
    found = histogram(diagnostic(log=log, one=[value, value]))
    assert found["edges"] == pytest.approx(edges)
    assert found["series"]["one"]["counts"] == [2]


def test_numbers_of_lower_precision_and_with_gradient_are_read() -> None:
    values = torch.tensor([0.5, 1.5], dtype=torch.bfloat16, requires_grad=True)
    own = histogram(Diagnostic("a", "t", "x", {"one": values}))["series"]["one"]
    assert (own["n"], own["mean"]) == (2, 1.0)


def test_a_table_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match=r"diagnostic 'w': 'one' should be 1-D, not of shape \[2, 3\]"):
        histogram(Diagnostic("w", "t", "x", {"one": torch.zeros(2, 3)}))


def test_each_source_and_protocol_replaces_its_own_alone(
    tmp_path: Path, writer: Callable[[RunStore], RunWriter]
) -> None:
    out = writer(Store(tmp_path).run("a"))
    store_diagnostics(out, "training", [])
    assert not out.path("diagnostics.json").exists(), "nothing is stored of nothing"
    store_diagnostics(out, "training", [diagnostic("a", one=[1.0]), diagnostic("b", one=[1.0])])
    store_diagnostics(out, "evaluation", [diagnostic("a", one=[2.0])], "1")
    store_diagnostics(out, "evaluation", [diagnostic("a", one=[3.0])], "2")
    store_diagnostics(out, "training", [diagnostic("c", one=[4.0])])

    def said() -> list[tuple[str, str, str, float]]:
        return [
            (one["source"], one.get("protocol", ""), one["name"], one["series"]["one"]["mean"])
            for one in out.diagnostics()
        ]

    first, second = ("evaluation", "1", "a", 2.0), ("evaluation", "2", "a", 3.0)
    assert said() == [first, second, ("training", "", "c", 4.0)]
    store_diagnostics(out, "evaluation", [diagnostic("a", one=[5.0])], "1")
    assert said() == [second, ("training", "", "c", 4.0), ("evaluation", "1", "a", 5.0)]
    store_diagnostics(out, "evaluation", [], "2")
    assert second not in said()


def test_two_of_a_name_are_refused_and_what_was_stored_stays(
    tmp_path: Path, writer: Callable[[RunStore], RunWriter]
) -> None:
    out = writer(Store(tmp_path).run("a"))
    store_diagnostics(out, "training", [diagnostic("a", one=[1.0])])
    before = out.path("diagnostics.json").read_bytes()
    with pytest.raises(ValueError, match="names of their own, not b, b"):
        store_diagnostics(out, "training", [diagnostic("b", one=[1.0]), diagnostic("b", one=[2.0])])
    assert out.path("diagnostics.json").read_bytes() == before
