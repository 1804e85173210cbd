"""Scores along training, over epochs or shares of the budget (NUCLR's Figures 3 and 4), where `evaluate.along` asks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from bench.store.selection import LAST
from reports.figures.chosen import about_others, line_styles, named_in
from reports.figures.figure_style import Sheet, finish, plain, room_for_names
from reports.figures.lines import bars, beside, draw_lines, height, limits, name_lines
from reports.figures.pictures import Picture
from reports.results import Results
from reports.statistics.paired import Floats, mean, std
from reports.vocabulary import detail, family, kind_of, metric_label

Point = tuple[str, str, str]  #: noise, data set, task
WITHOUT_MAIN = "mean_r1"  #: metric of a family that no table compares methods by, such as validation


def course(results: Results) -> Picture | None:
    """Draw a panel for each data set and task that is measured along the runs, under each noise. None without any."""
    curves = _curves(results)
    if not curves:
        return None
    methods = [label for label in results.methods if any(label in lines for lines in curves.values())]
    styles = line_styles(results, methods)
    room = room_for_names(named_in(styles))
    titles = [noise for noise, *_ in curves]
    sheet = Sheet(
        (), len(curves), 3.8 + room, height(3.4, len(named_in(styles)), 0.8), (0.75, room, 0.5, 0.3), titles=titles
    )
    for place, ((noise, dataset, task), lines) in enumerate(curves.items()):
        whole, unit = _end(results, noise)
        panel = sheet.panel(place, xlabel=unit)
        what = detail(task) or family(task)
        of = dataset.removesuffix(f"/{what}")  # "flickr30k/validation", of the task "validation"
        panel.set_ylabel(beside(sheet, plain(f"{of} {what} {metric_label(_metric(task))}, %")))
        panel.set(xlim=(0, 1.04 * whole), ylim=limits(lines.values()))
        ends = draw_lines(panel, styles, {label: lines[label] for label in styles if label in lines})
        name_lines(panel, results, styles, ends)
    caption = (
        "Scores of the weights along each run; the axis need not begin at 0. The learning rate has come down only at "
        "the last point, so earlier points are not shorter runs." + bars(results) + about_others(results, styles)
    )
    return finish("course", caption, sheet.figure)


def _end(results: Results, noise: str) -> tuple[float, str]:
    """The end of a block's axis, and what it counts."""
    in_epochs = results.plan["budget"]["kind"] == "epochs"
    return (results.budget(noise), "epochs") if in_epochs else (100.0, "% of the budget")


def _metric(task: str) -> str:
    kind = kind_of(family(task))
    return (kind.main if kind else "") or WITHOUT_MAIN


def _curves(results: Results) -> Mapping[Point, Mapping[str, Floats]]:
    """For each panel the lines: label -> [3, n], x, means over seeds in percent, standard deviations."""
    along = (results.plan["settings"].get("evaluate") or {}).get("along") or ()
    values: dict[Point, dict[str, dict[float, list[float]]]] = {}
    plain = {run.run for run in results.runs if run.select == LAST}
    for run in results.runs:
        if run.select != LAST and run.run in plain:
            continue  # the same course
        own = results.methods[run.method]["score"]
        for (at, dataset, task, metric, score), record in run.measured.items():
            if family(task) in along and metric == _metric(task) and score in (own, ""):
                points = values.setdefault((run.noise, dataset, task), {}).setdefault(run.method, {})
                points.setdefault(at, []).append(100 * record.value)
    return {
        place: {label: _line(lines[label], _end(results, place[0])[0]) for label in results.methods if label in lines}
        for place, lines in sorted(values.items(), key=lambda item: list(results.noises).index(item[0][0]))
    }


def _line(points: Mapping[float, list[float]], whole: float) -> Floats:
    ordered = sorted(points.items())
    spread = [math.nan if (own := std(scores)) is None else own for _, scores in ordered]
    return np.array([[at * whole for at, _ in ordered], [mean(scores) for _, scores in ordered], spread])
