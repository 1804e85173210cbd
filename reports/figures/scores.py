"""Scores against noise rates and against cost, and what the last weights lack of the best along a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from reports.figures.chosen import OTHER, about_others, line_styles, named_in
from reports.figures.figure_style import MARK, Sheet, finish, plain, room_for_names
from reports.figures.lines import bars, beside, draw_lines, height, limits, name_lines
from reports.figures.pictures import Picture
from reports.headlines import Named, along, primary
from reports.results import Results
from reports.statistics.paired import Floats, mean, std
from reports.tables.suite_tables import spent
from reports.tables.table import scale
from reports.vocabulary import detail, metric_label

SAME = 0.9  #: costs whose smallest is more than this share of the largest are about the same


class Point(NamedTuple):
    """A score of a run at a share of its budget."""

    method: str
    noise: str
    seed: int
    rate: float  #: of corrupted pairs, in percent
    at: float  #: share of the budget
    flops: float  #: spent by then, reference run included; NaN if nothing is known of them
    score: float  #: in percent


def against_noise(results: Results) -> Picture | None:
    """The primary score over the rate of each kind of noise; needs two rates."""
    label = _label(*primary(results))
    caption = f"{label} against the share of corrupted pairs; the axis need not begin at 0."
    final = [point for point in _scores(results, primary(results)) if point.at == 1]
    return _over_rates(results, "noise", final, label, caption)


def memorisation(results: Results) -> Picture | None:
    """What the last weights lack of the best along the run, over noise rates; needs two rates and points on the way."""
    of_runs: dict[tuple[str, str, int], list[Point]] = {}
    measured = along(results)
    for point in _scores(results, measured):
        of_runs.setdefault((point.method, point.noise, point.seed), []).append(point)
    if all(point.at == 1 for points in of_runs.values() for point in points):
        return None
    lost = [
        points[-1]._replace(score=points[-1].score - max(point.score for point in points))
        for points in of_runs.values()
        if len(points) > 1
    ]
    caption = (
        f"{_label(*measured)} of the last weights minus the best along the same run, in points: below 0, going "
        "on made it worse. The learning rate comes down only at the end, which favours the last."
    )
    return _over_rates(results, "memorisation", lost, "last minus best, points", caption)


def _over_rates(results: Results, name: str, points: Sequence[Point], label: str, caption: str) -> Picture | None:
    """Draw scores over rates, one panel a kind of noise; None below two rates."""
    panels: dict[tuple[str, float], dict[str, Floats]] = {}
    blocks = {noise: (entry["kind"], results.budget(noise)) for noise, entry in results.noises.items()}
    for kind, budget in dict.fromkeys(block for block in blocks.values() if block[0]):
        noises = [noise for noise, block in blocks.items() if block in ((kind, budget), (None, budget))]
        if len(noises) > 1:
            of = [(one.method, one.rate, one.score) for one in points if one.noise in noises]
            panels[kind, budget] = _lines(of)
    methods = [method for method in results.methods if any(method in lines for lines in panels.values())]
    if not methods:
        return None
    styles = line_styles(results, methods)
    room = room_for_names(named_in(styles))
    tall = height(3.6, len(named_in(styles)), 0.65)
    sheet = Sheet((), len(panels), 5.1 + room, tall, (0.8, room, 0.5, 0.15))
    titles = {entry["kind"]: entry.get("title") for entry in results.noises.values()}  # older plans have no title
    several, unit = len({budget for _, budget in panels}) > 1, results.plan["budget"].get("unit", "")
    for place, ((kind, budget), lines) in enumerate(panels.items()):
        title = (titles[kind] or kind.replace("_", " ")) + f" ({budget:g} {unit})" * several
        panel = sheet.panel(place, xlabel=f"{plain(title)}, % of pairs", ylabel=beside(sheet, label))
        there = {method: lines[method] for method in styles if method in lines}
        ends = _draw_lines_and_bars(panel, styles, there)
        panel.set_ylim(limits(there.values()))
        name_lines(panel, results, styles, ends)
    return finish(name, caption + bars(results) + about_others(results, styles), sheet.figure)


def _lines(scores: Iterable[tuple[str, float, float]]) -> dict[str, Floats]:
    """Return for each method its line [3, n] of (method, x, score): x, means over seeds, standard deviations."""
    of: dict[str, dict[float, list[float]]] = {}
    for method, x, score in scores:
        of.setdefault(method, {}).setdefault(x, []).append(score)
    return {
        method: np.array([(x, mean(own), _spread(own)) for x, own in sorted(values.items())]).T
        for method, values in of.items()
    }


def _spread(values: Sequence[float]) -> float:
    """The standard deviation over seeds; NaN below two."""
    own = std(values)
    return math.nan if own is None else own


def against_cost(results: Results) -> Picture | None:
    """The score at every evaluated share of a run against the training FLOPs spent by then.

    None if nothing is known of them, or if all runs spent about the same and were evaluated at the end alone.
    """
    measured = along(results)
    scores = [point for point in _scores(results, measured) if not math.isnan(point.flops)]
    spent_by = [point.flops for point in scores]
    if not scores or (all(point.at == 1 for point in scores) and min(spent_by) > SAME * max(spent_by)):
        return None
    points: dict[tuple[str, str, float], list[Point]] = {}
    for point in scores:
        points.setdefault((point.noise, point.method, point.at), []).append(point)
    right = max(mean([one.flops for one in own]) for own in points.values()) or 1.0
    size, prefix = scale(right, "flops")
    lines: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for (noise, method, _), own in sorted(points.items()):
        own_scores = [one.score for one in own]
        numbers = mean([one.flops for one in own]) / size, mean(own_scores), _spread(own_scores)
        lines.setdefault((noise, method), []).append(numbers)
    methods = [method for method in results.methods if any((noise, method) in lines for noise in results.noises)]
    styles = line_styles(results, methods)
    room = room_for_names(named_in(styles))
    titles, tall = list(results.noises), height(4.0, len(named_in(styles)), 0.8)
    sheet = Sheet((), len(titles), 4.3 + room, tall, (0.7, room, 0.5, 0.3), titles=titles)
    ends = limits(np.array(own).T for own in lines.values())
    for place, noise in enumerate(titles):
        panel = sheet.panel(place)
        panel.set(xlabel=f"training, {prefix}FLOP, reference run included")
        panel.set(ylabel=beside(sheet, _label(*measured)))
        panel.set(xlim=(0, 1.04 * right / size), ylim=ends)
        there = {method: np.array(lines[noise, method]).T for method in styles if (noise, method) in lines}
        name_lines(panel, results, styles, draw_lines(panel, styles, there))
    caption = (
        f"{_label(*measured)} of the weights along each run against what was spent by then; the axis need not "
        "begin at 0. The learning rate has come down only at the last point, so earlier points are not shorter runs."
    )
    return finish("cost", caption + bars(results) + about_others(results, styles), sheet.figure)


@lru_cache(maxsize=2)
def _scores(results: Results, measured: Named) -> tuple[Point, ...]:
    """This score of every run at every share of its budget, along each run from the first."""
    points = []
    for run in results.runs:
        own, total = (run.ledger["flops"], spent(run.ledger, "flops")) if run.ledger else (math.nan, math.nan)
        for at in sorted({key[0] for key in run.records}):
            record = run.find(*measured, results.methods[run.method]["score"], at)
            if record is not None:
                rate, flops = 100 * results.noises[run.noise]["rate"], total - own + at * own
                points.append(Point(run.method, run.noise, run.seed, rate, at, flops, 100 * record.value))
    return tuple(points)


def _draw_lines_and_bars(
    panel: Axes, styles: Mapping[str, Mapping[str, Any]], lines: Mapping[str, Floats]
) -> dict[str, tuple[float, float]]:
    """Draw a line for each method, and on it a bar of one standard deviation where there are two seeds; return ends.

    lines: as `draw_lines` takes them, in the order of `styles`. Seaborn would make means and bars as well, but takes
    three times as long with a large suite.
    """
    points = [(method, a, b) for method, (x, y, _) in lines.items() for a, b in zip(x, y, strict=True)]
    colours = {method: styles[method]["color"] for method in lines}
    look = {"hue_order": list(lines), "palette": colours, "estimator": None, "legend": False, **MARK}
    frame = pd.DataFrame(points, columns=["method", "x", "mean"])
    sns.lineplot(frame, x="x", y="mean", hue="method", ax=panel, **look)
    for place, (line, (method, (x, y, bar))) in enumerate(zip(tuple(panel.lines), lines.items(), strict=True)):
        style, layer = styles[method], 1 + place / len(lines)  # each bar lies on its line
        line.set(**{**style, "zorder": layer})
        if style is not OTHER:
            ends = [[(a, b - c), (a, b + c)] for a, b, c in zip(x, y, bar, strict=True)]
            drawn = LineCollection(ends, colors=style["color"], linewidths=1, capstyle="round", zorder=layer)
            panel.add_collection(drawn, autolim=False)
    return {method: (x[-1], y[-1]) for method, (x, y, _) in lines.items()}


def _label(dataset: str, task: str, metric: str) -> str:
    return f"{plain(' '.join(filter(None, (dataset, detail(task), metric_label(metric)))))}, %"
