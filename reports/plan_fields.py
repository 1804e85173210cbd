"""The parts of a plan: whether they fit each other, so that a report can show them, and what a row's entry says.

The types of single fields are checked where the file is read (bench/store).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.errors import UserError, nearest

TREATMENTS = {
    "samples": "as many samples as without, so kept pairs are seen more often",
    "passes": "as many passes as without, so fewer samples",
}  #: rule of `keep` -> its meaning
#: `teacher` of `keep` -> who trains the run that scores the pairs, and on what
TEACHERS = {
    "paid": "paid from its own budget",
    "given": "on top of its budget",
    "given_clean": "trained on clean pairs on top of its budget",
}
_SHOWN = ("methods", "noises", "seeds")
_TUNING = ("methods", "rungs", "rate", "lr", "weight_decay")
_SPREAD = ("methods", "budget", "rate", "seed", "lr", "temperature")  #: of plans made before trials had spaces
_TABLES = ("paper", "numbers", "rows", "towers")


def refuse_unfit(plan: Mapping[str, Any], path: Path) -> None:
    """Raise UserError that names the first field of a plan that a report cannot show, and the remedy."""
    for message in _faults(plan):
        raise UserError(
            f"{path}: {message}; `bench run {plan.get('suite', 'SUITE')} --plan-only` writes the plan again"
        )


def _faults(plan: Mapping[str, Any]) -> Iterable[str]:
    yield from (f"{name} is empty" for name in _SHOWN if not plan.get(name))
    if "primary" in plan:
        yield from _lacking(plan["primary"], "primary", ("dataset", "task", "metric"))
    labels = {name: [entry["label"] for entry in plan[name]] for name in ("methods", "noises")}
    for name, known in labels.items():
        yield from (f"{name}: duplicate label {one!r}" for one in dict.fromkeys(known) if known.count(one) > 1)
    baseline = plan.get("baseline")
    if baseline and baseline not in labels["methods"]:
        yield f"baseline: unknown label {baseline!r}{nearest(baseline, labels['methods'])}"
    for place, cell in enumerate(plan["cells"]):
        for field, among in (("method", "methods"), ("noise", "noises")):
            label, known = cell[field], labels[among]
            if label not in known:
                yield f"cells.{place}.{field}: {label!r} is not among {among}{nearest(label, known)}"
    for place, entry in enumerate(plan["methods"]):
        if keep := entry.get("keep"):
            yield from _lacking(keep, f"methods.{place}.keep", ("about", "rule"))
            if keep.get("external"):
                yield from _lacking(keep["external"], f"methods.{place}.keep.external", ("name", "hash"))
            if keep["rule"] not in TREATMENTS:
                yield f"methods.{place}.keep.rule: {keep['rule']!r} is unknown{nearest(keep['rule'], TREATMENTS)}"
    if tuning := plan.get("tuning"):
        spread = "temperature" in tuning
        yield from _lacking(tuning, "tuning", _SPREAD if spread else _TUNING)
        for label, choice in tuning["methods"].items():
            yield from _lacking(choice["ledger"], f"tuning.methods.{label}.ledger", ("flops", "train_seconds"))
            if not spread:
                yield from _lacking(choice, f"tuning.methods.{label}", ("points", "default", "edge"))
        for place, entry in enumerate(plan["methods"]):
            yield from _lacking(entry, f"methods.{place}", ("lr",))
        for name in ("lr", "temperature", "weight_decay"):
            if tuning.get(name) and len(tuning[name]) != 2:
                yield f"tuning.{name} should be two numbers"
    if tables := plan.get("tables"):
        yield from _lacking(tables, "tables", _TABLES)
        yield from _lacking(plan["settings"].get("train"), "settings.train", ("batch",))


def _lacking(part: Mapping[str, Any] | None, name: str, fields: Iterable[str]) -> Iterable[str]:
    return (f"{name}.{field} is missing" for field in fields if part is None or field not in part)


def begins_at(entry: Mapping[str, Any]) -> str | None:
    """The weights that a row of the plan starts from: given ones, or a reference run's; None if they are fresh."""
    return entry.get("start") or entry.get("reference")


def recipe(entry: Mapping[str, Any]) -> str:
    """All settings of a row but its label and its choice of pairs: rows of one recipe differ in their pairs alone."""
    fields = ("method", "preset", "lr", "start", "reference", "config")
    return json.dumps([entry.get(name) for name in fields], sort_keys=True)
