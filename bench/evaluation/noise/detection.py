"""Detection of corrupted pairs: corrupted = positive, score = -confidence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.arrays import Floats
from bench.evaluation.bootstrap import percentile_interval, resamples
from bench.evaluation.grouped import WithInterval


def detection_scores(confidence: npt.NDArray[np.floating], noisy: npt.NDArray[np.bool_]) -> dict[str, WithInterval]:
    """Return "auroc" and "average_precision" of confidence [n] (higher = cleaner) against noisy [n].

    Pairs of equal confidence share a threshold. Raises ValueError unless there are corrupted and clean pairs, and
    FloatingPointError for a confidence that is not finite.
    """
    positive, ends = _thresholds(confidence, noisy)
    point = _areas(np.ones((1, len(positive))), positive, ends)[:, 0]
    drawn = np.concatenate([_areas(block, positive, ends) for block in resamples(len(positive))], axis=1)
    areas, precisions = drawn[:, ~np.isnan(drawn).any(axis=0)]  # without draws that have only one kind
    return {
        "auroc": (float(point[0]), percentile_interval(areas)),
        "average_precision": (float(point[1]), percentile_interval(precisions)),
    }


def point_scores(confidence: npt.NDArray[np.floating], noisy: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return AUROC and average precision without intervals. Raises the errors of `detection_scores`."""
    positive, ends = _thresholds(confidence, noisy)
    area, precision = _areas(np.ones((1, len(positive))), positive, ends)[:, 0]
    return float(area), float(precision)


def _thresholds(
    confidence: npt.NDArray[np.floating], noisy: npt.NDArray[np.bool_]
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return which pairs [n] are corrupted, most suspicious first, and the last pair at each threshold."""
    if noisy.all() or not noisy.any():
        raise ValueError("detection needs corrupted and clean pairs")
    if not np.isfinite(confidence).all():
        raise FloatingPointError("a confidence is NaN or infinite")
    order = np.argsort(confidence, kind="stable")
    ordered = confidence[order]
    return noisy[order].astype(np.float64), np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))


def _areas(weights: Floats, positive: Floats, ends: npt.NDArray[np.int64]) -> Floats:
    """Return [2, r]: area under the ROC curve (trapezoids) and average precision (steps) of samples weighted [r, n].

    positive: [n], most suspicious first; ends: the last pair at each threshold.
    """
    true = np.cumsum(weights * positive, axis=1)[:, ends]
    passed = np.cumsum(weights, axis=1)[:, ends]
    false = passed - true
    new_true, new_false = (np.diff(values, axis=1, prepend=0.0) for values in (true, false))
    with np.errstate(invalid="ignore"):
        area = (new_false * (true - new_true / 2)).sum(1) / (true[:, -1] * false[:, -1])
        precision = (new_true * true / np.maximum(passed, 1.0)).sum(1) / true[:, -1]
    return np.stack((area, precision))
