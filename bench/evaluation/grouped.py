"""Metrics over classes and groups of images, with their intervals over images.

These are main metrics of the DataComp suite: recall averaged over classes, macro F1 (iWildCam), accuracy in the worst
group (FMoW, Dollar Street, GeoDE). A group or class without images is left out, in the value and in every bootstrap
replicate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.arrays import Floats, Ints
from bench.evaluation.bootstrap import interval, resamples

Measured = tuple[float, tuple[float, float]]  #: a value and its 95 % interval


@dataclass(frozen=True)
class _Groups:
    """An order of the rows in which those of a group follow each other."""

    order: Ints  #: [n]
    starts: Ints  #: [groups that have rows] the first position of each group in `order`

    @classmethod
    def of(cls, groups: Ints) -> _Groups:
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        return cls(order, np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])))

    def sums(self, values: Floats) -> Floats:
        """Sum values [r, n] by group: [r, groups that have rows]."""
        sums: Floats = np.add.reduceat(values[:, self.order], self.starts, axis=1)
        return sums


def mean_per_class(hits: Floats, labels: Ints) -> Measured:
    """Return the mean over classes of the share of hits; hits float [n] in [0, 1], labels int [n]."""
    groups = _Groups.of(labels)

    def value(weights: Floats) -> Floats:
        return _nanmean(_shares(groups, weights, hits))

    return _with_interval(value, len(hits))


def worst_group(hits: Floats, groups: Ints) -> Measured:
    """Return the smallest share of hits of any group; hits float [n] in [0, 1], groups int [n]."""
    rows = _Groups.of(groups)

    def value(weights: Floats) -> Floats:
        lowest: Floats = np.nanmin(_shares(rows, weights, hits), axis=1)
        return lowest

    return _with_interval(value, len(hits))


def macro_f1(labels: Ints, predicted: Ints) -> Measured:
    """Return the mean F1 of the classes that occur among `labels` [n]; predicted [n] may hold other classes."""
    classes = np.unique(labels)
    right = (labels == predicted).astype(np.float64)
    true, places = _Groups.of(labels), np.searchsorted(classes, predicted)
    known = classes[np.minimum(places, len(classes) - 1)] == predicted
    column_of = np.where(known, places, len(classes))  # the last column: classes that no label has
    by_prediction, columns = _Groups.of(column_of), np.unique(column_of)

    def value(weights: Floats) -> Floats:
        count, hits = true.sums(weights), true.sums(weights * right)
        times = np.zeros((len(weights), len(classes) + 1))
        times[:, columns] = by_prediction.sums(weights)
        with np.errstate(invalid="ignore"):
            f1 = 2 * hits / (count + times[:, :-1])
        return _nanmean(np.where(count > 0, f1, np.nan))

    return _with_interval(value, len(labels))


def _shares(groups: _Groups, weights: Floats, hits: Floats) -> Floats:
    """Return the share of hits [r, groups]; NaN in a group of weight 0."""
    with np.errstate(invalid="ignore"):
        return groups.sums(weights * hits) / groups.sums(weights)


def _nanmean(values: Floats) -> Floats:
    means: Floats = np.nanmean(values, axis=1)
    return means


def _with_interval(value: Callable[[Floats], Floats], n: int) -> Measured:
    """Apply `value`, which maps weights [r, n] to [r], to weights 1 and to bootstrap resamples."""
    point = float(value(np.ones((1, n)))[0])
    return point, interval(np.concatenate([value(block) for block in resamples(n)]))
