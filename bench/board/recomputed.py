"""Scores computed again from the stored outcomes of single examples, without features or weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bench.evaluation.noise.detection import point_scores
from bench.evaluation.puzzles import SIZES
from bench.evaluation.ranks import SCORES, Ranks
from bench.evaluation.retrieval import Retrieval

Outcomes = Mapping[str, np.ndarray]
Scores = dict[tuple[str, str], float]  #: (metric, score) -> value
TOLERANCE = 1e-6  #: of a value; sums over examples round differently
DETECTION_TOLERANCE = 1e-4  #: confidences are stored as fp32, so some that differed are tied


def recomputed(outcomes: Outcomes) -> Scores:
    """Return every score that follows from the outcomes of one evaluation.

    Metrics that need more than the outcomes, such as those of groups of images, are not among them. Raises ValueError
    or KeyError if arrays are missing or do not fit together.
    """
    scores: Scores = {}
    for score in SCORES:
        if f"{score}_better" in outcomes:
            scores |= _of_classes(outcomes, score)
        if f"{score}_i2t_better" in outcomes:
            i2t, t2i = (_ranks(outcomes, f"{score}_{side}_") for side in ("i2t", "t2i"))
            metrics = Retrieval(i2t, t2i, outcomes[f"{score}_owner"]).metrics()
            scores |= {(metric, score): value for metric, value in metrics.items()}
        if f"{score}_jaccard" in outcomes:
            scores |= _of_puzzles(outcomes["candidates"], outcomes[f"{score}_jaccard"], score)
    if "correct" in outcomes:
        scores["accuracy", ""] = float(outcomes["correct"].astype(np.float64).mean())
    if "confidence" in outcomes:
        area, precision = point_scores(outcomes["confidence"].astype(np.float64), outcomes["noisy"].astype(np.bool_))
        scores |= {("auroc", ""): area, ("average_precision", ""): precision}
    return scores


def tolerance(metric: str) -> float:
    """Return how far a stored score may lie from the recomputed one."""
    return DETECTION_TOLERANCE if metric in ("auroc", "average_precision") else TOLERANCE


def _ranks(outcomes: Outcomes, prefix: str) -> Ranks:
    return Ranks(*(outcomes[f"{prefix}{name}"].astype(np.int64) for name in ("better", "tied_wrong", "tied_right")))


def _of_classes(outcomes: Outcomes, score: str) -> Scores:
    ranks = _ranks(outcomes, f"{score}_")
    scores = {(f"top{k}", score): float(ranks.hits(k).mean()) for k in (1, 5)}
    if f"{score}_log_likelihood" in outcomes:
        logs = outcomes[f"{score}_log_likelihood"].astype(np.float64)
        scores["likelihood", score] = float(np.exp(logs.mean()))
        scores["mrr", score] = float(ranks.reciprocal().mean())
    return scores


def _of_puzzles(sizes: np.ndarray, jaccard: np.ndarray, score: str) -> Scores:
    groups = {metric: jaccard[np.isin(sizes, among)] for metric, among in SIZES.items()} | {"jaccard": jaccard}
    return {(metric, score): float(values.mean()) for metric, values in groups.items() if len(values)}
