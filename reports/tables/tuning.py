"""The table of trials: the settings that were tried for every method before it was compared, and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.results import Results
from reports.tables.footnotes import notes_for
from reports.tables.table import Cell, Column, Row, Table

_COLUMNS = (
    Column("trials", "trials", "", "count", None, "settings tried, the suite's own among them"),
    Column("own", "suite's own", "Validation, mean recall", "percent", None, "score of the suite's own settings"),
    Column("best", "best", "Validation, mean recall", "percent", None, "score of the settings that were chosen"),
    Column("lr", "learning rate", "Chosen", "text", None),
    Column("temperature", "temperature", "Chosen", "text", None, "of methods that keep theirs fixed"),
    Column("flops", "FLOPs", "Spent on trials", "flops", None, "training, reference runs included"),
    Column("train_seconds", "training", "Spent on trials", "seconds", None),
)


def tuning_table(results: Results) -> Table | None:
    """Return one line a method with its trials, its chosen settings and their cost; None if a suite tunes nothing."""
    tuning = results.plan.get("tuning")
    if not tuning:
        return None
    rows = [_row(results, label, tuning["methods"].get(label)) for label in results.methods]
    budget = tuning["budget"] or {key: results.plan["budget"][key] for key in ("kind", "value")}
    noise = max(results.plan["noises"], key=lambda entry: entry["rate"])
    rate = noise["rate"] if tuning["rate"] is None else tuning["rate"]
    footnotes = (
        "Every method has the same number of trials: the suite's own settings, then points spread over "
        f"learning rates {_range(tuning['lr'])} and, where a method keeps its temperature fixed and its entry does not "
        f"name it, temperatures {_range(tuning['temperature'])}. The best on the validation pairs runs.",
        f"A trial has seed {tuning['seed']}, {100 * rate:g} % noise and a budget of {_budget(budget)}. "
        "What trials cost is booked here and not in a run's budget.",
    )
    description = "Trials on the validation pairs, which no other table shows."
    return Table("tuning", "Tuning", _COLUMNS, tuple(rows), description, footnotes, notes=notes_for(rows))


def _row(results: Results, label: str, choice: Mapping[str, Any] | None) -> Row:
    entry = results.methods[label]
    if choice is None:
        return Row(label, (Cell("missing"),) * len(_COLUMNS), "", label, False, entry["fidelity"])
    runs, chosen = tuple(trial["run"] for trial in choice["trials"]), choice["chosen"]
    temperature = chosen.get("temperature")
    cells = (
        Cell("value", float(len(runs)), sources=runs),
        _score(choice["trials"][0]["score"]),
        _score(choice["score"]),
        Cell("value", text=f"{entry['lr']:g}"),
        Cell("value", text="as given" if temperature is None else f"{temperature:g}"),
        Cell("value", choice["ledger"]["flops"]),
        Cell("value", choice["ledger"]["train_seconds"]),
    )
    return Row(label, cells, "", label, False, entry["fidelity"])


def _score(value: float | None) -> Cell:
    return Cell("failed") if value is None else Cell("value", value)


def _range(bounds: list[float]) -> str:
    return f"{bounds[0]:g} to {bounds[1]:g}"


def _budget(budget: Mapping[str, Any]) -> str:
    if "kind" in budget:
        return f"{budget['value']:g} {budget['kind'].replace('_', ' ')}"
    return ", ".join(f"{value:g} {kind.replace('_', ' ')}" for kind, value in budget.items() if value is not None)
