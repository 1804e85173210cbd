"""Which of many rows a figure highlights: the baseline, the bounds and the best of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from reports.figures.pictures import style_of
from reports.headlines import primary
from reports.measure import cell, record_measure
from reports.results import Results, uses

BEST = 4  #: methods that are highlighted besides the baseline and the bounds
NAMED = 24  #: lines that have room for their names next to a panel
#: the look of lines without a name
OTHER: Mapping[str, Any] = {"color": "#c4c4c4", "dashes": (), "marker": "."}


def chosen_of(results: Results, count: int = BEST) -> list[str]:
    """Return the baseline, the bounds and the best others on the primary metric, in the suite's order."""
    best = _best_first(results, list(results.noises))[:count]
    bounds = [label for label, entry in results.methods.items() if uses(entry)]
    return [label for label in results.methods if label in {results.baseline, *best, *bounds}]


def baseline_and_best(results: Results, noise: str) -> list[str]:
    """The baseline, and the best of the other compared methods on the primary metric under a noise."""
    return [results.baseline, *_best_first(results, [noise])[:1]]


def _best_first(results: Results, noises: Sequence[str]) -> list[str]:
    """The compared methods besides the baseline, by their mean primary metric over these noises."""
    measure = record_measure(results, *primary(results))
    means: dict[str, float] = {}
    for label, entry in results.ranked.items():
        cells = [cell(results.of(label, noise), measure, entry["score"]) for noise in noises]
        values = [one.value for one in cells if one.value is not None]
        if values and label != results.baseline:
            means[label] = fmean(values)
    return sorted(means, key=means.__getitem__, reverse=measure.column.higher_is_better is not False)


def line_styles(results: Results, methods: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the look of each line: its own, or `OTHER` if there are too many to name and it is not highlighted.

    Lines without a name come first, so that they are drawn below the others.
    """
    chosen = methods if len(methods) <= NAMED else chosen_of(results)
    others: dict[str, Mapping[str, Any]] = {method: OTHER for method in methods if method not in chosen}
    return others | {method: style_of(results, method) for method in methods if method in chosen}


def named_in(styles: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The methods whose lines have a name."""
    return [method for method, style in styles.items() if style is not OTHER]


def about_others(results: Results, styles: Mapping[str, Mapping[str, Any]]) -> str:
    """A sentence for the caption about lines without a name; "" if there are none."""
    count = len(styles) - len(named_in(styles))
    if not count:
        return ""
    return (
        f" In grey: {count} methods that are neither {results.named(results.baseline)} nor bounds nor among the "
        f"{BEST} best others on the primary metric."
    )
