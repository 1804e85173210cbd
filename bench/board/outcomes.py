"""Recomputation of scores from per-example results; records that differ are refused.

Their size is checked against the records' numbers of examples before anything is unpacked.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bench.catalogue.families import FAMILIES
from bench.data import evaluation
from bench.errors import one_line
from bench.evaluation.noise.detection import point_scores
from bench.evaluation.puzzles import SIZES
from bench.evaluation.ranks import SCORES, AnswerRanks
from bench.evaluation.retrieval import Retrieval
from bench.store import Damaged, RunStore
from bench.suite.tasks import Task

Outcomes = Mapping[str, np.ndarray]
Scores = dict[tuple[str, str], tuple[float, int]]  #: (metric, score) -> value, number of examples
MAX_EXAMPLES = 1 << 24  #: most examples of one evaluation
_ROW_BYTES, _HEADER_BYTES = 32, 1 << 13  #: bytes of the arrays for each example and metric; of all their headers
_MAX_TIED_EXAMPLES = 10_000_000  #: most tied examples for which the mean reciprocal rank is computed
_LESS_IS_BETTER = frozenset({"memorised", "attack_success", "without_trigger"})
#: metrics that need more than the outcomes: confidences, predicted classes, groups, kept rows, nearest captions
_STATED = frozenset({"f1_macro", "worst_region", "top5_worst_income", "kept_precision", "kept_recall"})
_STATED_OF = {
    "memorisation": frozenset({"auroc"}),
    "attack_success": frozenset({"attack_success", "without_trigger"}),
    **{name: frozenset(FAMILIES[name].metrics) for name in ("hierarchy", "prompts")},
}
SCORE_TOLERANCE = 1e-6  #: of a value; sums over examples round differently
DETECTION_TOLERANCE = 1e-4  #: confidences are stored as fp32, so some that differed are tied


class Refused(Exception):
    """A run of a bundle is refused; the message follows its name."""


def recompute_scores(outcomes: Outcomes) -> Scores:
    """Return every score that follows from the outcomes of one evaluation.

    Raises ValueError, KeyError, IndexError or FloatingPointError if arrays are missing or do not fit together.
    """
    scores: Scores = {}
    for score in SCORES:
        if "row" in outcomes and f"{score}_better" in outcomes:
            scores |= _of_training_pairs(outcomes, score)
        elif f"{score}_better" in outcomes:
            scores |= _of_classes(outcomes, score)
        if f"{score}_i2t_better" in outcomes:
            i2t, t2i = (_ranks(outcomes, f"{score}_{side}_") for side in ("i2t", "t2i"))
            metrics = Retrieval(i2t, t2i, outcomes[f"{score}_owner"]).metrics()
            sizes = (len(i2t.better), len(t2i.better))
            scores |= {(name, score): (value, sizes[name.startswith("t2i")]) for name, value in metrics.items()}
        if f"{score}_jaccard" in outcomes:
            jaccard = outcomes[f"{score}_jaccard"]
            parts = {metric: jaccard[np.isin(outcomes["candidates"], among)] for metric, among in SIZES.items()}
            parts["jaccard"] = jaccard
            scores |= {(metric, score): _mean(values) for metric, values in parts.items() if len(values)}
        if f"{score}_clean" in outcomes:
            scores |= _of_attack(outcomes, outcomes[f"{score}_clean"], score)
    if "correct" in outcomes:
        scores["accuracy", ""] = _mean(outcomes["correct"])
    if "confidence" in outcomes:
        confidence, noisy = outcomes["confidence"].astype(np.float64), outcomes["noisy"].astype(np.bool_)
        area, precision = point_scores(confidence, noisy)
        scores |= {("auroc", ""): (area, len(noisy)), ("average_precision", ""): (precision, len(noisy))}
    return scores


def _mean(values: np.ndarray) -> tuple[float, int]:
    """Return the mean of values [n] in [0, 1], and n."""
    numbers = values.astype(np.float64)
    if not len(numbers) or not ((numbers >= 0) & (numbers <= 1)).all():
        raise ValueError("per-example results should lie in [0, 1]")
    return float(numbers.mean()), len(numbers)


def _ranks(outcomes: Outcomes, prefix: str) -> AnswerRanks:
    names = [f"{prefix}{name}" for name in ("better", "tied_wrong", "tied_right")]
    better, wrong, right = (outcomes[name].astype(np.int64) for name in names)
    if not len(better) == len(wrong) == len(right) or min(better.min(), wrong.min()) < 0 or right.min() < 1:
        raise ValueError(f"{prefix}better and its ties are not ranks")
    if max(better.max(), wrong.max(), right.max()) > np.iinfo(np.int32).max:  # as which a run stores them
        raise ValueError(f"{prefix}better and its ties: hold more candidates than a run can count")
    return AnswerRanks(better, wrong, right)


def _of_classes(outcomes: Outcomes, score: str) -> Scores:
    ranks, labels = _ranks(outcomes, f"{score}_"), outcomes["label"]
    scores = {(f"top{k}", score): _mean(ranks.hits(k)) for k in (1, 5)}
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    per_class = np.bincount(places, ranks.hits(1)) / counts
    scores["mean_per_class_recall", score] = float(per_class.mean()), len(labels)
    if f"{score}_log_likelihood" in outcomes:
        if ranks.ties() > _MAX_TIED_EXAMPLES:
            raise ValueError(f"{score}_tied_wrong: holds more ties than classes have")
        logs = outcomes[f"{score}_log_likelihood"].astype(np.float64)
        scores["likelihood", score] = float(np.exp(logs.mean())), len(logs)
        scores["mrr", score] = _mean(ranks.reciprocal())
    return scores


def _of_training_pairs(outcomes: Outcomes, score: str) -> Scores:
    noisy, first = outcomes["noisy"].astype(np.bool_), _ranks(outcomes, f"{score}_").hits(1)
    parts = {"memorised": first[noisy], "learned": first[~noisy]}
    if f"{score}_corrected" in outcomes:
        parts["corrected"] = outcomes[f"{score}_corrected"]
    return {(name, score): _mean(hits) for name, hits in parts.items() if len(hits)}


def _of_attack(outcomes: Outcomes, predicted: np.ndarray, score: str) -> Scores:
    right = predicted == outcomes["label"]
    if "target" not in outcomes:
        return {("clean_accuracy", score): _mean(right)}
    targets = outcomes["target"]
    got = predicted[targets] == outcomes["wrong_class"]
    return {("attack_success", score): _mean(got), ("clean_accuracy", score): _mean(np.delete(right, targets))}


def refuse_other_scores(run: RunStore, key: str) -> tuple[int, set[tuple[str, str, str, str]]]:
    """Return how many records an evaluation has, and (data set, task, metric, score) of those that its outcomes give.

    Raises Refused for a record that its outcomes do not give, that is not one of its task, or that is a duplicate.
    """
    records, place = run.records_of(key), f"evaluations/{key}"
    families = {one.task.split("/")[0] for one in records}
    if len(families) != 1 or (family := families.pop()) not in FAMILIES:
        raise Refused(f"{place}: its records belong to no family of tasks that this version knows")
    for one in records:
        if one.n > MAX_EXAMPLES or one.n < 1:
            raise Refused(f"{place}: n: is {one.n:,}; an evaluation has 1 to {MAX_EXAMPLES:,} examples")
    again = _again(run, key, sum({one.metric: one.n for one in records}.values()))
    given, seen = set[tuple[str, str, str, str]](), set[tuple[str, str]]()
    for one in records:
        where = f"{one.dataset} {one.task} {one.metric}"
        if Task(one.task, one.dataset, protocol=one.protocol).key(one.at) != key:
            raise Refused(f"{place}: holds {where}, which has another key")
        if (one.metric, one.score) in seen:
            raise Refused(f"{place}: {where} is a duplicate")
        seen.add((one.metric, one.score))
        if one.higher_is_better == (one.metric in _LESS_IS_BETTER):
            raise Refused(f"{place}: higher_is_better of {where} is {str(one.higher_is_better).lower()}")
        # a data set's main metric is one of the others; raises UserError for an unknown set
        name = evaluation.parse_dataset(one.dataset)[0].metric if one.metric == "main" else one.metric
        known = again.get((name, one.score))
        if known is None and name in _STATED | _STATED_OF.get(family, frozenset()):
            continue
        if known is None:
            raise Refused(f"score: {where} does not follow from its per-example results")
        allowed = DETECTION_TOLERANCE if one.metric in ("auroc", "average_precision") else SCORE_TOLERANCE
        if not abs(known[0] - one.value) <= allowed:
            raise Refused(f"score: {where} is {one.value:.6g}, and its per-example results give {known[0]:.6g}")
        if one.n != known[1]:
            raise Refused(f"n: {where} says {one.n:,} examples, and its per-example results have {known[1]:,}")
        given.add((one.dataset, one.task, one.metric, one.score))
    if omitted := sorted(one for one in again.keys() - seen if one[0] == FAMILIES[family].main):
        raise Refused(f"score: {key}: has no {' '.join(omitted[0])}, which its per-example results give")
    return len(records), given


def _again(run: RunStore, key: str, rows: int) -> Scores:
    """Return the scores that the outcomes of an evaluation give; rows: examples of all its metrics, as it says."""
    try:
        outcomes = run.outcomes(key, _HEADER_BYTES + _ROW_BYTES * rows)
        if odd := [name for name, array in outcomes.items() if array.ndim != 1 or len(array) > rows]:
            raise ValueError(f"{odd[0]} should be a list of at most {rows:,} numbers")
        return recompute_scores(outcomes)
    except Damaged as error:
        raise Refused(f"evaluations/{key}/outcomes.npz: {error.reason}") from error
    except (ValueError, KeyError, IndexError, TypeError, FloatingPointError) as error:
        raise Refused(f"evaluations/{key}/outcomes.npz: {one_line(error)}") from error
