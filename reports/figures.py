"""Figures of a report: radar, score against noise rate, score against cost, wins. PDF for papers, PNG for the page.

They are drawn on figures of their own, so that no global state of matplotlib is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from reports.before_after import before_after
from reports.chosen import OTHER, about_others, line_styles, named_in
from reports.course import course
from reports.drawing import (
    MARK,
    Picture,
    Sheet,
    finish,
    in_sizes,
    plain,
    room_for_names,
)
from reports.embeddings import embeddings
from reports.forest import forest, recovered
from reports.headlines import primary
from reports.lines import bars, beside, draw_lines, height, limits, name_lines
from reports.radar import radar
from reports.results import Results
from reports.shares import shares
from reports.table import scale
from reports.tables import spent
from reports.vocabulary import detail, metric_label

SAME = 0.9  #: costs whose smallest is more than this share of the largest are about the same


def pictures(results: Results, widths: Sequence[str] = ()) -> list[Picture]:
    """All figures of scores that there are numbers for, and their PDFs for these widths of a paper."""
    drawn = (in_sizes(partial(draw, results), widths) for draw in FIGURES.values())
    return [one for one in drawn if one is not None]


def against_noise(results: Results) -> Picture | None:
    """The primary score over the rate of each kind of noise; needs two rates."""
    scores = _scores(results)
    caption = f"{_primary_label(results)} against the share of corrupted pairs; the axis need not begin at 0."
    return _over_rates(results, "noise", scores[scores["at"] == 1], _primary_label(results), caption)


def memorisation(results: Results) -> Picture | None:
    """What the last weights lack of the best along the run, over noise rates; needs two rates and points on the way."""
    scores = _scores(results)
    if not (scores["at"] < 1).any():
        return None
    of_runs = scores.groupby(["method", "noise", "rate", "seed"])
    lost = (of_runs["score"].last() - of_runs["score"].max()).rename("score").reset_index()
    caption = (
        f"{_primary_label(results)} of the last weights minus the best along the same run, in points: below 0, going "
        "on made it worse. The learning rate comes down only at the end, which favours the last."
    )
    return _over_rates(results, "memorisation", lost, "last minus best, points", caption)


def _over_rates(results: Results, name: str, scores: pd.DataFrame, label: str, caption: str) -> Picture | None:
    """Draw scores (columns method, noise, rate, score) over rates, one panel a kind of noise; None below two rates."""
    panels = {}
    for kind in dict.fromkeys(entry["kind"] for entry in results.noises.values() if entry["kind"]):
        noises = [noise for noise, entry in results.noises.items() if entry["kind"] in (kind, None)]
        if len(noises) > 1:
            panels[kind] = scores[scores["noise"].isin(noises)]
    measured = {method for panel in panels.values() for method in panel["method"].unique()}
    methods = [method for method in results.methods if method in measured]
    if not methods:
        return None
    styles = line_styles(results, methods)
    room = room_for_names(named_in(styles))
    tall = height(3.6, len(named_in(styles)), 0.65)
    sheet = Sheet((), len(panels), 5.1 + room, tall, (0.8, room, 0.5, 0.15))
    titles = {entry["kind"]: entry.get("title") for entry in results.noises.values()}  # older plans have no title
    for place, (kind, panel_scores) in enumerate(panels.items()):
        title = titles[kind] or kind.replace("_", " ")
        panel = sheet.panel(place, xlabel=f"{plain(title)}, % of pairs", ylabel=beside(sheet, label))
        means = panel_scores.groupby(["method", "rate"])["score"].agg(["mean", "std"])
        _against_rate(panel, styles, means)
        panel.set_ylim(limits([means.reset_index()[["rate", "mean", "std"]].to_numpy().T]))
        last = means["mean"].groupby("method").tail(1)
        name_lines(panel, results, styles, {method: (rate, score) for (method, rate), score in last.items()})
    return finish(name, caption + bars(results) + about_others(results, styles), sheet.figure)


def against_cost(results: Results) -> Picture | None:
    """The primary score at every evaluated share of a run against the training FLOPs spent by then.

    None if nothing is known of them, or if all runs spent about the same and were evaluated at the end alone.
    """
    scores = _scores(results).dropna(subset="flops")
    if scores.empty or (scores["at"].eq(1).all() and scores["flops"].min() > SAME * scores["flops"].max()):
        return None
    points = scores.groupby(["noise", "method", "at"]).agg(
        spent=("flops", "mean"), mean=("score", "mean"), std=("score", "std")
    )
    right = points["spent"].max() or 1.0
    size, prefix = scale(right, "flops")
    points["spent"] /= size
    lines: dict[tuple[str, str], list[Sequence[float]]] = {}
    for (noise, method, _), *numbers in points.itertuples():
        lines.setdefault((noise, method), []).append(numbers)
    methods = [method for method in results.methods if any((noise, method) in lines for noise in results.noises)]
    styles = line_styles(results, methods)
    room = room_for_names(named_in(styles))
    titles, tall = list(results.noises), height(4.0, len(named_in(styles)), 0.8)
    sheet = Sheet((), len(titles), 4.3 + room, tall, (0.7, room, 0.5, 0.3), titles=titles)
    for place, noise in enumerate(titles):
        panel = sheet.panel(place)
        panel.set(xlabel=f"training, {prefix}FLOP, reference run included")
        panel.set(ylabel=beside(sheet, _primary_label(results)))
        panel.set(xlim=(0, 1.04 * right / size), ylim=limits([points.to_numpy().T]))
        there = {method: np.array(lines[noise, method]).T for method in styles if (noise, method) in lines}
        name_lines(panel, results, styles, draw_lines(panel, styles, there))
    caption = (
        f"{_primary_label(results)} of the weights along each run against what was spent by then; the axis need not "
        "begin at 0. The learning rate has come down only at the last point, so earlier points are not shorter runs."
    )
    return finish("cost", caption + bars(results) + about_others(results, styles), sheet.figure)


@lru_cache(maxsize=1)
def _scores(results: Results) -> pd.DataFrame:
    """The primary score of every run at every share `at` of its budget, rates and scores in percent, one line each."""
    lines = []
    for run in results.runs:
        own, total = (run.ledger["flops"], spent(run.ledger, "flops")) if run.ledger else (math.nan, math.nan)
        for at in sorted({key[0] for key in run.records}):
            record = run.find(*primary(results), results.methods[run.method]["score"], at)
            if record is not None:
                rate, flops = 100 * results.noises[run.noise]["rate"], total - own + at * own
                lines.append((run.method, run.noise, run.seed, rate, at, flops, 100 * record.value))
    return pd.DataFrame(lines, columns=["method", "noise", "seed", "rate", "at", "flops", "score"])


def _against_rate(panel: Axes, looks: Mapping[str, Mapping[str, Any]], means: pd.DataFrame) -> None:
    """Draw means over seeds as a line for each method, with a bar of one standard deviation where there are two.

    means: by method and rate, with columns mean and std. Seaborn computes them as well, and draws bars and dashes, but
    takes three times as long with a large suite.
    """
    frame = means.reset_index()
    of_method = dict(list(frame.groupby("method")))
    styles = {method: style for method, style in looks.items() if method in of_method}
    sns.lineplot(
        frame,
        x="rate",
        y="mean",
        hue="method",
        hue_order=list(styles),
        palette={method: style["color"] for method, style in styles.items()},
        estimator=None,
        legend=False,
        ax=panel,
        **MARK,
    )
    for place, (method, line) in enumerate(zip(styles, tuple(panel.lines), strict=True)):
        style, own, layer = styles[method], of_method[method], 1 + place / len(styles)  # each bar lies on its line
        line.set(dashes=style["dashes"], marker=style["marker"], zorder=layer)
        if style is OTHER:
            continue
        look_of_bars = {"linestyle": "", "elinewidth": 1, "color": style["color"], "zorder": layer}
        bars = panel.errorbar(own["rate"], own["mean"], own["std"], **look_of_bars)
        bars.lines[2][0].set_capstyle("round")


def _primary_label(results: Results) -> str:
    dataset, task, metric = primary(results)
    return f"{plain(' '.join(filter(None, (dataset, detail(task), metric_label(metric)))))}, %"


#: of scores, in the order of the page
FIGURES: Mapping[str, Callable[[Results], Picture | None]] = {
    "differences": forest,
    "recovered": recovered,
    "radar": radar,
    "noise": against_noise,
    "cost": against_cost,
    "memorisation": memorisation,
    "course": course,
    "shares": shares,
    "before_after": before_after,
    "embeddings": embeddings,
}
