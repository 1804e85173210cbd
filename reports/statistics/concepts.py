"""Intervals over test examples: over concepts with all of their images and captions, at fixed seeds and over seeds too.

The first answers another question than intervals over seeds: what other test concepts would show of these checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bench.catalogue.families.random_guess import RECALL_KS, TOP_KS, hit_probability
from bench.store import Damaged
from reports.headlines import Named
from reports.results import RunResult
from reports.statistics.components import interval_over_both
from reports.statistics.paired import LEVEL, Floats

DRAWS = 1000  #: of the bootstrap
MEANING = (
    "over concepts: 95 %, test concepts resampled with all of their images and captions, at these seeds; it describes "
    "these checkpoints"
)
MEANING_OF_BOTH = (
    "over both: 95 %, other seeds and other test concepts together, by variance components; it describes the methods"
)
_RECALLS = tuple(f"{side}_r{k}" for side in ("i2t", "t2i") for k in RECALL_KS)
_PARTS = {"mean_recall": _RECALLS, "mean_r1": ("i2t_r1", "t2i_r1")}  #: metrics that are means of others
_COUNTS = ("better", "tied_wrong", "tied_right")
_PLACES = tuple(str(k) for k in {*RECALL_KS, *TOP_KS})
Arrays = Mapping[str, np.ndarray]


class Outcomes:
    """The stored per-example results of the weights that a row reads of a run, read once."""

    def __init__(self, run: RunResult, protocol: str) -> None:
        self.damaged: list[str] = []  #: a sentence for each file of outcomes that cannot be read
        self._run = run
        self._keys: dict[tuple[str, str], str] = {}
        for key in run.stored.evaluations() if run.records else ():
            for record in run.stored.records_of(key)[:1]:
                if record.at == run.at and record.protocol == protocol:
                    self._keys[record.dataset, record.task] = key
        self._arrays: dict[tuple[str, str], Arrays] = {}

    def of(self, dataset: str, task: str) -> Arrays:
        """The arrays of a task; {} if none are stored."""
        at = dataset, task
        if at not in self._arrays:
            try:
                self._arrays[at] = self._run.stored.outcomes(self._keys[at]) if at in self._keys else {}
            except Damaged as error:
                self._arrays[at] = {}
                self.damaged.append(
                    f"{self._run.method}, {self._run.noise}, seed {self._run.seed}, lacks per-example results: {error}."
                )
        return self._arrays[at]

    def concepts(self, dataset: str) -> np.ndarray | None:
        """The concept of each image of a data set, int [images]; None if no task on it names concepts."""
        tasks = (task for name, task in self._keys if name == dataset and task.endswith("/concept"))
        labels = (self.of(dataset, task).get("label") for task in tasks)
        return next((one for one in labels if one is not None), None)

    def hits(self, named: Named, score: str) -> list[tuple[Floats, np.ndarray]] | None:
        """The parts of a metric, each with its outcomes and their concepts; None if it is not a mean of outcomes."""
        dataset, task, metric = named
        arrays, concepts = self.of(dataset, task), self.concepts(dataset)
        if concepts is None:
            return None
        parts = [_part(arrays, score, part, concepts) for part in _PARTS.get(metric, (metric,))]
        complete = [one for one in parts if one is not None and len(one[0]) == len(one[1]) > 0]
        return complete if len(complete) == len(parts) else None


def _part(arrays: Arrays, score: str, metric: str, concepts: np.ndarray) -> tuple[Floats, np.ndarray] | None:
    """The outcomes of one metric and the concept of each; None if they are not stored."""
    if metric == "accuracy":
        return (arrays["correct"].astype(np.float64), concepts) if "correct" in arrays else None
    side, _, k = metric.rpartition("_r") if metric in _RECALLS else ("", "", metric.removeprefix("top"))
    prefix = f"{score}_{side}_" if side else f"{score}_"
    if k not in _PLACES or any(prefix + name not in arrays for name in _COUNTS):
        return None
    better, tied_wrong, tied_right = (arrays[prefix + name] for name in _COUNTS)
    of = concepts[arrays[f"{score}_owner"]] if side == "t2i" else concepts
    return hit_probability(better, tied_wrong, tied_right, int(k)), of


@dataclass(frozen=True)
class Examples:
    """What the per-example results say of a difference."""

    over_concepts: tuple[float, float]  #: 95 %, at fixed seeds
    over_both: tuple[float, float] | None  #: 95 %, over seeds and concepts; None with one seed or concept


def over_examples(pairs: Sequence[tuple[Outcomes, Outcomes]], named: Named, scores: tuple[str, str]) -> Examples | None:
    """The intervals of a difference, mean over pairs of runs of one seed, that need its examples.

    `scores`: what each of the two methods is scored by. None if outcomes or concepts are not stored. Raises Damaged if
    they cannot be read.
    """
    sums: list[list[Floats]] = []
    for own, other in pairs:
        a, b = own.hits(named, scores[0]), other.hits(named, scores[1])
        if a is None or b is None or any(len(x[1]) != len(y[1]) for x, y in zip(a, b, strict=True)):
            return None
        totals = [(x[0] - y[0], x[1]) for x, y in zip(a, b, strict=True)]
        sums.append([_by_concept(values, concepts) for values, concepts in totals])
        counts = [_by_concept(np.ones(len(concepts)), concepts) for _, concepts in totals]
    if not sums:
        return None
    parts = [np.stack(of_part) for of_part in zip(*sums, strict=True)]  # each [seeds, concepts]
    draws = concept_draws(len(counts[0]))
    drawn = [(draws @ part.mean(axis=0)) / (draws @ count) for part, count in zip(parts, counts, strict=True)]
    low, high = np.quantile(np.mean(drawn, axis=0), [LEVEL / 2, 1 - LEVEL / 2])
    values = np.mean([contributions(*one) for one in zip(parts, counts, strict=True)], axis=0)
    return Examples((float(low), float(high)), interval_over_both(values) if min(values.shape) > 1 else None)


def contributions(sums: Floats, counts: Floats) -> Floats:
    """What each concept adds to a seed's mean over examples: [seeds, concepts], in the mean's own unit.

    sums [seeds, concepts] over the examples of each concept, counts [concepts] of them. The mean over concepts is the
    mean over examples; a concept's deviation counts by its examples, as in the linearisation of a ratio.
    """
    mean = sums.sum() / (len(sums) * counts.sum())
    return np.asarray(mean + (sums - mean * counts) / counts.mean())


def _by_concept(values: Floats, concepts: np.ndarray) -> Floats:
    """Sums over the examples of each concept."""
    _, places = np.unique(concepts, return_inverse=True)
    return np.bincount(places, values).astype(np.float64)


@lru_cache(maxsize=8)
def concept_draws(concepts: int) -> Floats:
    """Return [DRAWS, concepts]: how often each is drawn, the same in every report."""
    draws = np.random.default_rng(concepts).multinomial(concepts, np.full(concepts, 1 / concepts), DRAWS)
    return draws.astype(np.float64)
