"""How a cell is computed: one measure of every run of a method under a noise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.store.selection import LAST
from reports.results import Results, RunResult, uses
from reports.statistics.paired import mean, std, unbeaten
from reports.tables.table import Cell, Column, Measured, Row, State
from reports.vocabulary import detail, family, kind_of, metric_label

TIED = 1 / 3  #: if more than this share of a block's rows would be bold, its seeds cannot rank them
Found = Measured | Literal["not applicable"] | None
Ask = Callable[[RunResult, str], Found]  #: (run, score) -> the run's number, or why it has none


@dataclass(frozen=True)
class Measure:
    """A column and how a run fills it."""

    column: Column
    ask: Ask
    comparable: bool = True  #: whether all runs were measured on the same data
    parts: int = 1  #: stored numbers of a run that it averages


@dataclass(frozen=True)
class Line:
    """A row to be filled: a method and the score (cosine, csd) by which it is read."""

    label: str
    method: str
    score: str
    compared: bool


def column_name(dataset: str, task: str, metric: str) -> str:
    """A stored number's column, unique over all tables."""
    return f"{dataset} {task} {metric}"


def record_measure(
    results: Results, dataset: str, task: str, metric: str, label: str | None = None, group: str | None = None
) -> Measure:
    """The column of one stored number."""
    entry = results.plan["datasets"].get(dataset, {})
    kind = kind_of(family(task))
    needs_noise = kind is not None and (kind.on_poison or metric in kind.of_noise)
    of_variances = kind is not None and metric in kind.of_variances
    main = kind.main if kind is not None else metric

    def ask(run: RunResult, score: str) -> Found:
        if needs_noise and not (run.manifest and run.manifest["rows"]):
            return "not applicable"
        if of_variances and results.methods[run.method]["score"] != "csd":
            return "not applicable"
        record = run.find(dataset, task, metric, score)
        if record is None:  # tasks are measured as a whole: a number missing among others does not apply
            selected = run.select != LAST and run.at is not None  # then numbers of the last weights are not its
            known = run.of_last if selected else run
            return "not applicable" if known.find(dataset, task, main or metric, score) else None
        return Measured(run.run, run.seed, record.value, record.n, record.low, record.high)

    column = Column(
        name=column_name(dataset, task, metric),
        label=metric_label(metric) if label is None else label,
        group=f"{dataset} {detail(task)}".strip() if group is None else group,
        higher_is_better=results.directions.get((dataset, task, metric), True),
        description=f"{entry.get('description', dataset)} (n = {entry['n']:,})" if "n" in entry else dataset,
        chance=entry.get("chance", {}).get(f"{task}/{metric}"),
        most=6.0 if metric == "rsum" else 1.0,
    )
    return Measure(column, ask, (dataset, task) not in results.mixed)


def averaged(parts: Sequence[Ask]) -> Ask:
    """Return a measure of the mean of several measures of the same run; a run that lacks one of them has no mean."""

    def ask(run: RunResult, score: str) -> Found:
        answers = [part(run, score) for part in parts]
        if "not applicable" in answers:
            return "not applicable"
        values = [one.value for one in answers if isinstance(one, Measured)]
        return Measured(run.run, run.seed, mean(values)) if len(values) == len(parts) else None

    return ask


def average_measure(name: str, label: str, group: str, parts: Sequence[Measure]) -> Measure:
    """The mean over several measures of the same run; a run that lacks one of them has none."""
    description = "mean of " + "; ".join(f"{part.column.group} {part.column.label}" for part in parts)

    chances = [part.column.chance for part in parts if part.column.chance is not None]
    chance = mean(chances) if len(chances) == len(parts) else None
    higher = parts[0].column.higher_is_better
    column = Column(name, label, group, "percent", higher, description, chance)
    comparable = all(part.comparable for part in parts)
    return Measure(column, averaged([part.ask for part in parts]), comparable, len(parts))


def lines(results: Results, measures: Sequence[Measure]) -> list[Line]:
    """A row for each method by its own score, and one for every other score that these measures have of its weights."""
    names = {measure.column.name for measure in measures}
    all_lines = []
    for label, entry in results.methods.items():
        main = entry["score"]
        scores = {score for *named, score in results.scores[label] if column_name(*named) in names}
        others = sorted(scores - {main, ""})
        all_lines.append(Line(f"{label} ({main})" if others else label, label, main, True))
        all_lines.extend(Line(f"{label} ({score})", label, score, False) for score in others)
    return all_lines


def cell(runs: Sequence[RunResult], measure: Measure, score: str) -> Cell:
    """Return mean and standard deviation over the runs with a value, and the states of those without one."""
    measured: list[Measured] = []
    lacking: list[tuple[str, State]] = []
    for run in runs:
        answer = measure.ask(run, score)
        if isinstance(answer, Measured):
            measured.append(answer)
        else:
            lacking.append((run.run, answer or run.lacking))
    over = any(run.over_budget for run in runs)
    if not measured:
        return Cell(worst([state for _, state in lacking]), lacking=tuple(lacking))
    values = [part.value for part in measured]
    return Cell("value", mean(values), std(values), tuple(measured), tuple(lacking), over_budget=over)


def cells_under(results: Results, noise: str, measure: Measure, labels: Iterable[str] | None = None) -> dict[str, Cell]:
    """Return label -> cell under a noise, each under its method's own score; by default of all methods."""
    chosen = results.methods if labels is None else labels
    return {label: cell(results.of(label, noise), measure, results.methods[label]["score"]) for label in chosen}


def lead(runs: Sequence[RunResult], text: str = "–") -> Cell:
    """Return a cell that leads to a method's runs and says whether one of them exceeded its budget."""
    over = any(run.over_budget for run in runs)
    return Cell("value", text=text, sources=tuple(run.run for run in runs), over_budget=over)


def values_by_seed(
    results: Results, noise: str, measure: Measure, labels: Iterable[str]
) -> dict[str, dict[int, float]]:
    """Return label -> seed -> value under each method's own score, of the labels that have a value."""
    cells = cells_under(results, noise, measure, labels)
    return {label: one.by_seed for label, one in cells.items() if one.measured}


def worst(states: Sequence[State]) -> State:
    """Return the state that needs attention most."""
    order: tuple[State, ...] = ("damaged", "failed", "running", "interrupted", "missing", "not applicable")
    return next((state for state in order if state in states), "missing")


def rows(
    results: Results,
    measures: Sequence[Measure],
    all_lines: Sequence[Line],
    unlearned: Mapping[str, Collection[str]],
) -> list[Row]:
    """All rows, grouped by noise, nothing in bold. `unlearned`: noise -> methods at chance."""
    all_rows: list[Row] = []
    for noise in results.noises:
        for line in all_lines:
            runs = results.of(line.method, noise)
            if runs or results.inapplicable(line.method, noise):
                cells = tuple(
                    cell(runs, measure, line.score) if runs else Cell("not applicable") for measure in measures
                )
                entry = results.methods[line.method]
                at_chance = line.method in unlearned[noise]
                compared = line.compared and line.method in results.ranked and not at_chance
                about = (entry["fidelity"], uses(entry))
                all_rows.append(Row(line.label, cells, noise, line.method, compared, *about, unlearned=at_chance))
    return all_rows


def in_bold(
    group: Sequence[Row], columns: Sequence[Column], ranking: Sequence[bool], baseline: str
) -> tuple[list[Row], int]:
    """Return the rows of a block with the best of its columns in bold, and how many columns its seeds cannot rank.

    There, more than `TIED` of the rows would be bold, so nothing is. `ranking`: whether a column ranks at all.
    """
    base = next((row.label for row in group if row.compared and row.method == baseline), "")
    leading, tied = list[set[str]](), 0
    for place, (column, ranks) in enumerate(zip(columns, ranking, strict=True)):
        values = {row.label: own for row in group if row.compared and (own := row.cells[place].by_seed)}
        best = unbeaten(values, bool(column.higher_is_better), base) if ranks and values else set[str]()
        ties = len(best) > max(1, TIED * len(values))
        tied += ties
        leading.append(set() if ties else best)
    made = []
    for row in group:
        cells = (replace(one, bold=row.label in best) for one, best in zip(row.cells, leading, strict=True))
        made.append(replace(row, cells=tuple(cells)))
    return made, tied
