"""Lines of methods over a quantity, with error bars over seeds, which figures of scores share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from reports.figures.chosen import OTHER, line_styles, named_in
from reports.figures.figure_style import MARK, Sheet, broken, medium, name_ends, room_for_names
from reports.results import Results
from reports.statistics.paired import Floats, mean, std

Styles = Mapping[str, Mapping[str, Any]]  #: method -> look of its line, see `line_styles`
Lines = Mapping[str, Floats]  #: method -> [3, n]: x, means over seeds, half lengths of bars, NaN for none


def lines_over(scores: Iterable[tuple[str, float, float]]) -> dict[str, Floats]:
    """Return the lines of (method, x, score): means over seeds with standard deviations, which are NaN for one seed."""
    of: dict[str, dict[float, list[float]]] = {}
    for method, x, score in scores:
        of.setdefault(method, {}).setdefault(x, []).append(score)
    return {
        method: np.array(
            [(x, mean(own), math.nan if (bar := std(own)) is None else bar) for x, own in sorted(values.items())]
        ).T
        for method, values in of.items()
    }


def sheet_of_lines(
    results: Results, panels: Sequence[Iterable[str]], titles: Sequence[str] = ()
) -> tuple[Sheet, Styles]:
    """Return a sheet of panels for the lines of these methods, with room for their names, and the lines' looks."""
    shown = {method for panel in panels for method in panel}
    styles = line_styles(results, [method for method in results.methods if method in shown])
    room = room_for_names([results.named(method) for method in named_in(styles)])
    tall = 3.6 if medium().width is None else max(2.2, 0.8 + medium().line * len(named_in(styles)))
    margins = 0.8, room, 0.5, 0.3 if titles else 0.15
    return Sheet((), len(panels), 4.2 + room, tall, margins, titles=titles), styles


def draw_lines(
    panel: Axes,
    results: Results,
    styles: Styles,
    lines: Lines,
    others: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> None:
    """Draw one line per method with its bars, in the order of `styles`, and names at the ends (x, y).

    The panel's limits must be set before. Lines without a name have no bars.
    """
    for method in (method for method in styles if method in lines):
        panel.plot(*lines[method][:2], **MARK, **styles[method])
    draw_bars(panel, styles, lines)
    name_lines(panel, results, styles, {**ends_of(lines), **others})


def ends_of(lines: Lines) -> dict[str, tuple[float, float]]:
    """Where each line ends, (x, y)."""
    return {method: (line[0][-1], line[1][-1]) for method, line in lines.items()}


def draw_bars(panel: Axes, styles: Styles, lines: Lines) -> None:
    """Draw the bars of all lines that have a name."""
    named = [method for method in styles if method in lines and styles[method] is not OTHER]
    bars = [((x, y - bar), (x, y + bar)) for method in named for x, y, bar in lines[method].T]
    colours = [styles[method]["color"] for method in named for _ in lines[method].T]
    panel.add_collection(LineCollection(bars, colors=colours, linewidths=1), autolim=False)  # one draws faster


def name_lines(panel: Axes, results: Results, styles: Styles, ends: Mapping[str, tuple[float, float]]) -> None:
    """Write the names of those lines that have one next to the panel; `ends` as `ends_of` gives them."""
    name_ends(panel, results, {method: ends[method] for method in named_in(styles) if method in ends})


def beside(sheet: Sheet, label: str) -> str:
    """The label of a vertical axis, broken into lines that are not longer than the axis, or on a screen the panel."""
    return broken(label, sheet.height - (0.6 if medium().width else 0.3))


def limits(lines: Iterable[Floats], others: Iterable[float] = ()) -> tuple[float, float]:
    """Limits of an axis around lines [3, n] and other scores, with a little room."""
    ends = [np.concatenate((y - np.nan_to_num(bar), y + np.nan_to_num(bar))) for _, y, bar in lines]
    values = np.concatenate((*ends, list(others)))
    low, high = float(values.min()), float(values.max())
    room = 0.08 * (high - low or abs(high) or 1.0)
    return low - room, high + room


def bars(results: Results) -> str:
    """The sentence of a caption about bars."""
    return " Bars: one standard deviation over seeds." if len(results.plan["seeds"]) > 1 else " One seed: no bars."
