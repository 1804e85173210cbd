"""Figures of a report: radar, score against noise rate, score against cost. PDF for papers, PNG for the page.

Drawn with matplotlib's own objects rather than pyplot, which keeps the import short and leaves no global state.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reports.measure import Measure, cell, record_measure
from reports.results import Results, RunResult
from reports.statistics import mean, std
from reports.table import scale, show
from reports.tables import by_family, primary, spent
from reports.vocabulary import FAMILIES, detail, metric_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito (2008), told apart with any kind of colour vision; further methods repeat them with other lines
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#A6761D")
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "axes.titlesize": 10,
    "axes.titley": 1.0,  # said outright, a title needs no search for a free place, which takes as long as drawing
}


Point = tuple[float, float, float]  #: x, y, half a bar


@dataclass(frozen=True)
class Picture:
    """A drawn figure, with the sentence that stands under it."""

    name: str
    caption: str
    png: bytes
    pdf: bytes
    least: int  #: pixels of width below which its words cannot be read


def style_of(results: Results, method: str) -> dict[str, Any]:
    """Colour, line and marker of a method: by its place in the suite, the same in every figure."""
    place = list(results.methods).index(method)
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": LINES[place // len(COLOURS) % len(LINES)],
        "marker": MARKERS[place % len(MARKERS)],
    }


def pictures(results: Results) -> list[Picture]:
    """All figures there are numbers for."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        drawn = (radar(results), against_noise(results), against_cost(results))
        return [picture for picture in drawn if picture is not None]


def _finish(name: str, caption: str, figure: Figure) -> Picture:
    files = {}
    for kind, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None, "Producer": None})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
        files[kind] = buffer.getvalue()
    return Picture(name, caption, files["png"], files["pdf"], round(figure.get_figwidth() * 75))


@dataclass(frozen=True)
class _Sheet:
    """Panels side by side over one legend, placed by hand in inches: a layout engine would take as long as the rest."""

    results: Results
    methods: Sequence[str]  #: in the legend
    panels: int
    width: float  #: of a panel with its labels
    height: float
    margins: tuple[float, float, float, float]  #: around a panel, in inches: left, right, bottom, top

    @cached_property
    def figure(self) -> Figure:
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D

        rows = math.ceil(len(self.methods) / max(2, int(self.width * self.panels / 1.6)))
        columns = math.ceil(len(self.methods) / rows)
        legend = 0.12 + 0.2 * rows
        figure = Figure(figsize=(self.width * self.panels, self.height + legend))
        styles = [(method, style_of(self.results, method)) for method in self.methods]
        handles = [Line2D([], [], label=method, markersize=5, **style) for method, style in styles]
        figure.legend(handles=handles, loc="lower center", ncols=columns, borderaxespad=0.3)
        return figure

    def panel(self, place: int, **options: Any) -> Axes:
        """The panel at this place from the left."""
        full_width, full_height = self.figure.get_size_inches()
        left, right, bottom, top = self.margins
        bottom += full_height - self.height
        box = (
            (place * self.width + left) / full_width,
            bottom / full_height,
            (self.width - left - right) / full_width,
            (full_height - bottom - top) / full_height,
        )
        return self.figure.add_axes(box, **options)


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
    sheet = _Sheet(results, methods, len(noises), 5.0, 4.6, (1.0, 1.0, 0.6, 1.0))
    for place, noise in enumerate(noises):
        panel = sheet.panel(place)
        _radar_panel(panel, labels)
        panel.set_title(noise, pad=36)
        for method in methods:
            if (method, noise) in shown:
                shares = [value / top for value, top in zip(shown[method, noise], tops, strict=True)]
                panel.plot(*_web(shares), linewidth=1.3, markersize=2.5, **style_of(results, method))
    caption = (
        "Every axis is one data set and metric. It runs from 0 at the centre to this suite's best mean at the rim, "
        "in percent; the scale is the same in all panels. Larger is better. A gap is a value that is not there."
    )
    return _finish("radar", caption, sheet.figure)


def _radar_axes(results: Results) -> list[tuple[str, Measure]]:
    """The main metric of every data set and task; finding noise has no value without noise, so it is left out."""
    found = []
    for name, measures in by_family(results).items():
        if name not in FAMILIES or name == "noise_detection":
            continue
        for dataset, task, metric in measures:
            if metric == FAMILIES[name].main:
                what = dataset.partition("/")[2] or dataset
                of = detail(task) or FAMILIES[name].short.lower()
                kind = f"{of} {FAMILIES[name].short if metric == 'accuracy' else metric_label(metric)}"
                found.append((f"{what}\n{kind}", record_measure(results, dataset, task, metric)))
    return found


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
    kinds = dict.fromkeys(entry["kind"] for entry in results.noises.values() if entry["kind"])
    panels = {kind: [label for label, n in results.noises.items() if n["kind"] in (kind, None)] for kind in kinds}
    panels = {kind: labels for kind, labels in panels.items() if len(labels) > 1}
    lines = {
        (kind, method): points
        for kind, noises in panels.items()
        for method in results.methods
        if (points := _rate_points(results, method, noises))
    }
    if not lines:
        return None
    methods = [method for method in results.methods if any((kind, method) in lines for kind in panels)]
    sheet = _Sheet(results, methods, len(panels), 5.2, 3.6, (0.6, 0.2, 0.5, 0.15))
    for place, kind in enumerate(panels):
        panel = sheet.panel(place, xlabel=f"{kind.replace('_', ' ')}, % of pairs", ylabel=_primary_label(results))
        _draw_lines(panel, results, {method: lines[kind, method] for method in methods if (kind, method) in lines})
        panel.set_ylim(bottom=0)
    caption = f"{_primary_label(results)} against the share of corrupted pairs.{_bars(results)}"
    return _finish("noise", caption, sheet.figure)


def _rate_points(results: Results, method: str, noises: Sequence[str]) -> list[Point]:
    measure = record_measure(results, *primary(results))
    score = results.methods[method]["score"]
    cells = [(results.noises[noise]["rate"], cell(results.of(method, noise), measure, score)) for noise in noises]
    return [(100 * rate, 100 * one.value, 100 * (one.std or 0)) for rate, one in cells if one.value is not None]


def _draw_lines(panel: Axes, results: Results, lines: Mapping[str, Sequence[Point]]) -> None:
    for method, points in lines.items():
        x, y, error = zip(*points, strict=True)
        style = style_of(results, method)
        panel.plot(x, y, markersize=4, linewidth=1.4, **style)
        if any(error):
            panel.vlines(
                x,
                [a - e for a, e in zip(y, error, strict=True)],
                [a + e for a, e in zip(y, error, strict=True)],
                style["color"],
                linewidth=1,
            )


def against_cost(results: Results) -> Picture | None:
    """The primary score at every evaluated share of a run against the training FLOPs spent by then."""
    noises = list(results.noises)
    curves = {
        (noise, method): points
        for noise in noises
        for method, entry in results.methods.items()
        if (points := _curve(results, results.of(method, noise), entry["score"]))
    }
    if not curves:
        return None
    corners = [(x, y + bar) for points in curves.values() for x, y, bar in points]
    right, top = (max(values) or 1.0 for values in zip(*corners, strict=True))
    size, prefix = scale(right, "flops")
    methods = [method for method in results.methods if any((noise, method) in curves for noise in noises)]
    sheet = _Sheet(results, methods, len(noises), 4.7, 3.6, (0.6, 0.15, 0.5, 0.3))
    for place, noise in enumerate(noises):
        panel = sheet.panel(place, title=noise)
        panel.set_xlabel(f"training, {prefix}FLOP, reference run included")
        panel.set_ylabel(_primary_label(results))
        lines = {method: curves[noise, method] for method in methods if (noise, method) in curves}
        _draw_lines(panel, results, {m: [(x / size, y, e) for x, y, e in points] for m, points in lines.items()})
        panel.set(xlim=(0, 1.04 * right / size), ylim=(0, 1.06 * top))
    caption = (
        f"{_primary_label(results)} of the weights along each run against what was spent by then. The learning rate "
        "has come down only at the last point, so earlier points are not shorter runs."
    )
    return _finish("cost", caption + _bars(results), sheet.figure)


def _curve(results: Results, runs: Sequence[RunResult], score: str) -> list[Point]:
    """(FLOPs, mean in percent, std in percent) for each share of the budget that was evaluated."""
    dataset, task, metric = primary(results)
    found: dict[float, list[tuple[float, float]]] = {}
    for run in runs:
        if not run.ledger:
            continue
        own, total = run.ledger["flops"], spent(run.ledger, "flops")
        for at in sorted({key[0] for key in run.records}):
            record = run.find(dataset, task, metric, score, at)
            if record is not None:
                found.setdefault(at, []).append((total - own + at * own, record.value))
    return [
        (mean([x for x, _ in points]), 100 * mean([y for _, y in points]), 100 * (std([y for _, y in points]) or 0))
        for _, points in sorted(found.items())
    ]


def _primary_label(results: Results) -> str:
    dataset, task, metric = primary(results)
    return f"{dataset} {detail(task)} {metric_label(metric)}, %"


def _bars(results: Results) -> str:
    return " Bars: one standard deviation over seeds." if len(results.plan["seeds"]) > 1 else " One seed: no bars."
