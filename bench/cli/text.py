"""Stored runs and their records as text and CSV. Never imports torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bench.console.progress import duration
from bench.console.text import align_columns, csv_text, echo, join_lines
from bench.errors import UserError
from bench.hashing import flattened
from bench.store import Damaged, Record, RunStore, files

T = TypeVar("T")


def describe_run(run: RunStore, damaged: Sequence[Damaged] = ()) -> str:
    """Return status, settings, ledger, environment and records of a run as text; what is `damaged` is named first."""
    parts = [f"run {run.id}"]
    parts += ["", "damaged", *(f"  {error}" for error in damaged)] if damaged else []
    if run.status()["state"] == "done" and not any(run.folder.glob("weights-*.safetensors")):
        parts += ["", "only its records are stored, no weights"]
    for title, read in (
        ("status", run.read_status),
        ("settings", run.settings),
        ("ledger", run.ledger),
        ("environment", run.environment),
    ):
        if content := _read(read):
            known = {key: value for key, value in flattened(content) if value is not None}  # keys as `--set` takes them
            parts += ["", title, *(f"  {key}: {_readable(key.rpartition('.')[2], one)}" for key, one in known.items())]
    records = [record for key in _read(run.evaluations) or () for record in _read(partial(run.records_of, key)) or ()]
    parts += ["", "records" if records else "no records yet", *(f"  {line}" for line in record_table(records))]
    return join_lines(parts)


def _read(read: Callable[[], T]) -> T | None:
    """Return what `read` gives, or None if that is damaged."""
    try:
        return read()
    except Damaged:
        return None


def _readable(key: str, value: Any) -> str:
    """Return a value as a person reads it: times and sizes in their own units, large numbers with commas."""
    number = type(value) in (int, float)
    if number and key.endswith("_seconds") and abs(value) >= 60:
        return f"{duration(value)} ({value:,.0f} s)"
    if number and key.endswith("_bytes"):
        return f"{value / 2**30:,.2f} GiB" if value >= 2**30 else f"{value / 2**20:,.0f} MiB"
    if number and key in ("updated", "submitted"):
        with contextlib.suppress(OverflowError, OSError, ValueError):  # a forged one is shown as it is
            return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows, the heading first, as `write_file` does."""
    write_file(path, csv_text(rows))


def write_file(path: Path, text: str) -> None:
    """Write the file that an option names, and print its name. Raises UserError if it cannot be written."""
    try:
        files.write_bytes(Path(os.path.realpath(path)), text.encode())  # what a link leads to, never the link
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error
    echo(path)


def record_table(records: Sequence[Record]) -> list[str]:
    """Return one line per record under a heading, with the protocol if there are several; no lines without records."""
    several = len({record.protocol for record in records}) > 1
    heads = ("budget", "data set", "task", "metric", "score", "value", "95 % interval", "n")
    rows = [(*heads, "protocol") if several else heads]
    for record in records:
        interval = "" if record.low is None or record.high is None else f"{record.low:.4f} to {record.high:.4f}"
        line = (
            f"{record.at:.0%}",
            record.dataset,
            record.task,
            record.metric,
            record.score,
            f"{record.value:.4f}",
            interval,
            str(record.n),
        )
        rows.append((*line, record.protocol) if several else line)
    return align_columns(rows) if records else []
