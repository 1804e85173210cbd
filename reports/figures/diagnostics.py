"""Figures of what methods learned: similarities of all methods, and each method's own distributions.

Histograms are drawn as strips above each other over one axis, one per noise or method, each curve scaled to its own
peak: shapes and positions are compared, and a report of many methods takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

from reports.figures.figure_style import Sheet, broken, finish, marked, medium, plain
from reports.figures.histograms import SIMILAR, SIMILARITIES, Entry, Learned, name_of, own_names, read
from reports.figures.pictures import COLOURS, Picture
from reports.plan_fields import begins_at
from reports.results import Results

Style = tuple[str, str, int, str, str]  #: diagnostic, series, way, colour, words of the legend
FILL = 0.45  #: opacity


def similarities(results: Results, diagnostics: Learned) -> Picture | None:
    """Draw the similarities of pairs, one row per method. None if no method has any."""
    known = {name for entries in diagnostics.values() for name in SIMILARITIES.keys() & entries.keys()}
    styles = [(name, *style) for name, several in SIMILARITIES.items() if name in known for style in several]
    methods = [
        m for m in results.methods if any(SIMILARITIES.keys() & diagnostics[m, noise] for noise in results.noises)
    ]
    caption = (
        "Distribution of the cosine similarity of pairs under the final weights, one row per method. Upwards: "
        "held-out pairs. Downwards, where pairs were corrupted on purpose: training pairs; a corrupted one that lies "
        "among the clean ones was memorised. Each curve is scaled to its own peak."
    )
    inches = 0.16 if medium().width else 0.36
    return strips_of_methods(SIMILAR, results, diagnostics, methods, styles, inches, caption)


def strips_of_methods(
    name: str,
    results: Results,
    diagnostics: Learned,
    methods: Sequence[str],
    styles: Sequence[Style],
    inches: float,
    caption: str,
) -> Picture | None:
    """Draw one panel per noise with a row per method, `inches` apart, and the histograms of `styles` in each.

    None if no method has a diagnostic that the styles name.
    """
    names = list(dict.fromkeys(style[0] for style in styles))
    there = (diagnostics[method, noise] for method in methods for noise in results.noises)
    used = [entries[one] for entries in there for one in names if one in entries]
    if not used:
        return None
    lines = [marked(results, method) for method in methods]
    left = 0.2 + medium().letter * max(map(len, lines))
    legend = [_key(colour, words) for _, _, _, colour, words in styles]
    height, margins = 0.75 + inches * len(methods), (0.15, 0.15, 0.45, 0.3)
    titles = list(results.noises)
    sheet = Sheet(legend, len(titles), 2.9, height, margins, left - 0.15, least=1.05, titles=titles)
    for place, noise in enumerate(titles):
        panel = sheet.panel(place, xlabel=plain(used[0]["axis"]), xlim=_ends(used))
        _strips(panel, lines, (len(methods) - 0.5, -0.5))
        panel.tick_params(labelleft=sheet.begins_row(place))
        if medium().width:
            panel.xaxis.set_major_locator(MaxNLocator(3))
        for of, series, way, colour, _ in styles:
            _fill(panel, [diagnostics[method, noise].get(of) for method in methods], series, colour, 0.46 * way)
    return finish(name, f"{caption}{_remarks(used)}", sheet.figure)


def own_diagnostics(results: Results, method: str, diagnostics: Learned) -> Picture | None:
    """Draw one panel per diagnostic, one strip per noise and one colour per series. None if the method has none."""
    noises = [noise for noise in results.noises if diagnostics[method, noise].keys() - SIMILARITIES]
    own = own_names(results, method, diagnostics)
    if not own:
        return None
    entries = {name: [diagnostics[method, noise].get(name) for noise in noises] for name in own}
    series = {name: list(dict.fromkeys(key for e in entries[name] if e for key in e["series"])) for name in own}
    lines = [broken(noise, 0.9) if medium().width else plain(noise) for noise in noises]
    widest = max(len(line) for label in lines for line in label.splitlines())
    left, above = 0.2 + medium().letter * widest, 0.16 * max(map(len, series.values()))
    room = 2.0 if medium().width else 3.1
    titles = {name: broken(next(e for e in entries[name] if e)["title"], room) for name in own}
    beside = above  # of the legends, which stand under the titles
    above += 0.17 * max(title.count("\n") for title in titles.values())
    height = 0.85 + above + 0.55 * len(noises)
    sheet = Sheet((), len(own), left + 3.1, height, (left, 0.3, 0.45, 0.35 + above), least=left + 2)
    for place, name in enumerate(own):
        here = [entry for entry in entries[name] if entry]
        panel = sheet.panel(place, xlabel=plain(here[0]["axis"]))
        _scale(panel, here)
        _name_one_number(panel, here)
        panel.set_title(titles[name], pad=72 * beside + 4, loc="left")
        _strips(panel, lines, (len(noises) - 0.9, -0.98))
        colours = dict(zip(series[name], cycle(COLOURS), strict=False))
        for key, colour in colours.items():
            _fill(panel, entries[name], key, colour, 0.9)
        keys = [_key(colour, plain(key)) for key, colour in colours.items()]
        panel.legend(handles=keys, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, fontsize=7, handlelength=1)
    used = [entry for row in entries.values() for entry in row if entry]
    caption = f"{results.named(method)}: one strip per noise, each curve scaled to its own peak.{_remarks(used)}"
    return finish(name_of(results, method), caption, sheet.figure)


def _remarks(entries: Sequence[Entry]) -> str:
    """Say which seeds are shown, and how many numbers could not be drawn."""
    seeds = sorted({entry["seed"] for entry in entries})
    shown = f" Seed {seeds[0]} alone." if len(seeds) == 1 else f" One seed each, of {', '.join(map(str, seeds))}."
    everything = [series for entry in entries for series in entry["series"].values()]
    dropped = sum(series["dropped"] for series in everything)
    if any(len(series["counts"]) == 1 for series in everything):
        shown += " A thin bar is one number: all are equal."
    return shown + (f" {dropped:,} numbers are omitted: not finite, or without a logarithm." if dropped else "")


def _key(colour: str, words: str) -> Patch:
    return Patch(color=colour, alpha=FILL, label=words)


def _ends(entries: Sequence[Entry]) -> tuple[float, float]:
    return min(entry["edges"][0] for entry in entries), max(entry["edges"][-1] for entry in entries)


def _scale(panel: Axes, entries: Sequence[Entry]) -> None:
    """Give the panel tick labels: few enough to fit next to each other, with all of their digits."""
    low, high = _ends(entries)
    if entries[0]["log"]:
        panel.set_xscale("log")
        panel.minorticks_off()
    panel.set_xlim(low, high)
    if not entries[0]["log"]:
        panel.xaxis.set_major_locator(MaxNLocator(_ticks()))
        return
    if high < 10 * low:  # powers of ten alone would leave the axis almost without numbers
        panel.xaxis.set_major_locator(MaxNLocator(_ticks()))
    elif high < 100 * low:
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # the exponents of powers are too small in a column


def _name_one_number(panel: Axes, entries: Sequence[Entry]) -> None:
    """Label the value that all numbers share: round numbers around it would not tell which it is."""
    everything = [series for entry in entries for series in entry["series"].values()]
    values = {series["mean"] for series in everything}
    if len(values) == 1 and all(len(series["counts"]) == 1 for series in everything):
        panel.set_xticks(list(values), [f"{value:.4g}" for value in values])


def _ticks() -> int:
    """Return the maximum number of intervals between tick labels."""
    return 3 if medium().width else 4


def _strips(panel: Axes, names: Sequence[str], limits: tuple[float, float]) -> None:
    """Give the panel a row for each name, from the top."""
    panel.set_ylim(limits)
    panel.set_yticks(range(len(names)), names, fontsize=medium().names)
    panel.tick_params(axis="x", labelsize=7)
    panel.spines["left"].set_visible(False)


def _spike(panel: Axes, value: float) -> tuple[float, float]:
    """Return the edges of a thin bar at a value that all numbers share; their one bin is as wide as the axis."""
    low, high = panel.get_xlim()
    if panel.get_xscale() == "log":
        factor = (high / low) ** 0.004
        return value / factor, value * factor
    return value - 0.004 * (high - low), value + 0.004 * (high - low)


def _fill(panel: Axes, entries: Sequence[Entry | None], series: str, colour: str, height: float) -> None:
    """Draw this series of every entry as a filled histogram on the line of its place."""
    shapes = []
    for place, entry in enumerate(entries):
        counts = entry["series"].get(series, {}).get("counts") if entry else None
        if entry and counts:
            heights = np.repeat(np.array([0, *counts, 0]) / max(counts), 2)[1:-1]
            edges = _spike(panel, entry["series"][series]["mean"]) if len(counts) == 1 else entry["edges"]
            shapes.append(np.column_stack((np.repeat(edges, 2), place - height * heights)))
    filled = PolyCollection(shapes, facecolors=[(colour, FILL)], edgecolors=[colour], linewidths=0.6)
    panel.add_collection(filled, autolim=False)


_STYLES: tuple[Style, ...] = (
    ("similarity", "negative mean", 1, COLOURS[7], "mean of an image's negatives"),
    ("similarity", "negative top", 1, COLOURS[1], "mean of its largest 5 %"),
    ("similarity", "positive", 1, COLOURS[0], "positive pairs"),
)


def before_after(results: Results) -> Picture | None:
    """Draw a strip for every untrained row, above those that start from its weights. None without such rows."""
    methods = _in_order(results)
    if len(methods) < 2:
        return None
    diagnostics = read(results, methods)
    caption = (
        "Cosine similarity of held-out pairs before and after training: one strip per row, the untrained "
        "one above those that start from its weights. For each image: its own text, the mean over the texts of others, "
        "and the mean of the largest 5 % of these. Each curve is scaled to its own peak."
    )
    return strips_of_methods(
        "before_after", results, diagnostics, methods, _STYLES, 0.34 if medium().width else 0.6, caption
    )


def _in_order(results: Results) -> list[str]:
    """Labels: each untrained row, then the rows that begin where it stays."""
    trained = {label: entry for label, entry in results.methods.items() if not entry.get("untrained")}
    labels: list[str] = []
    for label, entry in results.methods.items():
        after = [one for one, other in trained.items() if begins_at(other) == begins_at(entry) is not None]
        if entry.get("untrained") and after:
            labels += [label, *after]
    return list(dict.fromkeys(labels))
