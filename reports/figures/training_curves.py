"""Scores along training over epochs (NUCLR's Figures 3 and 4), where `evaluate.along` asks."""

from __future__ import annotations

from collections.abc import Mapping

from bench.store.selection import LAST
from reports.epochs import baseline_epochs
from reports.figures.chosen import about_others
from reports.figures.figure_style import finish, plain
from reports.figures.lines import Lines, bars, beside, draw_lines, limits, lines_over, sheet_of_lines
from reports.figures.pictures import Picture
from reports.results import Results
from reports.vocabulary import detail, family, main_metric, metric_label

Point = tuple[str, str, str]  #: noise, data set, task
WITHOUT_MAIN = "mean_r1"  #: metric of a family that no table compares methods by, such as validation


def course(results: Results) -> Picture | None:
    """Draw a panel per noise, data set and task that is measured along the runs. None without any."""
    everything = _curves(results)
    curves = {point: lines for point, lines in everything.items() if any(line[1].any() for line in lines.values())}
    if not curves:
        return None
    sheet, styles = sheet_of_lines(results, list(curves.values()), [noise for noise, *_ in curves])
    for place, ((noise, dataset, task), lines) in enumerate(curves.items()):
        whole, unit = _end(results, noise)
        panel = sheet.panel(place, xlabel=unit)
        what = detail(task) or family(task)
        of = dataset.removesuffix(f"/{what}")  # "flickr30k/validation", of the task "validation"
        panel.set_ylabel(beside(sheet, plain(f"{of} {what} {metric_label(_metric(task))}, %")))
        panel.set(xlim=(0, 1.04 * whole), ylim=limits(lines.values()))
        draw_lines(panel, results, styles, lines)
    caption = (
        "Scores of the weights along each run; the axis need not begin at 0. The learning rate has decayed only at "
        "the last point, so earlier points are not shorter runs." + bars(results) + about_others(results, styles)
    )
    flat = dict.fromkeys(f"{metric_label(_metric(task))} ({noise})" for noise, _, task in everything.keys() - curves)
    caption += f" 0 for every method at every point, so not drawn: {', '.join(sorted(flat))}." if flat else ""
    return finish("course", caption, sheet.figure)


def _end(results: Results, noise: str) -> tuple[float, str]:
    """The end of a block's axis, and what it counts: of other budgets than epochs, those that the baseline gets."""
    plan = results.plan
    if plan["budget"]["kind"] == "epochs":
        return results.budget(noise), "epochs"
    epochs = baseline_epochs(plan).get(noise)
    return (epochs, f"budget, epochs of {results.named(results.baseline)}") if epochs else (100.0, "% of the budget")


def _metric(task: str) -> str:
    return main_metric(task) or WITHOUT_MAIN


def _curves(results: Results) -> Mapping[Point, Lines]:
    """For each panel the lines, in percent over what its axis counts."""
    along = results.plan["settings"]["evaluate"].get("along", ())
    values: dict[Point, list[tuple[str, float, float]]] = {}
    plain = {run.run for run in results.runs if run.select == LAST}
    for run in results.runs:
        if run.select != LAST and run.run in plain:
            continue  # the same course
        own, (whole, _) = results.methods[run.method]["score"], _end(results, run.noise)
        for (at, dataset, task, metric, score), record in run.measured.items():
            if family(task) in along and metric == _metric(task) and score in (own, ""):
                point = run.method, at * whole, 100 * record.value
                values.setdefault((run.noise, dataset, task), []).append(point)
    order = list(results.noises)
    return {place: lines_over(values[place]) for place in sorted(values, key=lambda place: order.index(place[0]))}
