"""The gain over the baseline against the budget: where a comparison of early training ends and robustness begins."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from reports.figures.chosen import about_others, line_styles, named_in
from reports.figures.figure_style import Sheet, finish, plain, room_for_names
from reports.figures.lines import beside, draw_lines, height, limits, name_lines
from reports.figures.pictures import Picture
from reports.results import Results
from reports.statistics.paired import Floats
from reports.statistics.regimes import Regimes, regimes

POINTS = 100  #: a share in points


def regimes_picture(results: Results) -> Picture | None:
    """One panel a noise: gains over budgets, on a logarithmic axis. None with one budget, or without enough seeds."""
    panels = [(one, lines) for one in regimes(results) if (lines := _lines(results, one))]
    if not panels:
        return None
    methods = [label for label in results.methods if any(label in lines for _, lines in panels)]
    styles = line_styles(results, methods)
    room = room_for_names(named_in(styles))
    tall = height(3.6, len(named_in(styles)), 0.65)
    titles = [one.noise for one, _ in panels]
    sheet = Sheet((), len(panels), 4.2 + room, tall, (0.8, room, 0.5, 0.3), titles=titles)
    column = panels[0][0].contrasts[0].measure.column
    for place, (one, lines) in enumerate(panels):
        panel = sheet.panel(place, xlabel=f"budget, {one.unit}")
        panel.set_ylabel(beside(sheet, plain(f"{column.label}: better by, points")))
        panel.axhline(0, color="#888888", linewidth=0.8)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(FixedLocator(list(one.budgets)))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xticklabels([f"{budget:g}" for budget in one.budgets])
        panel.set_ylim(limits(lines.values(), [0.0]))
        ends = draw_lines(panel, styles, {label: lines[label] for label in styles if label in lines})
        name_lines(panel, results, styles, ends)
    caption = (
        f"{column.label}: mean difference to {results.baseline} over seeds against the budget of a run, each with its "
        "own schedule. Bars: 95 % intervals, not adjusted." + about_others(results, styles)
    )
    return finish("regimes", caption, sheet.figure)


def _lines(results: Results, one: Regimes) -> dict[str, Floats]:
    """Return label -> [3, n], budgets, gains and half intervals in points, of the methods and of the oracle."""
    lines: dict[str, Floats] = {}
    for label in (*results.ranked, *filter(None, [results.oracle])):
        gains = [contrast.gain(label) for contrast in one.contrasts]
        if label != results.baseline and any(gains):
            points = [
                (budget, POINTS * gain.value, POINTS * (gain.high - gain.value))
                for budget, gain in zip(one.budgets, gains, strict=True)
                if gain
            ]
            lines[label] = np.array(points).T
    return lines
