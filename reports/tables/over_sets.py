"""The tables over data sets: interquartile means, probability of improvement, all pairs of methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reports.measure import Measure, lead, record_measure
from reports.results import Results
from reports.statistics.chance import learned_values
from reports.statistics.many_sets import (
    DRAWS,
    improvement_interval,
    interquartile_interval,
)
from reports.statistics.paired import MINIMUM, Floats, Values, pairwise
from reports.tables.footnotes import method_row, noted, planned_seeds
from reports.tables.table import Cell, Column, Row, Table
from reports.vocabulary import family, kind_of, main_metric

_SCORES = (
    "Scores are (score - chance) / (1 - chance): 0 is chance, 1 is perfect on every data set. Data sets that a method "
    "lacks and finding noise are left out. Interquartile mean: of all seeds and data sets, without the lowest and the "
    "highest quarter. Better: the share of pairs of runs, one of each method, in which this method's is better, mean "
    "over data sets."
)
_DRAWS = (
    f"Intervals (95 %): percentiles of {DRAWS} bootstrap draws of seeds, each with all of its data sets, because one "
    f"training gives them all. They need {MINIMUM} seeds, and with few seeds they are too narrow."
)


@dataclass(frozen=True)
class Scored:
    """The main metric of a task on a data set, with the values of the compared methods under one noise."""

    dataset: str
    measure: Measure
    values: Values  #: negative if lower is better
    about_pairs: bool  #: whether it measures finding the corrupted training pairs

    def gaps(self, labels: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """[m, m]: how much better the row's method is than the column's, and whether significantly (Holm, all pairs).

        NaN and False for methods that share no seed.
        """
        tests = pairwise(self.values)
        own = np.ix_(*[[labels.index(label) for label in tests.labels]] * 2)
        gaps, shown = np.full((len(labels),) * 2, np.nan), np.zeros((len(labels),) * 2, bool)
        gaps[own], shown[own] = tests.gap, tests.shown
        return gaps, shown

    def above_chance(self, label: str) -> dict[int, float]:
        """Seed -> the share of the way from chance to perfect; the value itself where the chance is not known."""
        chance = self.measure.column.chance
        if chance is None or chance >= 1 or not self.measure.column.higher_is_better:
            return dict(self.values.get(label, {}))
        return {seed: (one - chance) / (1 - chance) for seed, one in self.values.get(label, {}).items()}


def block_of(dataset: str) -> str:
    """The independent block of a data set: sets that share images or styles are one.

    Those have one name before the slash, or are NAME and NAME_captions, the same images with captions.
    """
    return dataset.partition("/")[0].removesuffix("_captions")


def main_scores(results: Results, noise: str) -> list[Scored]:
    """The main metric of every known task on every data set that all runs were measured on alike."""
    scores = []
    for dataset, task, metric in results.measures:
        measure, kind = record_measure(results, dataset, task, metric), kind_of(family(task))
        if metric == main_metric(task) and measure.comparable:
            values = learned_values(results, noise, measure, results.ranked)
            scores.append(Scored(dataset, measure, values, kind is not None and kind.needs_noise))
    return scores


def means_table(results: Results, scores: Mapping[str, Sequence[Scored]]) -> Table:
    """One line a method and noise: interquartile mean, and probability of being better than the baseline."""
    columns = (
        Column("interquartile mean", "interquartile mean", "", description="of scores above chance"),
        Column("improvement", f"better than {results.baseline}", "", higher_is_better=None),
    )
    rows, counts = list[Row](), list[str]()
    for noise in results.noises:
        matrices = above_chance(scores[noise])
        counts.append(f"{noise}: {min((one.shape[1] for _, one in matrices.values()), default=0)} data sets and tasks")
        own = (label for label in results.ranked if label in matrices)
        rows += [method_row(results, label, _means(results, matrices, noise, label), noise) for label in own]
    text = "What all data sets say together."
    bold = f"Over {planned_seeds(results)}; nothing is bold, because data sets share seeds and images."
    notes = ("; ".join(counts) + ".", _SCORES, _DRAWS, bold)
    return noted(results, "means", "Over data sets", columns, rows, text, *notes)


def above_chance(scores: Sequence[Scored]) -> dict[str, tuple[list[int], Floats]]:
    """Label -> its seeds and its scores [seeds, data sets], on the data sets that all methods with any score have."""
    of_models = [one for one in scores if not one.about_pairs and one.values]
    labels = list(dict.fromkeys(label for one in of_models for label in one.values))
    shared = [one for one in of_models if all(label in one.values for label in labels)]
    matrices = {}
    for label in labels if shared else ():
        columns = [one.above_chance(label) for one in shared]
        seeds = sorted(set.intersection(*(set(column) for column in columns)))
        if seeds:
            matrices[label] = seeds, np.array([[column[seed] for column in columns] for seed in seeds])
    return matrices


def _means(
    results: Results, matrices: Mapping[str, tuple[list[int], Floats]], noise: str, label: str
) -> Iterator[Cell]:
    first, (seeds, own) = lead(results.of(label, noise)), matrices[label]
    yield _with_interval(first, interquartile_interval(own), len(seeds))
    others, base = matrices.get(results.baseline, ([], own))
    shared = sorted({*seeds} & {*others})
    if label == results.baseline or not shared:
        yield first
    else:
        pair = own[[seeds.index(seed) for seed in shared]], base[[others.index(seed) for seed in shared]]
        yield _with_interval(first, improvement_interval(*pair), len(shared))


def _with_interval(first: Cell, ends: tuple[float, float, float], n: int) -> Cell:
    value, low, high = ends
    if n < MINIMUM:
        return replace(first, value=value, text="", also={"n": n})
    small = f"{100 * low:.1f} to {100 * high:.1f}"
    return replace(first, value=value, text="", small=small, also={"low": low, "high": high, "n": n})
