"""Tables and records as CSV, for spreadsheets and for whoever wants to compute something else."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter

from bench.store import Record
from reports.results import Results
from reports.table import Table

_RECORD = [field.name for field in fields(Record)]
_values = attrgetter(*_RECORD)
RECORD_COLUMNS = ("suite", "label", "method", "noise", "noise_kind", "noise_rate", "seed", "manifest", *_RECORD)


def table_csv(table: Table) -> str:
    """One line a row: the mean of every column (in the unit of the store, shares in [0, 1]) with its std and n.

    A column without a value holds the word for why; `runs` lists the ids of all runs of the line.
    """
    names = [" ".join(filter(None, (column.group, column.label))) for column in table.columns]
    head = ["noise", "row", "method"]
    for name in names:
        head += [name, f"{name} std", f"{name} n", f"{name} bold"]
    lines: list[Sequence[object]] = [[*head, "over budget", "runs"]]
    for row in table.rows:
        line: list[object] = [row.group, row.label, row.method]
        for cell in row.cells:
            shown = cell.state if cell.state != "value" else cell.text if cell.value is None else cell.value
            line += [shown, "" if cell.std is None else cell.std, cell.n or "", "bold" if cell.bold else ""]
        runs = dict.fromkeys(run for cell in row.cells for run in cell.runs)
        over = "yes" if any(cell.over_budget for cell in row.cells) else ""
        lines.append([*line, over, " ".join(runs)])
    return _text(lines)


def records_csv(results: Results) -> str:
    """Tidy: one line a record of every run of the suite, checkpoints along the way included (`at` < 1)."""
    lines: list[Sequence[object]] = [RECORD_COLUMNS]
    for run in results.runs:
        method, noise = results.methods[run.method]["method"], results.noises[run.noise]
        manifest = run.manifest["hash"] if run.manifest else ""
        head = (results.suite, run.method, method, run.noise, noise["kind"], noise["rate"], run.seed, manifest)
        lines.extend((*head, *_values(record)) for record in run.records.values())
    return _text(lines)


def _text(lines: Iterable[Sequence[object]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue()
