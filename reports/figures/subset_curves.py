"""Scores against the share of pairs that runs trained on (NCU's Figure 4): a row per share, a line per treatment."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reports.figures.figure_style import MARK, Sheet, finish
from reports.figures.lines import Lines, bars, beside, draw_lines, limits, sheet_of_lines
from reports.figures.pictures import COLOURS, MARKERS, Picture
from reports.headlines import by_family, headlines
from reports.measure import Measure, cell, cells_under
from reports.plan_fields import begins_at, recipe
from reports.results import Results
from reports.statistics.paired import Floats
from reports.statistics.regimes import Regimes, regimes
from reports.vocabulary import kind_of


def shares(results: Results) -> Picture | None:
    """Draw a panel for each of the suite's questions under each noise, over the share of kept pairs in percent.

    Rows of one line differ in their share alone. None without a line of two shares.
    """
    groups = _groups(results)
    asked = [(noise, one) for noise in results.noises for one in _questions(results)] if groups else []
    panels = [(noise, one, lines) for noise, one in asked if (lines := _lines(results, groups, noise, one))]
    if not panels:
        return None
    starts = {label: _start(results, label) for *_, lines in panels for label in lines}
    shown = [*starts, *filter(None, starts.values())]
    sheet, styles = sheet_of_lines(results, [shown] * len(panels), [noise for noise, *_ in panels])
    for place, (noise, measure, lines) in enumerate(panels):
        panel = sheet.panel(place, xlabel="pairs trained on, %")
        panel.set_ylabel(beside(sheet, f"{measure.column.group}: {measure.column.label}, %"))
        cells = cells_under(results, noise, measure, filter(None, starts.values()))
        before = {label: 100 * one.value for label, one in cells.items() if one.value is not None}
        panel.set(xlim=(0, 103), ylim=limits(lines.values(), before.values()))
        draw_lines(panel, results, styles, lines, {label: (103, score) for label, score in before.items()})
        for label, score in before.items():
            panel.axhline(score, color=styles[label]["color"], linewidth=1, dashes=(4, 2))
    caption = (
        "Scores against the share of the pairs that a run trained on; the axis need not begin at 0. Dashed: the "
        "weights that the rows start from." + bars(results)
    )
    return finish("shares", caption, sheet.figure)


def kept_share(results: Results) -> Picture | None:
    """Draw the gain over the baseline against the share kept: a panel per noise and choice of pairs, a line per budget.

    Horizontal lines are the oracle's gain. None without several budgets and a choice with two shares below the whole.
    """
    base, groups = results.named(results.baseline), _groups(results)
    groups = [labels for labels in groups if results.baseline in labels and len(labels) > 2]
    panels = [
        (one, labels) for one in regimes(results) for labels in groups if len(_gains(results, one, 0, labels)[0]) > 2
    ]
    if not panels:
        return None
    titles = [f"{one.noise}: {results.named(labels[0]).partition(', ')[0]}" for one, labels in panels]
    sheet = Sheet((), len(panels), 4.2, 3.4, (0.8, 0.2, 0.8, 0.3), titles=titles)
    column = panels[0][0].contrasts[0].measure.column
    for place, (one, labels) in enumerate(panels):
        panel = sheet.panel(place, xlabel="pairs trained on, %")
        panel.set_ylabel(beside(sheet, f"{column.label}: better by, points"))
        panel.axhline(0, color="#888888", linewidth=0.8)
        for number, (budget, contrast) in enumerate(zip(one.budgets, one.contrasts, strict=True)):
            colour = COLOURS[number % len(COLOURS)]
            x, y, half = _gains(results, one, number, labels)
            panel.errorbar(x, y, half, color=colour, label=f"{budget:g} {one.unit}", **MARK, marker=MARKERS[number % 8])
            if contrast.gap:
                panel.axhline(100 * contrast.gap.value, color=colour, linewidth=1, dashes=(4, 2))
        panel.set_xlim(0, 103)
    sheet.figure.legend(*panel.get_legend_handles_labels(), loc="lower center", ncols=4)
    caption = (
        f"{column.label}: mean difference from {base} over seeds against the share of the pairs that a run trained on; "
        "100 % is the baseline itself. Bars: 95 % intervals, not adjusted. Dashed: the oracle at the same budget."
    )
    return finish("kept_share", caption, sheet.figure)


def _gains(results: Results, one: Regimes, number: int, labels: Sequence[str]) -> Floats:
    """Return [3, n]: shares in percent, gains at the budget of that number and half intervals in points."""
    total, contrast = results.plan["data"]["rows"], one.contrasts[number]
    points = {100.0: (0.0, 0.0)}
    for label in labels:
        kept = next((run.kept_rows for run in results.of(label, contrast.noise) if run.kept_rows), None)
        if kept and total and (gain := contrast.gain(label)):
            points[100 * kept / total] = (100 * gain.value, 100 * (gain.high - gain.value))
    return np.array([(share, *gain) for share, gain in sorted(points.items())]).T


def _questions(results: Results) -> list[Measure]:
    """One number for each question that runs without noise answer as well."""
    noisy = {f"average {name}" for name in by_family(results) if (kind := kind_of(name)) and kind.needs_noise}
    return [one for one in headlines(results) if one.column.name not in noisy]


def _groups(results: Results) -> list[list[str]]:
    """Rows that differ in the share of kept pairs alone; a row that keeps all belongs to every kind of choice."""
    whole: dict[str, list[str]] = {}
    parts: dict[tuple[str, str], list[str]] = {}
    for label, entry in results.methods.items():
        same = recipe(entry)
        if entry.get("untrained"):
            continue
        if keep := entry["keep"]:
            parts.setdefault((same, _kind(keep)), []).append(label)
        else:
            whole.setdefault(same, []).append(label)
    return [[*labels, *whole.get(same, [])] for (same, _), labels in parts.items()]


def _kind(keep: Mapping[str, Any]) -> str:
    """ "score 0.5 by rcl" -> "score by rcl"; rows whose pairs other weights score are of another kind."""
    external = json.dumps(keep.get("external")) if keep.get("external") else ""
    kind, _, rest = keep["label"].partition(" ")
    return f"{kind} {rest.partition(' ')[2]}".strip() + external


def _lines(results: Results, groups: Iterable[list[str]], noise: str, measure: Measure) -> Lines:
    """The lines over shares, in percent, each under the row with the largest share that names no other line."""
    total = results.plan["data"]["rows"]
    lines: dict[str, Floats] = {}
    if not total:
        return lines
    for labels in groups:
        points = {}
        for label in labels:
            runs = results.of(label, noise)
            mean = cell(runs, measure, results.methods[label]["score"])
            if mean.value is not None:
                kept = next((run.kept_rows for run in runs if run.kept_rows), total)
                points[100 * kept / total] = (label, 100 * mean.value, math.nan if mean.std is None else 100 * mean.std)
        if len(points) > 1:
            ordered = sorted(points.items())
            names = [label for _, (label, *_) in reversed(ordered)]  # the whole row may end several lines
            lines[next(one for one in names if one not in lines)] = np.array(
                [(share, value, std) for share, (_, value, std) in ordered]
            ).T
    return lines


def _start(results: Results, label: str) -> str | None:
    """The untrained row with the weights that a row starts from."""
    begins = begins_at(results.methods[label])
    rows = (one for one, entry in results.methods.items() if entry.get("untrained") and begins_at(entry) == begins)
    return next(rows, None) if begins else None
