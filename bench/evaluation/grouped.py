"""Metrics over classes and groups of images, with their intervals over images.

These are main metrics of the DataComp suite: recall averaged over classes, macro F1 (iWildCam), accuracy in the worst
group (FMoW, Dollar Street, GeoDE). A group or class without images is left out, in the value and in every bootstrap
replicate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bench.arrays import Floats, Ints
from bench.evaluation.bootstrap import percentile_interval, resamples

WithInterval = tuple[float, tuple[float, float]]  #: a value and its 95 % interval


def mean_per_class(hits: Floats, labels: Ints) -> WithInterval:
    """Return the mean over classes of the share of hits; hits float [n] in [0, 1], labels int [n]."""
    of_class = _members(labels, np.unique(labels))
    return _with_interval(lambda weights: np.nanmean(_shares(of_class, weights, hits), axis=1), len(hits))


def worst_group(hits: Floats, groups: Ints) -> WithInterval:
    """Return the smallest share of hits of any group; hits float [n] in [0, 1], groups int [n]."""
    of_group = _members(groups, np.unique(groups))
    return _with_interval(lambda weights: np.nanmin(_shares(of_group, weights, hits), axis=1), len(hits))


def macro_f1(labels: Ints, predicted: Ints) -> WithInterval:
    """Return the mean F1 of the classes that occur among `labels` [n]; predicted [n] may hold other classes."""
    classes = np.unique(labels)
    true, guessed, right = _members(labels, classes), _members(predicted, classes), labels == predicted

    def value(weights: Floats) -> Floats:
        count = _sums(weights, true)
        with np.errstate(invalid="ignore"):
            f1 = 2 * _sums(weights * right, true) / (count + _sums(weights, guessed))
        means: Floats = np.nanmean(np.where(count > 0, f1, np.nan), axis=1)
        return means

    return _with_interval(value, len(labels))


def _members(groups: Ints, known: Ints) -> Any:
    """Return a sparse matrix [n, k]: 1 where a row is of one of the k `known` groups, which rise."""
    rows = np.flatnonzero(np.isin(groups, known))
    return csr_array((np.ones(len(rows)), (rows, np.searchsorted(known, groups[rows]))), (len(groups), len(known)))


def _shares(members: Any, weights: Floats, hits: Floats) -> Floats:
    """Return the share of hits [r, k]; NaN in a group of weight 0."""
    with np.errstate(invalid="ignore"):
        return _sums(weights * hits, members) / _sums(weights, members)


def _sums(values: Floats, members: Any) -> Floats:
    """Sum values [r, n] by group: [r, k]."""
    return np.ascontiguousarray(values @ members)


def _with_interval(value: Callable[[Floats], Floats], n: int) -> WithInterval:
    """Apply `value`, which maps weights [r, n] to [r], to weights 1 and to bootstrap resamples."""
    point = float(value(np.ones((1, n)))[0])
    return point, percentile_interval(np.concatenate([value(block) for block in resamples(n)]))
