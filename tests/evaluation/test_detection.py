"""Noise detection and the bootstrap: the same values as scikit-learn, intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from bench.evaluation.bootstrap import mean_interval, percentile_interval, ratio_replicates, resamples
from bench.evaluation.noise.detection import detection_scores


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=8, max_size=60))
def test_values_equal_scikit_learns_among_ties(pairs: list[tuple[int, bool]]) -> None:
    confidence = np.array([value for value, _ in pairs], dtype=np.float64)
    noisy = np.array([flag for _, flag in pairs])
    assume(noisy.any() and not noisy.all())
    found = detection_scores(confidence, noisy)
    assert found["auroc"][0] == pytest.approx(roc_auc_score(noisy, -confidence))
    assert found["average_precision"][0] == pytest.approx(average_precision_score(noisy, -confidence))


def test_a_low_confidence_means_noisy() -> None:
    noisy = np.arange(100) < 30
    found = detection_scores(np.where(noisy, -1.0, 1.0) + np.linspace(0, 0.1, 100), noisy)
    assert found["auroc"][0] == found["average_precision"][0] == 1.0
    assert detection_scores(np.zeros(100), noisy)["auroc"][0] == 0.5


def test_its_interval_is_that_of_redrawn_pairs() -> None:
    """Against the plain way: redraw pairs, ask scikit-learn."""
    rng = np.random.default_rng(0)
    noisy = rng.random(400) < 0.3
    confidence = rng.normal(size=400) - noisy
    found = detection_scores(confidence, noisy)
    rows = rng.integers(0, 400, size=(300, 400))
    metrics = {roc_auc_score: found["auroc"][1], average_precision_score: found["average_precision"][1]}
    for metric, ours in metrics.items():
        plain = percentile_interval(np.array([metric(noisy[r], -confidence[r]) for r in rows]))
        assert ours == pytest.approx(plain, abs=0.015)


def test_detection_refuses_what_has_no_answer() -> None:
    for noisy in (np.zeros(4, dtype=bool), np.ones(4, dtype=bool)):
        with pytest.raises(ValueError, match="corrupted and clean"):
            detection_scores(np.arange(4.0), noisy)
    with pytest.raises(FloatingPointError):
        detection_scores(np.array([0.0, np.nan]), np.array([True, False]))


def test_resamples_draw_n_of_n() -> None:
    blocks = list(resamples(5000, seed=3))
    drawn = np.concatenate(blocks)
    assert len(blocks) > 1
    assert drawn.shape == (1000, 5000)
    assert (drawn.sum(1) == 5000).all()
    assert drawn.var() == pytest.approx(1.0, abs=0.01)  # binomial(n, 1/n)
    np.testing.assert_array_equal(np.concatenate(list(resamples(5000, seed=3))), drawn)
    assert (np.concatenate(list(resamples(5000, seed=4))) != drawn).any()


@pytest.mark.parametrize("n", [37, 300])
def test_counts_of_a_size_are_drawn_once(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    first = list(resamples(n, seed=7))
    drawn = np.concatenate(first)
    assert drawn.dtype == np.float64
    first[0][:] = -1
    monkeypatch.setattr(np.random, "default_rng", lambda _: pytest.fail("drawn again"))
    np.testing.assert_array_equal(np.concatenate(list(resamples(n, seed=7))), drawn)


def test_the_interval_of_a_mean_is_the_textbooks() -> None:
    values = (np.arange(2000) % 4 == 0).astype(np.float64)
    low, high = mean_interval(values)
    error = 1.96 * values.std() / np.sqrt(2000)
    assert (low, high) == pytest.approx((0.25 - error, 0.25 + error), abs=0.003)


def test_units_of_different_weight_count_by_their_weight() -> None:
    weights = np.arange(1.0, 101.0)
    np.testing.assert_allclose(ratio_replicates({"r": 3 * weights}, {"r": weights})["r"], 3.0)


def test_drawing_units_whole_widens_the_interval() -> None:
    """Five captions that hit or miss together say no more than one."""
    hits = (np.arange(400) % 2).astype(np.float64)
    together = percentile_interval(ratio_replicates({"r": 5 * hits}, {"r": np.full(400, 5.0)})["r"])
    assert together == mean_interval(hits)
    apart = mean_interval(np.repeat(hits, 5))
    assert together[1] - together[0] > 2 * (apart[1] - apart[0])
