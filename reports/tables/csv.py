"""Tables and records as pandas frames and as CSV, for whoever wants to compute something else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING

from bench.console.text import csv_text
from bench.store import Record
from reports.results import Results
from reports.tables.table import Cell, Row, Table, unverified

if TYPE_CHECKING:
    import pandas as pd

_RECORD = [field.name for field in fields(Record)]
_values = attrgetter(*_RECORD)
RECORD_COLUMNS = (
    "suite",
    "label",
    "method",
    "fidelity",
    "noise",
    "noise_kind",
    "noise_rate",
    "seed",
    "manifest",
    *_RECORD,
)


def table_frame(table: Table) -> pd.DataFrame:
    """One line per row: the mean of every column (in the unit of the store, shares in [0, 1]) with its std and n.

    A cell without a value holds the word that says why; `runs` lists the ids of all runs of the line. `fidelity` says
    how the method's adapter was checked, and "not verified" if the printed tables mark it.

    In a paper's table numbers are in the paper's unit, mostly percent: its own with their source, ours with the
    difference to them.
    """
    import pandas as pd

    return pd.DataFrame(_lines(table))


def table_csv(table: Table) -> str:
    """Return `table_frame` as CSV; `csv_text` says which texts get an apostrophe.

    No frame is built: a report would import pandas for this alone.
    """
    lines = _lines(table)
    names = dict.fromkeys(name for line in lines for name in line)
    columns = [_typed([line.get(name) for line in lines]) for name in names]
    return csv_text([tuple(names), *zip(*columns, strict=True)])


def _typed(values: list[object]) -> list[object]:
    """Return a column's values as a frame has them: numbers are all floats if one is or if a line lacks one."""
    known = [None if value != value else value for value in values]  # NaN differs from itself
    kinds = {float if isinstance(value, float) else type(value) for value in known}
    floats = kinds <= {int, float, type(None)} and kinds != {int}
    return [None if value is None else float(value) for value in known] if floats else known  # type: ignore[arg-type]


def _lines(table: Table) -> list[dict[str, object]]:
    names = [
        column.name if column.unit == "printed" else " ".join(filter(None, (column.group, column.label)))
        for column in table.columns
    ]
    counted = [any(row.cells[place].also for row in table.rows) for place in range(len(names))]
    return [_line(row, names, counted) for row in table.rows]


def _line(row: Row, names: Sequence[str], counted: Sequence[bool]) -> dict[str, object]:
    """`counted`: whether a column has numbers of its own besides its values, instead of those of a mean."""
    group = "group" if any(cell.source for cell in row.cells) else "noise"
    fidelity = row.fidelity + " (not verified)" * bool(unverified(row.fidelity))
    line: dict[str, object] = {group: row.group, "row": row.label, "method": row.method, "fidelity": fidelity}
    for name, cell, has_own in zip(names, row.cells, counted, strict=True):
        text = cell.text.replace("\u2212", "-")  # so that other programs read its numbers
        line[name] = cell.state if cell.state != "value" else text if cell.value is None else cell.value
        if group == "group":
            line.update({f"{name} {what}": value for what, value in _beside(cell, name).items()})
            continue
        counts = {what: _rounded(number, what) for what, number in cell.also.items()}
        of_mean = {"std": cell.std, "n": cell.n or "", "bold": "bold" if cell.bold else ""}
        line.update({f"{name} {what}": value for what, value in (counts if has_own else of_mean).items()})
    line["over budget"] = "yes" if any(cell.over_budget for cell in row.cells) else ""
    line["runs"] = " ".join(dict.fromkeys(run for cell in row.cells for run in cell.runs))
    return line


def _rounded(number: float, what: str) -> float:
    """A p-value or the end of an interval in the digits in which all processors agree; other numbers as they are."""
    return float(f"{number:.12g}") if what in ("low", "high", "p", "p adjusted") else number


def _beside(cell: Cell, name: str) -> dict[str, object]:
    if name.endswith(" paper"):
        return {"std": cell.std, "source": cell.source}
    return {"std": cell.std, "n": cell.n or "", "difference": cell.difference}


def records_frame(results: Results) -> pd.DataFrame:
    """Tidy: one line per record of every run of the suite, checkpoints along the way included (`at` < 1)."""
    import pandas as pd

    # Values stay as they are: pandas guesses no types.
    return pd.DataFrame(list(_record_lines(results)), columns=RECORD_COLUMNS, dtype=object)


def _record_lines(results: Results) -> Iterator[tuple[object, ...]]:
    for run in results.runs:
        entry, noise = results.methods[run.method], results.noises[run.noise]
        manifest = run.manifest["hash"] if run.manifest else ""
        names = (results.suite, run.method, entry["method"], entry["fidelity"])
        head = (*names, run.noise, noise["kind"], noise["rate"], run.seed, manifest)
        for record in run.records.values():
            yield *head, *_values(record)


def records_csv(results: Results) -> str:
    """Return `records_frame` as CSV; `csv_text` says which texts get an apostrophe."""
    return csv_text([RECORD_COLUMNS, *_record_lines(results)])
