"""Figures of a report: radar, score against noise rate, score against cost, wins. PDF for papers, PNG for the page.

They are drawn on figures of their own, so that no global state of matplotlib is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from reports.drawing import (
    MARK,
    Picture,
    Sheet,
    broken,
    finish,
    in_sizes,
    medium,
    name_ends,
    plain,
    room_for_names,
    style_of,
)
from reports.forest import forest, recovered
from reports.headlines import primary
from reports.radar import radar
from reports.results import Results
from reports.table import scale
from reports.tables import spent
from reports.vocabulary import detail, metric_label


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
    methods = [method for method in results.methods if any(method in set(panel["method"]) for panel in panels.values())]
    if not methods:
        return None
    room = room_for_names(methods)
    height = _height(3.6, len(methods), 0.65)
    sheet = Sheet((), len(panels), 5.1 + room, height, (0.8, room, 0.5, 0.15))
    titles = {entry["kind"]: entry.get("title") for entry in results.noises.values()}  # older plans have no title
    for place, (kind, panel_scores) in enumerate(panels.items()):
        title = titles[kind] or kind.replace("_", " ")
        panel = sheet.panel(place, xlabel=f"{plain(title)}, % of pairs", ylabel=_beside(sheet, label))
        means = panel_scores.groupby(["method", "rate"])["score"].agg(["mean", "std"])
        there = set(means.index.get_level_values("method"))
        ends = _draw(panel, results, {method: means.loc[method] for method in methods if method in there})
        panel.set_ylim(_around(means))
        name_ends(panel, results, ends)
    return finish(name, caption + _bars(results), sheet.figure)


def _height(screen: float, methods: int, around: float) -> float:
    """Inches of a panel whose lines end in names: in a paper no more than these need, with `around` above and below."""
    return screen if medium().width is None else max(2.2, around + medium().line * methods)


def _beside(sheet: Sheet, label: str) -> str:
    """The label of an upright axis; in a paper it is broken into lines that are not longer than the axis."""
    return broken(label, sheet.height - 0.6 if medium().width else math.inf)


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
    points["spent"] /= size
    methods = [method for method in results.methods if method in set(scores["method"])]
    room = room_for_names(methods)
    titles, height = list(results.noises), _height(4.0, len(methods), 0.8)
    sheet = Sheet((), len(titles), 4.3 + room, height, (0.7, room, 0.5, 0.3), titles=titles)
    for place, noise in enumerate(titles):
        panel = sheet.panel(place)
        panel.set(xlabel=f"training, {prefix}FLOP, reference run included")
        panel.set(ylabel=_beside(sheet, _primary_label(results)))
        panel.set(xlim=(0, 1.04 * right / size), ylim=_around(points))
        there = (method for method in methods if (noise, method) in points.index)
        lines = {method: points.loc[(noise, method)].set_index("spent") for method in there}
        name_ends(panel, results, _draw(panel, results, lines))
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
                lines.append((run.method, run.noise, run.seed, rate, at, flops, 100 * record.value))
    return pd.DataFrame(lines, columns=["method", "noise", "seed", "rate", "at", "flops", "score"])


def _draw(panel: Axes, results: Results, of_methods: Mapping[str, pd.DataFrame]) -> dict[str, tuple[float, float]]:
    """Draw means over seeds, indexed by x, as a line a method with bars of one standard deviation; return their ends.

    The columns are mean and std, which is NaN for one seed.
    """
    ends, bars, colours = {}, [], []
    for method, line in of_methods.items():
        style = style_of(results, method)
        x, y, bar = line.index.to_numpy(), line["mean"].to_numpy(), line["std"].to_numpy()
        panel.plot(x, y, **MARK, **style)
        bars += [[(a, b - c), (a, b + c)] for a, b, c in zip(x, y, bar, strict=True)]
        colours += [style["color"]] * len(x)
        ends[method] = (x[-1], y[-1])
    panel.add_collection(LineCollection(bars, colors=colours, linewidths=1), autolim=False)  # one draws faster
    return ends


def _primary_label(results: Results) -> str:
    dataset, task, metric = primary(results)
    return f"{plain(f'{dataset} {detail(task)} {metric_label(metric)}')}, %"


def _bars(results: Results) -> str:
    return " Bars: one standard deviation over seeds." if len(results.plan["seeds"]) > 1 else " One seed: no bars."


#: of scores, in the order of the page
FIGURES: Mapping[str, Callable[[Results], Picture | None]] = {
    "differences": forest,
    "recovered": recovered,
    "radar": radar,
    "noise": against_noise,
    "cost": against_cost,
    "memorisation": memorisation,
}
