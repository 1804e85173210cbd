"""Scores against noise rates and against cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from reports.figures.chosen import about_others
from reports.figures.figure_style import MARK, finish, plain
from reports.figures.lines import (
    Lines,
    Styles,
    bars,
    beside,
    draw_bars,
    draw_lines,
    ends_of,
    limits,
    lines_over,
    name_lines,
    sheet_of_lines,
)
from reports.figures.pictures import Picture
from reports.headlines import Named, primary
from reports.measure import record_measure, values_by_seed
from reports.results import Results
from reports.tables.suite_tables import spent
from reports.tables.table import scale
from reports.vocabulary import detail, metric_label

SAME = 0.9  #: costs whose smallest is more than this share of the largest are about the same


def against_noise(results: Results) -> Picture | None:
    """The primary metric over the rate, one panel per kind of noise and budget; None without two rates."""
    measure, label = record_measure(results, *primary(results)), _label(results, primary(results))
    panels: dict[tuple[str, float], Lines] = {}
    blocks = {noise: (entry["kind"], results.budget(noise)) for noise, entry in results.noises.items()}
    for kind, budget in dict.fromkeys(block for block in blocks.values() if block[0]):
        noises = [noise for noise, block in blocks.items() if block in ((kind, budget), (None, budget))]
        if len(noises) > 1:
            panels[kind, budget] = lines_over(
                (method, 100 * results.noises[noise]["rate"], 100 * score)
                for noise in noises
                for method, own in values_by_seed(results, noise, measure, results.methods).items()
                for score in own.values()
            )
    panels = {block: lines for block, lines in panels.items() if lines}
    if not panels:
        return None
    sheet, styles = sheet_of_lines(results, list(panels.values()))
    titles = {entry["kind"]: entry["title"] for entry in results.noises.values()}
    several = len({budget for _, budget in panels}) > 1
    for place, ((kind, budget), lines) in enumerate(panels.items()):
        title = titles[kind] + f" ({results.told(budget)})" * several
        panel = sheet.panel(place, xlabel=f"{plain(title)}, % of pairs", ylabel=beside(sheet, label))
        _draw_with_seaborn(panel, styles, lines)
        draw_bars(panel, styles, lines)
        panel.set_ylim(limits(lines.values()))
        name_lines(panel, results, styles, ends_of(lines))
    caption = f"{label} against the share of corrupted pairs; the axis need not begin at 0."
    return finish("noise", caption + bars(results) + about_others(results, styles), sheet.figure)


def against_cost(results: Results) -> Picture | None:
    """The score at every evaluated share of a run against the training FLOPs spent by then.

    None if costs are unknown, or if all runs spent about the same and were evaluated only at the end.
    """
    measured = primary(results)
    scores: dict[str, list[tuple[str, float, float]]] = {noise: [] for noise in results.noises}
    costs: dict[str, list[tuple[str, float, float]]] = {noise: [] for noise in results.noises}
    for run in (run for run in results.runs if run.ledger):
        before = spent(run.ledger, "flops") - run.ledger["flops"]
        for at in {key[0] for key in run.records}:
            if record := run.find(*measured, results.methods[run.method]["score"], at):
                scores[run.noise].append((run.method, at, 100 * record.value))
                costs[run.noise].append((run.method, at, before + at * run.ledger["flops"]))
    known = [cost for own in costs.values() for cost in own]
    spent_by = [flops for *_, flops in known]
    if not known or (all(at == 1 for _, at, _ in known) and min(spent_by) > SAME * max(spent_by)):
        return None
    panels: dict[str, Lines] = {}
    for noise, own in scores.items():
        x = lines_over(costs[noise])
        panels[noise] = {method: np.stack((x[method][1], *line[1:])) for method, line in lines_over(own).items()}
    everything = [line for lines in panels.values() for line in lines.values()]
    right = max(line[0].max() for line in everything) or 1.0
    size, prefix = scale(right, "flops")
    sheet, styles = sheet_of_lines(results, list(panels.values()), list(panels))
    for place, lines in enumerate(panels.values()):
        panel = sheet.panel(place, xlabel=f"training, {prefix}FLOP, reference run included")
        panel.set_ylabel(beside(sheet, _label(results, measured)))
        panel.set(xlim=(0, 1.04 * right / size), ylim=limits(everything))
        shown = {method: line / np.array([[size], [1], [1]]) for method, line in lines.items()}
        draw_lines(panel, results, styles, shown)
    caption = (
        f"{_label(results, measured)} of the weights along each run by the FLOPs spent until then; the axis need not "
        "begin at 0. The learning rate has decayed only at the last point, so earlier points are not shorter runs."
    )
    return finish("cost", caption + bars(results) + about_others(results, styles), sheet.figure)


def _draw_with_seaborn(panel: Axes, styles: Styles, lines: Lines) -> None:
    """Draw a line for each method. Seaborn would also compute means and bars, three times as slowly."""
    shown = [method for method in styles if method in lines]
    points = [(method, x, y) for method in shown for x, y, _ in lines[method].T]
    colours = [styles[method]["color"] for method in shown]
    look: Any = {"hue_order": shown, "palette": colours, "estimator": None, "legend": False, **MARK}
    sns.lineplot(pd.DataFrame(points, columns=["method", "x", "mean"]), x="x", y="mean", hue="method", ax=panel, **look)
    for line, method in zip(tuple(panel.lines), shown, strict=True):
        line.set(**styles[method])


def _label(results: Results, named: Named) -> str:
    """A number as axes call it: "emoji/iid concept top-1, %"; where lower is better it says so."""
    dataset, task, metric = named
    lower = "" if results.directions.get(named, True) else ", lower is better"
    return f"{plain(' '.join(filter(None, (dataset, detail(task), metric_label(metric)))))}, %{lower}"
