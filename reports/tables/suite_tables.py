"""The tables of a suite's report."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from reports.headlines import Named, by_family, headlines, primary
from reports.measure import Found, Line, Measure, average_measure, cell, in_bold, lines, record_measure, rows
from reports.results import Results, RunResult
from reports.statistics.chance import is_chance, unlearned
from reports.statistics.contrasts import contrasts
from reports.statistics.paired import mean
from reports.tables.filter_or_loss import filter_tables
from reports.tables.footnotes import brief, footnotes, method_row, notes_for
from reports.tables.selection import selection_table
from reports.tables.table import Cell, Column, Measured, Row, Table, Unit
from reports.tables.tuning import tuning_table
from reports.tables.vs_baseline import against_tables
from reports.vocabulary import detail, kind_of, metric_label

ALIKE = 0.05  #: costs that are so near to the baseline's are the same


def tables(results: Results) -> list[Table]:
    """Overview, comparisons with the baseline, one table for each task family, costs, tuning."""
    families, tuning, compared = by_family(results), tuning_table(results), contrasts(results)
    selection = selection_table(results)
    return [
        overview(results),
        *against_tables(results, compared),
        *filter_tables(results),
        *([selection] if selection else []),
        *(
            replace(family_table(results, name, measures), name=_file_name(name, place))
            for place, (name, measures) in enumerate(families.items(), start=1)
        ),
        cost(results),
        *([tuning] if tuning else []),
    ]


def _file_name(name: str, place: int) -> str:
    """The name of a family's table, which becomes a file, an anchor and a LaTeX label.

    A family of another version or machine, which we do not know, has its place in the name: nothing else has that name.
    """
    return name if kind_of(name) else f"family-{place}-{re.sub('[^a-z0-9_]+', '-', name.lower())[:40].strip('-')}"


def overview(results: Results) -> Table:
    """One row per method and noise, one column per question, and the cost if it differs."""
    costs = relative_costs(results).values()
    alike = bool(costs) and max(abs(cost - 1) for cost in costs) <= ALIKE  # then a column of ones says nothing
    measures = [*headlines(results), *([] if alike else [relative_cost(results)])]
    averages = [f"{m.column.group}: {m.column.description}." for m in measures if m.parts > 1]
    what = "One row per method and noise, one column per question."
    return _table(results, "overview", "Overview", what, measures, lines(results, ()), averages)


def paper_table(results: Results, whole: Table, methods: Sequence[str]) -> Table:
    """The primary metric from the overview `whole`: a row for each of these methods, a column per noise.

    Of several budgets the longest. Bold is among all rows of the suite.
    """
    one, cells = whole.columns[0], {(row.method, row.group): row.cells[0] for row in whole.rows}
    noises = [noise for noise in results.longest.noises if any(group == noise for _, group in cells)]
    columns = tuple(replace(one, name=noise, label=noise, group=f"{one.group} {one.label}") for noise in noises)
    rows = [method_row(results, label, (cells[label, noise] for noise in noises)) for label in methods]
    whole = replace(whole, description="One row per method, one column per noise.")
    return replace(whole, name="paper", title="Scores under noise", columns=columns, rows=tuple(rows))


def family_table(results: Results, name: str, stored: Sequence[Named]) -> Table:
    """All numbers of one task family."""
    kind = kind_of(name)
    if len({metric for _, _, metric in stored}) == 1:  # then the metric says nothing, and the task does
        measures = [record_measure(results, *one, detail(one[1]) or metric_label(one[2]), one[0]) for one in stored]
    else:
        same_task = len({task for _, task, _ in stored}) == 1
        measures = [record_measure(results, *one, group=one[0] if same_task else None) for one in stored]
    mains = [measure for measure, one in zip(measures, stored, strict=True) if kind and one[2] == kind.main]
    if kind and kind.averaged and len(mains) > 1:
        measures.append(average_measure(f"average {name}", metric_label(kind.main), "average", mains))
    title, text = (kind.title, kind.text) if kind else (name.replace("_", " ").capitalize(), "")
    precision = any(metric == "average_precision" for _, _, metric in stored)
    extra = _chance_of_precision(results) if precision else []
    return _table(results, name, title, text, measures, lines(results, measures), extra)


def cost(results: Results) -> Table:
    """Return the table of costs: the ledger of each run, reference runs included."""
    dataset, task, metric = primary(results)
    score = record_measure(results, dataset, task, metric, f"{dataset} {metric_label(metric)}", "Score")
    measures = [score, relative_cost(results), *(_ledger_measure(*line) for line in _LEDGER)]
    extra = [
        "Counts are algorithmic: FLOPs of matrix products and convolutions, without recomputation; forwards are pairs "
        "sent through a tower. A run that starts from a reference run includes that run's counts and times. Work "
        "repeated after a kill is listed separately and not part of the training time."
    ]
    if lost := sum(run.costs_lost for run in results.runs):
        extra.append(f"The costs of {lost} runs are unknown, as their ledgers were damaged; means are over the others.")
    return _table(results, "cost", "Cost", "What each score cost.", measures, lines(results, ()), extra)


_LEDGER: tuple[tuple[str, str, str, Unit], ...] = (
    ("samples", "samples", "Counted", "count"),
    ("image_forwards", "image forwards", "Counted", "count"),
    ("text_forwards", "text forwards", "Counted", "count"),
    ("flops", "FLOPs", "Counted", "flops"),
    ("train_seconds", "training", "Measured", "seconds"),
    ("data_seconds", "of it waiting", "Measured", "seconds"),
    ("evaluate_seconds", "evaluation", "Measured", "seconds"),
    ("repeated_seconds", "repeated", "Measured", "seconds"),
    ("peak_memory_bytes", "peak memory", "Measured", "bytes"),
)


def spent(ledger: Mapping[str, Any], key: str) -> float:
    """Return what a run, its reference run and the scoring of its pairs spent together; of memory, the largest peak."""
    join: Callable[[list[float]], float] = max if key == "peak_memory_bytes" else sum
    parts = ((ledger.get(part) or {}).get(key, 0) for part in ("reference", "scoring"))
    return join([ledger[key], *parts])


def _ledger_measure(key: str, label: str, group: str, unit: Unit) -> Measure:
    def ask(run: RunResult, _score: str) -> Measured | None:
        return Measured(run.run, run.seed, spent(run.ledger, key)) if run.ledger else None

    return Measure(Column(key, label, group, unit, None), ask)


def relative_cost(results: Results) -> Measure:
    """Training FLOPs in multiples of those of the suite's baseline under the same noise."""
    base, name = results.baseline, results.named(results.baseline)
    spent_by: dict[str, float | None] = {}
    for noise in results.noises:
        known = [spent(run.ledger, "flops") for run in results.of(base, noise) if run.ledger]
        spent_by[noise] = mean(known) if known else None

    def ask(run: RunResult, _score: str) -> Found:
        base_flops = spent_by[run.noise]
        if not run.ledger or base_flops is None:
            return None
        if not base_flops:  # a baseline without a step costs nothing to compare with
            return "not applicable"
        return Measured(run.run, run.seed, spent(run.ledger, "flops") / base_flops)

    description = f"training FLOPs in multiples of {name}'s, reference runs included"
    return Measure(Column("relative cost", f"FLOPs / {name}'s", "Cost", "ratio", None, description), ask)


def relative_costs(results: Results) -> dict[str, float]:
    """Mean training FLOPs of each method over all its runs, in multiples of the baseline's; {} if they are unknown."""
    measure = relative_cost(results)
    runs = {label: [run for noise in results.noises for run in results.of(label, noise)] for label in results.methods}
    known = {label: cell(own, measure, "").value for label, own in runs.items() if label != results.baseline}
    return {label: cost for label, cost in known.items() if cost is not None}


def _table(
    results: Results,
    name: str,
    title: str,
    description: str,
    measures: Sequence[Measure],
    known: Sequence[Line],
    extra: Sequence[str] = (),
) -> Table:
    table_rows, empty = _applicable(rows(results, measures, known, unlearned(results)))
    at_chance = [is_chance((row.cells[i] for row in table_rows), one.column) for i, one in enumerate(measures)]
    columns = tuple(replace(one.column, at_chance=at) for one, at in zip(measures, at_chance, strict=True))
    ranks = [
        one.comparable and one.column.higher_is_better is not None and not at
        for one, at in zip(measures, at_chance, strict=True)
    ]
    table_rows, tied = _in_bold(results, table_rows, columns, ranks)
    notes = notes_for(table_rows)
    texts = (*extra, *_at_chance(columns), *tied, *_of_scores(known), *empty, *footnotes(results, table_rows))
    if any(column.chance is not None for column in columns):
        texts = ("chance: the expected score of a uniformly random guess.", *texts)
        table_rows.append(_chance(columns))
    full = len(results.plan["seeds"])
    planned = {noise: len({run.seed for run in results.runs if run.noise == noise}) for noise in results.noises}
    made = Table(name, title, columns, tuple(table_rows), description, texts, full, notes, seeds=planned)
    short = ["Nothing is bold where more than a third of the rows of a block tie."] if tied else []
    return replace(made, brief=(*brief(results, table_rows), *short))


def _in_bold(
    results: Results, all_rows: Sequence[Row], columns: Sequence[Column], ranks: Sequence[bool]
) -> tuple[list[Row], list[str]]:
    """Return the rows with what leads in bold, and a note on the columns that the seeds of a block cannot rank."""
    made, tied = list[Row](), list[str]()
    for noise, group in groupby(all_rows, key=attrgetter("group")):
        block, alike = in_bold(list(group), columns, ranks, results.baseline)
        made += block
        tied += [f"{noise} ({alike} of {sum(ranks)} columns)"] if alike else []
    note = "Nothing is bold where more than a third of the rows of a block tie, because these seeds cannot rank them: "
    return made, [f"{note}{'; '.join(tied)}."] if tied else []


def _applicable(all_rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return the rows without groups in which nothing can be measured, and a note that names these groups."""
    applies = {row.group for row in all_rows if any(cell.state != "not applicable" for cell in row.cells)}
    left_out = list(dict.fromkeys(row.group for row in all_rows if row.group not in applies))
    note = f"Not under {', '.join(left_out)}: there is nothing of this kind to measure."
    return [row for row in all_rows if row.group in applies], [note] if left_out and applies else []


def _at_chance(columns: Sequence[Column]) -> list[str]:
    """Return a note that names the columns in which no row is significantly above chance."""
    names = "; ".join(f"{column.group} {column.label}".strip() for column in columns if column.at_chance)
    note = f"No row is significantly above chance on {names}: differences there mean nothing, and nothing is bold."
    return [note] if names else []


def _of_scores(known: Sequence[Line]) -> list[str]:
    """Say why the lines of other scores are never bold, if there are any."""
    other = next((line.label for line in known if not line.compared), None)
    if other is None:
        return []
    own = "its method's own. It takes part in no comparison, so it is never bold."
    return [f"A row such as {other} reads the same weights by another score than {own}"]


def _chance_of_precision(results: Results) -> list[str]:
    """Return the average precision of a random guess under each noise: the share of corrupted pairs."""
    shares: dict[str, list[float]] = {}
    for run in results.runs:
        if run.manifest and run.manifest["rows"]:
            shares.setdefault(run.noise, []).append(run.manifest["realised_rate"])
    said = "; ".join(f"{noise}: {100 * mean(found):.1f} %" for noise, found in shares.items())
    return [f"The average precision of a random guess is the share of corrupted pairs ({said})."] if said else []


def _chance(columns: Sequence[Column]) -> Row:
    cells = (Cell("value", text="–") if column.chance is None else Cell("value", column.chance) for column in columns)
    return Row("chance", tuple(cells), compared=False)
