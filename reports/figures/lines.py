"""Lines of methods over a quantity, with bars over seeds: what the figures of scores share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from reports.figures.chosen import OTHER, named_in
from reports.figures.figure_style import MARK, Sheet, broken, medium, name_ends
from reports.results import Results
from reports.statistics.paired import Floats


def draw_lines(
    panel: Axes, styles: Mapping[str, Mapping[str, Any]], of_methods: Mapping[str, Floats]
) -> dict[str, tuple[float, float]]:
    """Draw means over seeds as a line a method, with bars of one standard deviation; return their ends.

    of_methods: float64 [3, n], x, means and standard deviations, which are NaN for one seed. Lines without a name have
    no bars.
    """
    ends, ends_of_bars, colours = {}, [], []
    for method, (x, y, bar) in of_methods.items():
        style = styles[method]
        panel.plot(x, y, **MARK, **style)
        ends[method] = (x[-1], y[-1])
        if style is not OTHER:
            ends_of_bars += [[(a, b - c), (a, b + c)] for a, b, c in zip(x, y, bar, strict=True)]
            colours += [style["color"]] * len(x)
    panel.add_collection(LineCollection(ends_of_bars, colors=colours, linewidths=1), autolim=False)  # one draws faster
    return ends


def name_lines(
    panel: Axes,
    results: Results,
    styles: Mapping[str, Mapping[str, Any]],
    ends: Mapping[str, tuple[float, float]],
) -> None:
    """Write the names of those lines that have one beside the panel; `ends` (x, y) as `draw_lines` returns them."""
    name_ends(panel, results, {method: ends[method] for method in named_in(styles) if method in ends})


def height(screen: float, methods: int, around: float) -> float:
    """Inches of a panel whose lines end in names: in a paper no more than these need, with `around` above and below."""
    return screen if medium().width is None else max(2.2, around + medium().line * methods)


def beside(sheet: Sheet, label: str) -> str:
    """The label of an upright axis, broken into lines that are not longer than the axis, or on a screen the panel."""
    return broken(label, sheet.height - (0.6 if medium().width else 0.3))


def limits(lines: Iterable[Floats], others: Iterable[float] = ()) -> tuple[float, float]:
    """Limits of an axis around lines [3, n] (x, means, deviations) and other scores, with a little room."""
    ends = [np.concatenate((y - np.nan_to_num(spread), y + np.nan_to_num(spread))) for _, y, spread in lines]
    values = np.concatenate((*ends, [one for one in others if math.isfinite(one)]))
    low, high = float(values.min()), float(values.max())
    room = 0.08 * (high - low or abs(high) or 1.0)
    return low - room, high + room


def bars(results: Results) -> str:
    """The sentence of a caption about bars."""
    return " Bars: one standard deviation over seeds." if len(results.plan["seeds"]) > 1 else " One seed: no bars."
