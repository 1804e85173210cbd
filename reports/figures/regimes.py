"""The gain over the baseline by budget: where early training ends and a comparison of robustness begins."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from reports.figures.chosen import about_others
from reports.figures.figure_style import finish, plain
from reports.figures.lines import beside, draw_lines, limits, sheet_of_lines
from reports.figures.pictures import Picture
from reports.results import Results
from reports.statistics.paired import Floats
from reports.statistics.regimes import Regimes, regimes


def regimes_picture(results: Results) -> Picture | None:
    """One panel per noise: gains over budgets, on a logarithmic axis. None with one budget, or without enough seeds."""
    panels = [(one, lines) for one in regimes(results) if (lines := _lines(results, one))]
    if not panels:
        return None
    sheet, styles = sheet_of_lines(results, [lines for _, lines in panels], [one.noise for one, _ in panels])
    column = panels[0][0].contrasts[0].measure.column
    for place, (one, lines) in enumerate(panels):
        panel = sheet.panel(place, xlabel=f"budget, {one.unit}")
        panel.set_ylabel(beside(sheet, plain(f"{column.label}: better by, points")))
        panel.axhline(0, color="#888888", linewidth=0.8)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(FixedLocator(list(one.budgets)))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xticklabels(list(one.numbers.values()))
        panel.set_ylim(limits(lines.values(), [0.0]))
        draw_lines(panel, results, styles, lines)
    caption = (
        f"{column.label}: mean difference from {results.named(results.baseline)} over seeds, by the budget of a run, "
        "each with its own schedule. Bars: 95 % intervals, not adjusted." + about_others(results, styles)
    )
    return finish("regimes", caption, sheet.figure)


def _lines(results: Results, one: Regimes) -> dict[str, Floats]:
    """Return label -> [3, n], budgets, gains and half intervals in points, of the methods and of the oracle."""
    lines: dict[str, Floats] = {}
    for label in (*results.ranked, *filter(None, [results.oracle])):
        gains = [contrast.gain(label) for contrast in one.contrasts]
        if label != results.baseline and any(gains):
            points = [
                (budget, 100 * gain.value, 100 * (gain.high - gain.value))
                for budget, gain in zip(one.budgets, gains, strict=True)
                if gain
            ]
            lines[label] = np.array(points).T
    return lines
