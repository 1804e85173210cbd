"""A suite's numbers next to those of a paper: which run, which record, and how far from the printed one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.catalogue.evaluation_sets import evaluation_sets
from reports.measure import Ask, Found, Measure, averaged, cell
from reports.papers.layouts import DATASETS, Own, value
from reports.papers.printed_tables import NOT_OURS, Beside, Printed, beside, printed
from reports.papers.published import Published
from reports.results import Results, RunResult
from reports.tables.footnotes import other_protocols
from reports.tables.table import UNVERIFIED, Cell, Column, Measured, Table, unverified
from reports.vocabulary import family

Tasks = dict[tuple[str, str, str], list[str]]  #: (dataset, family, metric) -> tasks that are measured


def paper_tables(results: Results, folder: Path) -> list[Table]:
    """The tables of papers that a suite declares, its own numbers next to the printed ones.

    `folder` holds the published numbers. Raises UserError if it lacks a table of the plan.
    """
    first = results.plan["tables"]
    papers = [first, *first.get("others", ())] if first else []
    return [table for declared in papers for table in _tables_of(results, declared, folder)]


def _tables_of(results: Results, declared: Mapping[str, Any], folder: Path) -> list[Table]:
    notes = [_about(results)]
    for label in declared.get("rows", ()):
        entry = results.methods.get(label)
        if entry and unverified(entry["fidelity"]):
            notes.append(f"Ours, {label}: {UNVERIFIED} {entry['title']} is not verified. {entry['note']}".strip())
    notes += other_protocols(results)
    tables = [printed(folder, declared["paper"], number) for number in declared["numbers"]]
    made = [beside(table, _beside(table, results, declared), notes) for table in tables]
    if not (differs := declared.get("differs")):
        return made
    return [
        replace(one, title=f"{one.title} (ours in another setting)", description=f"{one.description} Ours: {differs}.")
        for one in made
    ]


def _beside(table: Printed, results: Results, declared: Mapping[str, Any]) -> Beside:
    tasks: Tasks = {}
    for dataset, task, metric in results.measures:
        tasks.setdefault((dataset, family(task), metric), []).append(task)

    planned = results.plan["datasets"]  # of a plan without runs none is known

    def own(number: Published, row: Sequence[Published]) -> tuple[Cell, str]:
        label, block = _label(declared, number), _block(table, results, number, declared["towers"])
        dataset = DATASETS.get(number.dataset)
        if planned and dataset is not None and dataset not in planned:
            return NOT_OURS, ""
        ask = _ask(table, tasks, number, row)
        if label is None or block is None or ask is None:
            return NOT_OURS, ""
        entry = results.methods.get(label)
        measure = Measure(Column("", "", unit="printed"), ask)
        score = table.paper.scores.get(number.setting) or (entry["score"] if entry else "")
        ours = cell(results.of(label, block), measure, score)
        return _in_its_unit(ours, number), label if entry else ""

    return own


def _label(declared: Mapping[str, Any], number: Published) -> str | None:
    """The entry of the suite that corresponds to a printed number."""

    def fits(asked: Mapping[str, Any]) -> bool:
        fields = ("method", "setting", "pretrain", "backbone")
        return all(asked.get(field) in (None, getattr(number, field)) for field in fields)

    if not fits(declared):
        return None
    return next((str(label) for label, rows in declared["rows"].items() if any(map(fits, rows))), None)


def _block(table: Printed, results: Results, number: Published, towers: Mapping[str, str]) -> str | None:
    """The suite's towers and noise that a printed number was measured under."""
    printed = (number.backbone, table.paper.words.get(number.backbone))
    blocks = [noise for noise in results.noises.values() if not towers or towers.get(noise["towers"]) in printed]
    same = [block for block in blocks if block["rate"] == (number.noise_rate or 0.0)]
    chosen = same or (blocks if len(blocks) == 1 else [])
    return str(chosen[0]["label"]) if chosen else None


def _ask(table: Printed, tasks: Tasks, number: Published, row: Sequence[Published]) -> Ask | None:
    """Return how a run's own value of a printed number is read; None if we do not measure it."""
    paper = table.paper
    if number.heading in paper.averages:
        left_out = {*paper.averages, *paper.averages[number.heading]}
        return _average([_ask(table, tasks, one, row) for one in row if one.heading not in left_out])
    own = paper.rows.get(f"{number.method} {value(number, 'K')}".strip()) or paper.metrics.get(number.metric)
    if own is not None and number.heading in paper.means:
        group = paper.means[number.heading]  # of the DataComp suite, or all of it
        among = [name for name, one in evaluation_sets().items() if one.datacomp and group in ("datacomp", one.group)]
        return _average([_record(tasks, name, own) for name in among])
    dataset = DATASETS.get(number.dataset)
    return None if own is None or dataset is None else _record(tasks, dataset, own)


def _average(parts: Sequence[Ask | None]) -> Ask | None:
    """Return how the mean of several values is read; None if we do not measure one of them."""
    asks = [part for part in parts if part is not None]
    return averaged(asks) if asks and len(asks) == len(parts) else None


def _record(tasks: Tasks, dataset: str, own: Own) -> Ask:
    metric = own.metric or evaluation_sets()[dataset].metric
    known = [task for kind in own.families for task in tasks.get((dataset, kind, metric), ())]

    def ask(run: RunResult, score: str) -> Found:
        found = (run.find(dataset, task, metric, score) for task in known)
        record = next(filter(None, found), None)
        return None if record is None else Measured(run.run, run.seed, record.value, record.n, record.low, record.high)

    return ask


def _in_its_unit(ours: Cell, number: Published) -> Cell:
    """Return a cell of shares in the unit of a printed number, mostly percent, with the difference to it."""
    if ours.value is None:
        return ours
    unit = 1 if "(fraction)" in number.metric else 100

    def scaled(one: Any, *names: str) -> Any:
        return replace(one, **{name: unit * own for name in names if (own := getattr(one, name)) is not None})

    made: Cell = scaled(ours, "value", "std")
    measured = tuple(scaled(part, "value", "low", "high") for part in ours.measured)
    return replace(made, measured=measured, difference=unit * ours.value - number.value)


def _about(results: Results) -> str:
    """Describe the data, budget and seeds of our column."""
    plan = results.plan
    budget, train = plan["budget"], plan["settings"]["train"]
    value, unit = budget["value"], budget["unit"]
    spent = f"{value:.3g} {unit}" if value >= 1e9 else f"{value:,.0f} {unit}"
    rows = plan["data"]["rows"]
    pairs = f" ({rows:,} pairs)" if rows else ""
    return (
        f"Ours: suite {plan['suite']}, {plan['data']['name']}{pairs}, {spent}, batch {train['batch']:,}, "
        f"n = {len(plan['seeds'])}; behind it, ours minus the paper's. – : no entry of the suite corresponds, or it is "
        "not measured here. missing: planned, but not run yet."
    )
