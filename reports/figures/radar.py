"""The radar: one axis per task, one panel per noise, a few methods at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from bench.errors import UserError, nearest
from bench.resources import published_folder
from reports.figures.chosen import BEST, chosen_of
from reports.figures.figure_style import Sheet, finish, handles, medium, plain
from reports.figures.pictures import Picture, style_of
from reports.headlines import by_family
from reports.measure import Measure, cell, record_measure
from reports.papers.layouts import DATASETS, PAPERS
from reports.papers.published import read
from reports.results import Results
from reports.statistics.chance import carries_nothing
from reports.tables.table import show
from reports.vocabulary import detail, family, kind_of, main_metric, metric_label, short

_CAPTION = (
    "Every axis is one data set and metric. It runs from 0 at the centre to the best mean drawn here at the rim, in "
    "percent; the scale is the same in all panels. Larger is better. A gap is a missing value."
)


def radar(results: Results, methods: Sequence[str] = ()) -> Picture | None:
    """One axis per task as in Figure 2 of the Bayesian-weights paper, one panel per noise; each axis says its scale.

    methods: labels of rows to draw; by default the baseline, the bounds and the best on the primary metric. Returns
    None without three axes, or without numbers. Raises UserError for a label that the suite does not have.
    """
    for label in methods:
        if label not in results.methods:
            raise UserError(f"{label!r} is not a row of this report{nearest(label, results.methods)}")
    known = _axes(results)
    axes = [(name, measure) for name, measure in known if not carries_nothing(results, measure)]
    chosen = list(methods) or chosen_of(results)
    shown: dict[tuple[str, str], list[float]] = {}
    for label in chosen:
        for noise in results.noises:
            cells = [cell(results.of(label, noise), measure, results.methods[label]["score"]) for _, measure in axes]
            if any(one.measured for one in cells):
                shown[label, noise] = [math.nan if one.value is None else one.value for one in cells]
    if len(axes) < 3 or not shown:
        return None
    tops = [max((row[i] for row in shown.values() if row[i] > 0), default=1.0) for i in range(len(axes))]
    key = [
        f"{place}  {', '.join(name.splitlines())}, 0 to {show(top, 'percent')}"
        for place, ((name, _), top) in enumerate(zip(axes, tops, strict=True), start=1)
    ]  # names would cover each other, so a number stands at each spoke
    drawn = [label for label in chosen if any((label, noise) in shown for noise in results.noises)]
    noises, side = list(results.noises), 2.0 if medium().width else 4.0
    margins = 0.2, 0.2, 0.22, 0.45
    legend = handles(results, drawn)
    sheet = Sheet(legend, len(noises), side, side + 0.1, margins, least=1.6, titles=noises, key=key)
    for place, noise in enumerate(results.noises):
        panel = sheet.panel(place)
        _rings(panel, len(axes))
        panel.set_title(panel.get_title(), pad=15)
        for label in drawn:
            if (label, noise) in shown:
                shares = [value / top for value, top in zip(shown[label, noise], tops, strict=True)]
                panel.plot(*_web(shares), linewidth=1.3, markersize=2.5, **style_of(results, label))
    caption = _CAPTION
    if len(axes) < len(known):
        left_out = (name.replace("\n", " ") for name, measure in known if (name, measure) not in axes)
        caption += f" Omitted, because no method is significantly above chance there: {'; '.join(left_out)}."
    if not methods and len(drawn) < len(results.methods):
        caption += (
            f" Drawn are {results.named(results.baseline)}, rows that know more than a method may, and the "
            f'{BEST} best others on the primary metric; Results.figure("radar", methods=[...]) draws any.'
        )
    return finish("radar", caption, sheet.figure)


def _axes(results: Results) -> list[tuple[str, Measure]]:
    """The axes of the radar of the paper whose tables the suite lays out, if it has one; otherwise the main metric of
    every data set and task. What has no value without noise is omitted.
    """
    named = [
        (dataset, task, metric)
        for name, measures in by_family(results).items()
        if (kind := kind_of(name)) is not None and not kind.needs_noise
        for dataset, task, metric in measures
    ]
    printed = _printed(results)
    asked = [one for one in named if (one[0], family(one[1]), one[2]) in printed]
    chosen = asked if len(asked) >= 3 else [one for one in named if one[2] == main_metric(one[1])]
    return [(_label(*one), record_measure(results, *one)) for one in chosen]


def _label(dataset: str, task: str, metric: str) -> str:
    """Two lines: the data set, and what was measured on it."""
    title = short(family(task))
    words = title.lower() if title.capitalize() == title else title  # but not AdamW
    asked = f"{detail(task) or words} {words if metric == 'accuracy' else metric_label(metric)}"
    return f"{plain(dataset.replace('/', ' '))}\n{plain(asked)}"


def _printed(results: Results) -> set[tuple[str, str, str]]:
    """Data set, family and metric of the axes of the paper's radar, as we name them; none if it has no radar."""
    paper = PAPERS.get((results.plan["tables"] or {}).get("paper", ""))
    if paper is None or not paper.radar:
        return set()
    numbers = [one for one in read(published_folder(), paper.name) if one.table in paper.radar]
    known = ((DATASETS.get(one.dataset, ""), paper.metrics.get(one.metric)) for one in numbers)
    return {(dataset, name, own.metric) for dataset, own in known if dataset and own for name in own.families}


def _web(shares: Sequence[float]) -> tuple[list[float], list[float]]:
    """Corners of a closed polygon, the first axis pointing up and the others following clockwise."""
    angles = [2 * math.pi * i / len(shares) for i in range(len(shares))]
    x = [share * math.sin(angle) for share, angle in zip(shares, angles, strict=True)]
    y = [share * math.cos(angle) for share, angle in zip(shares, angles, strict=True)]
    return [*x, x[0]], [*y, y[0]]


def _rings(panel: Axes, axes: int) -> None:
    """Rings at quarters and spokes, with their numbers outside the rim, each on its own side."""
    panel.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
    panel.set_axis_off()
    x, y = _web([1.0] * axes)
    rings = [[(share * a, share * b) for a, b in zip(x, y, strict=True)] for share in (0.25, 0.5, 0.75, 1.0)]
    spokes = [[(0.0, 0.0), end] for end in zip(x[:-1], y[:-1], strict=True)]
    colours = ["#dddddd"] * 3 + ["#bbbbbb"] + ["#dddddd"] * len(spokes)
    panel.add_collection(LineCollection([*rings, *spokes], colors=colours, linewidths=0.7), autolim=False)
    half = medium().line * 1.03 * panel.figure.dpi / panel.bbox.height  # of a number's height
    for number, across, up in zip(range(1, axes + 1), x, y, strict=False):  # the last corner is the first again
        side = "center" if abs(across) < 0.1 else "left" if across > 0 else "right"
        panel.text(1.06 * across, (1.06 + half) * up, str(number), ha=side, va="center", fontsize=medium().names)
