"""Figures of a report: radar, score against noise rate, score against cost, wins. PDF for papers, PNG for the page.

Lines over rates are seaborn's, all else is matplotlib's; both draw on figures of their own, so that no global state is
left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from reports.drawing import (
    MARK,
    Picture,
    Sheet,
    finish,
    handles,
    look,
    name_ends,
    plain,
    room_for_names,
    style_of,
)
from reports.forest import forest, recovered
from reports.headlines import by_family, primary
from reports.measure import Measure, cell, record_measure
from reports.results import Results
from reports.table import scale, show
from reports.tables import spent
from reports.vocabulary import detail, kind_of, metric_label

NAMES = ("differences", "recovered", "radar", "noise", "cost")  #: of figures of scores, in the order of the page


def pictures(results: Results) -> list[Picture]:
    """All figures of scores that there are numbers for."""
    drawn = (picture(results, name) for name in NAMES)
    return [one for one in drawn if one is not None]


def picture(results: Results, name: str) -> Picture | None:
    """Draw one figure of scores: one of `NAMES`. None where there are no numbers for it."""
    draw = {"differences": forest, "recovered": recovered, "radar": radar, "noise": against_noise, "cost": against_cost}
    with look():
        return draw[name](results)


def radar(results: Results) -> Picture | None:
    """One axis a task as in Figure 2 of the Bayesian-weights paper, one panel a noise; each axis says its scale."""
    axes = _radar_axes(results)
    noises = list(results.noises)
    shown: dict[tuple[str, str], list[float]] = {}
    for method, entry in results.methods.items():
        for noise in noises:
            cells = [cell(results.of(method, noise), measure, entry["score"]) for _, measure in axes]
            if any(one.measured for one in cells):
                shown[method, noise] = [math.nan if one.value is None else one.value for one in cells]
    if len(axes) < 3 or not shown:
        return None
    tops = [max((row[i] for row in shown.values() if row[i] > 0), default=1.0) for i in range(len(axes))]
    labels = [f"{name}\n0 to {show(top, 'percent')}" for (name, _), top in zip(axes, tops, strict=True)]
    methods = [method for method in results.methods if any((method, noise) in shown for noise in noises)]
    aside = 0.1 + 0.052 * max(len(line) for label in labels for line in label.splitlines())  # inches of a wide letter
    sheet = Sheet(handles(results, methods), len(noises), 3.0 + 2 * aside, 4.6, (aside, aside, 0.6, 1.0))
    for place, noise in enumerate(noises):
        panel = sheet.panel(place)
        _radar_panel(panel, labels)
        panel.set_title(plain(noise), pad=36)
        for method in methods:
            if (method, noise) in shown:
                shares = [value / top for value, top in zip(shown[method, noise], tops, strict=True)]
                panel.plot(*_web(shares), linewidth=1.3, markersize=2.5, **style_of(results, method))
    caption = (
        "Every axis is one data set and metric. It runs from 0 at the centre to this suite's best mean at the rim, "
        "in percent; the scale is the same in all panels. Larger is better. A gap is a value that is not there."
    )
    return finish("radar", caption, sheet.figure)


def _radar_axes(results: Results) -> list[tuple[str, Measure]]:
    """The main metric of every data set and task; finding noise has no value without noise, so it is left out."""
    axes = []
    for name, measures in by_family(results).items():
        kind = kind_of(name)
        if kind is None or kind.on_training_pairs:
            continue
        for dataset, task, metric in measures:
            if metric == kind.main:
                what = dataset.partition("/")[2] or dataset
                short = kind.short.lower() if kind.short.capitalize() == kind.short else kind.short  # but not AdamW
                asked = f"{detail(task) or short} {short if metric == 'accuracy' else metric_label(metric)}"
                axes.append((f"{plain(what)}\n{plain(asked)}", record_measure(results, dataset, task, metric)))
    return axes


def _web(shares: Sequence[float]) -> tuple[list[float], list[float]]:
    """Corners of a closed polygon, the first axis pointing up and the others following clockwise."""
    angles = [2 * math.pi * i / len(shares) for i in range(len(shares))]
    x = [share * math.sin(angle) for share, angle in zip(shares, angles, strict=True)]
    y = [share * math.cos(angle) for share, angle in zip(shares, angles, strict=True)]
    return [*x, x[0]], [*y, y[0]]


def _radar_panel(panel: Axes, labels: Sequence[str]) -> None:
    """Rings at quarters and spokes, with labels outside the rim, each on its own side."""
    panel.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
    panel.set_axis_off()
    x, y = _web([1.0] * len(labels))
    for share in (0.25, 0.5, 0.75, 1.0):
        panel.plot(
            [share * a for a in x], [share * b for b in y], color="#bbbbbb" if share == 1 else "#dddddd", linewidth=0.7
        )
    for across, up, label in zip(x, y, labels, strict=False):  # the last corner is the first again
        panel.plot([0, across], [0, up], color="#dddddd", linewidth=0.7)
        side = "center" if abs(across) < 0.1 else "left" if across > 0 else "right"
        height = "center" if abs(up) < 0.8 else "bottom" if up > 0 else "top"
        panel.text(1.06 * across, 1.06 * up, label, ha=side, va=height, fontsize=6.5)


def against_noise(results: Results) -> Picture | None:
    """The primary score over the rate of each kind of noise; needs two rates."""
    scores = _scores(results)
    scores = scores[scores["at"] == 1]
    panels = {}
    for kind in dict.fromkeys(entry["kind"] for entry in results.noises.values() if entry["kind"]):
        noises = [label for label, entry in results.noises.items() if entry["kind"] in (kind, None)]
        if len(noises) > 1:
            panels[kind] = scores[scores["noise"].isin(noises)]
    methods = [method for method in results.methods if any(method in set(panel["method"]) for panel in panels.values())]
    if not methods:
        return None
    room = room_for_names(methods)
    sheet = Sheet((), len(panels), 5.0 + room, 3.6, (0.7, room, 0.5, 0.15))
    titles = {entry["kind"]: entry.get("title") for entry in results.noises.values()}  # older plans have no title
    for place, (kind, panel_scores) in enumerate(panels.items()):
        title = titles[kind] or kind.replace("_", " ")
        panel = sheet.panel(place, xlabel=f"{plain(title)}, % of pairs", ylabel=_primary_label(results))
        _against_rate(panel, results, panel_scores)
        means = panel_scores.groupby(["method", "rate"])["score"].agg(["mean", "std"])
        panel.set_ylim(_around(means))
        last = means["mean"].groupby("method").tail(1)
        name_ends(panel, results, {method: (rate, score) for (method, rate), score in last.items()})
    caption = f"{_primary_label(results)} against the share of corrupted pairs; the axis need not begin at 0."
    return finish("noise", caption + _bars(results), sheet.figure)


def _around(means: pd.DataFrame) -> tuple[float, float]:
    """Limits of an axis around means and bars, with a little room."""
    bars = means["std"].fillna(0)
    low, high = float((means["mean"] - bars).min()), float((means["mean"] + bars).max())
    room = 0.05 * (high - low or abs(high) or 1.0)
    return low - room, high + room


def against_cost(results: Results) -> Picture | None:
    """The primary score at every evaluated share of a run against the training FLOPs spent by then."""
    scores = _scores(results).dropna(subset="flops")
    if scores.empty:
        return None
    points = scores.groupby(["noise", "method", "at"]).agg(
        spent=("flops", "mean"), mean=("score", "mean"), std=("score", "std")
    )
    right = points["spent"].max() or 1.0
    size, prefix = scale(right, "flops")
    methods = [method for method in results.methods if method in set(scores["method"])]
    room = room_for_names(methods)
    sheet = Sheet((), len(results.noises), 4.3 + room, 4.0, (0.7, room, 0.5, 0.3))
    for place, noise in enumerate(results.noises):
        panel = sheet.panel(place, title=plain(noise))
        panel.set(xlabel=f"training, {prefix}FLOP, reference run included", ylabel=_primary_label(results))
        panel.set(xlim=(0, 1.04 * right / size), ylim=_around(points))
        ends = {}
        for method in methods:
            if (noise, method) in points.index:
                line, style = points.loc[(noise, method)], style_of(results, method)
                x, y, bar = (line[name].to_numpy() for name in ("spent", "mean", "std"))
                panel.plot(x / size, y, **MARK, **style)
                if not np.isnan(bar).all():
                    panel.vlines(x / size, y - bar, y + bar, style["color"], linewidth=1)
                ends[method] = (x[-1] / size, y[-1])
        name_ends(panel, results, ends)
    caption = (
        f"{_primary_label(results)} of the weights along each run against what was spent by then; the axis need not "
        "begin at 0. The learning rate has come down only at the last point, so earlier points are not shorter runs."
    )
    return finish("cost", caption + _bars(results), sheet.figure)


def _scores(results: Results) -> pd.DataFrame:
    """The primary score of every run at every share `at` of its budget, rates and scores in percent, one line each."""
    lines = []
    for run in results.runs:
        own, total = (run.ledger["flops"], spent(run.ledger, "flops")) if run.ledger else (math.nan, math.nan)
        for at in sorted({key[0] for key in run.records}):
            record = run.find(*primary(results), results.methods[run.method]["score"], at)
            if record is not None:
                rate, flops = 100 * results.noises[run.noise]["rate"], total - own + at * own
                lines.append((run.method, run.noise, rate, at, flops, 100 * record.value))
    return pd.DataFrame(lines, columns=["method", "noise", "rate", "at", "flops", "score"])


def _against_rate(panel: Axes, results: Results, scores: pd.DataFrame) -> None:
    """Means over seeds as a line for each method, with a bar of one standard deviation where there are two.

    The cost figure has a line for each method *and* noise. Seaborn takes a second longer for those of a large suite, so
    matplotlib draws them.
    """
    styles = {method: style_of(results, method) for method in results.methods if method in set(scores["method"])}
    sns.lineplot(
        scores,
        x="rate",
        y="score",
        hue="method",
        style="method",
        hue_order=list(styles),
        style_order=list(styles),
        palette={method: style["color"] for method, style in styles.items()},
        dashes={method: style["dashes"] for method, style in styles.items()},
        markers={method: style["marker"] for method, style in styles.items()},
        errorbar="sd",
        err_style="bars",
        err_kws={"elinewidth": 1},
        legend=False,
        ax=panel,
        **MARK,
    )


def _primary_label(results: Results) -> str:
    dataset, task, metric = primary(results)
    return f"{plain(f'{dataset} {detail(task)} {metric_label(metric)}')}, %"


def _bars(results: Results) -> str:
    return " Bars: one standard deviation over seeds." if len(results.plan["seeds"]) > 1 else " One seed: no bars."
