"""Everything the store holds about one run, as text. Never imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.console.text import columns
from bench.store import Record, RunStore


def describe(run: RunStore) -> str:
    """Status, settings, ledger, environment and records of a run."""
    parts = [f"run {run.id}"]
    for title, content in (
        ("status", run.status()),
        ("settings", run.settings()),
        ("ledger", run.ledger()),
        ("environment", run.environment()),
    ):
        if content:
            parts += ["", title, *(f"  {key}: {value}" for key, value in _flat(content))]
    records = run.records()
    parts += ["", "records" if records else "no records yet", *(f"  {line}" for line in record_table(records))]
    return "\n".join(parts)


def _flat(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings as dotted keys, as `--set` takes them."""
    lines: list[tuple[str, str]] = []
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            lines += _flat(value, f"{prefix}{key}.")
        elif value is not None:
            lines.append((f"{prefix}{key}", f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)))
    return lines


def record_table(records: Sequence[Record]) -> list[str]:
    """One line a record under a heading; nothing where there is none. With the protocol where there are several."""
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
    return columns(rows) if records else []
