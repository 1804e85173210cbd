"""The table of the rows whose weights a rule chose: their scores next to those of the last weights of the same runs."""

from __future__ import annotations

from dataclasses import replace

from bench.store.selection import LAST
from reports.headlines import primary
from reports.measure import cell, record_measure
from reports.results import Results
from reports.statistics.paired import difference, mean
from reports.tables.footnotes import method_row, noted
from reports.tables.table import Cell, Column, Measured, Table
from reports.tables.vs_baseline import interval, with_interval

_TEXT = "The primary metric of the weights that a rule chose along each run, next to that of the last ones."
_NOTE = (
    "Gap: chosen minus last, in points, over the seeds that have both; with its 95 % interval (t over seeds) if "
    "there are three seeds or more. Where all runs chose their last weights it is 0."
)


def selection_table(results: Results) -> Table | None:
    """Return one row per entry and noise, for the entries that do not read their last weights; None without any."""
    selecting = {label: entry for label, entry in results.methods.items() if entry.get("select", LAST) != LAST}
    if not selecting:
        return None
    measure = record_measure(results, *primary(results))
    group = f"{measure.column.group} {measure.column.label}"
    columns = (
        Column("last", "last", group, "percent", None, "of the last weights"),
        Column("chosen", "chosen", group, "percent", None, "of the weights that the rule chose"),
        Column("gap", "gap", group, "percent", None, "chosen minus last, in points"),
        Column("point", "chosen at, % of the budget", "", "percent", None, "mean over the runs"),
    )
    rows = []
    for noise in results.noises:
        for label, entry in selecting.items():
            if not (runs := results.of(label, noise)):
                continue
            last, chosen = (cell(own, measure, entry["score"]) for own in ([run.of_last for run in runs], runs))
            points = [Measured(run.run, run.seed, run.at) for run in runs if run.records and run.at is not None]
            at = Cell("value", mean([one.value for one in points]), measured=tuple(points)) if points else chosen
            rows.append(method_row(results, label, (last, chosen, _gap(last, chosen), at), noise))
    made = noted(results, "selection", "Which checkpoint", columns, rows, _TEXT, _NOTE)
    return replace(made, full=len(results.plan["seeds"]))


def _gap(last: Cell, chosen: Cell) -> Cell:
    """The cell of chosen minus last, paired by seed."""
    own, other = chosen.by_seed, last.by_seed
    seeds = sorted(own.keys() & other.keys())
    if not seeds:
        return Cell(chosen.state, lacking=chosen.lacking)
    test, sources = difference(own, other), tuple(part.run for part in chosen.measured)
    test = test and test.within(1.0)
    made = Cell("value", mean([own[seed] - other[seed] for seed in seeds]), sources=sources)
    return with_interval(made, test, interval(test)) if test else made
