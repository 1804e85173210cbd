"""Checkpoint selection: the point of a run's curve at which its records are read; it costs no training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from bench.store.run import Record

#: the last weights, or those of the best mean recall on validation pairs; the latter two name a family of tasks
Select = Literal["last", "noisy_validation", "clean_validation"]
LAST: Select = "last"
SELECTION_METRIC = "mean_recall"


def validation_scores(records: Iterable[Record], family: str, score: str, protocol: str) -> dict[float, float]:
    """Return share of the budget -> mean recall over the sets of a family of validation tasks, each of equal weight.

    score: the method's own, "cosine" or "csd". Points at which one of the sets is not measured are left out.
    """
    found: dict[float, dict[str, float]] = {}
    for one in records:
        if (one.task, one.metric, one.score, one.protocol) == (family, SELECTION_METRIC, score, protocol):
            found.setdefault(one.at, {})[one.dataset] = one.value
    sets = {name for values in found.values() for name in values}
    return {at: sum(values.values()) / len(sets) for at, values in found.items() if len(values) == len(sets)}


def chosen_point(select: str, scores: Mapping[float, float], points: Sequence[float]) -> float | None:
    """Return the share of the budget whose weights a rule chooses: of equal scores the earliest.

    scores: `validation_scores` of the rule's family; points: those of the curve, and 1.0. None until all are measured.
    """
    if select == LAST:
        return 1.0
    if any(at not in scores for at in points):
        return None
    return max(sorted(points), key=scores.__getitem__)


def score_at_selected(
    records: Sequence[Record], select: str, family: str, score: str, protocol: str, points: Sequence[float]
) -> float | None:
    """Return the mean recall by a family of validation tasks of the weights that a rule chooses; None if not measured.

    Arguments as of the two functions above.
    """
    at = chosen_point(select, validation_scores(records, select, score, protocol), points)
    return None if at is None else validation_scores(records, family, score, protocol).get(at)
