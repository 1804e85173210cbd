"""What the JSON files of a store hold. Fields that are not named here are allowed, because later versions may add some.

A check takes a value and returns what is wrong with it, as "" or ".field.0.field: complaint". They are plain functions,
because reports read tens of thousands of files and load no package for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from operator import lt
from typing import Any

Check = Callable[[Any], str]


def complaint(value: Any, model: str) -> str:
    """Return what is wrong with the content of a file of this kind, with its field; "" if it fits."""
    return MODELS[model](value).removeprefix(": ").removeprefix(".")[:200]


def _kind(test: Callable[[Any], bool], words: str) -> Check:
    return lambda value: "" if test(value) else f": should be {words}"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _maybe(check: Check) -> Check:
    return lambda value: "" if value is None else check(value)


def _list(check: Check) -> Check:
    def every(value: Any) -> str:
        if type(value) is not list:
            return ": should be a list"
        wrong = ((place, check(one)) for place, one in enumerate(value))
        return next((f".{place}{reason}" for place, reason in wrong if reason), "")

    return every


def _map(check: Check) -> Check:
    def every(value: Any) -> str:
        if type(value) is not dict:
            return ": should be an object"
        wrong = ((name, check(one)) for name, one in value.items())
        return next((f".{name}{reason}" for name, reason in wrong if reason), "")

    return every


def _object(needed: Mapping[str, Check], others: Mapping[str, Check]) -> Check:
    """Return the check of an object with the fields `needed`, and the `others` where they are there."""
    checks = {**needed, **others}

    def every(value: Any) -> str:
        if type(value) is not dict:
            return ": should be an object"
        missing = next((f".{name}: is missing" for name in needed if name not in value), "")
        wrong = ((name, check(value[name])) for name, check in checks.items() if name in value)
        return next((f".{name}{reason}" for name, reason in wrong if reason), missing)

    return every


_TEXT = _kind(lambda value: type(value) is str, "text")
_FLAG = _kind(lambda value: type(value) is bool, "true or false")
_WHOLE = _kind(lambda value: type(value) is int, "a whole number")
_COUNT = _kind(lambda value: type(value) is int and value >= 0, "a whole number from 0 on")
_NUMBER = _kind(_is_number, "a finite number")
_AMOUNT = _kind(lambda value: _is_number(value) and value >= 0, "a finite number from 0 on")
_POSITIVE = _kind(lambda value: _is_number(value) and value > 0, "a finite number above 0")
_ANY = _map(lambda _: "")
_SHA256 = _kind(lambda value: type(value) is str and re.fullmatch("[0-9a-f]{64}", value) is not None, "64 hex digits")
_STATE = _kind(lambda value: value in ("running", "interrupted", "failed", "done"), "a state of a run")
_EACH_NUMBER, _EACH_COUNT = _list(_NUMBER), _list(_COUNT)


def _numbers(value: Any) -> str:
    """Refuse all but a list of finite numbers. A histogram has hundreds: they are looked at together first."""
    good = type(value) is list and {int, float}.issuperset(map(type, value)) and all(map(math.isfinite, value))
    return "" if good else _EACH_NUMBER(value)


def _counts(value: Any) -> str:
    """Refuse all but a list of whole numbers from 0 on, looked at together first."""
    good = type(value) is list and {int}.issuperset(map(type, value)) and min(value, default=0) >= 0
    return "" if good else _EACH_COUNT(value)


_ERROR = _object({}, {"type": _TEXT, "message": _TEXT, "step": _maybe(_COUNT), "term": _maybe(_TEXT)})
_STATUS = _object(
    {"state": _STATE},
    {"step": _maybe(_COUNT), "steps": _maybe(_COUNT), "stage": _TEXT, "updated": _NUMBER, "error": _maybe(_ERROR)},
)


def _phases(value: Any) -> str:
    pairs = type(value) is list and all(type(one) is list and len(one) == 2 for one in value)
    good = pairs and all(type(name) is str and type(steps) is int and steps >= 0 for name, steps in value)
    return "" if good else ": should be a list of names, each with a number of steps"


_RESOLVED = _object(
    {"phases": _phases, "step_flops": _map(_COUNT), "batch": _COUNT},
    {"epoch_steps": _COUNT, "budget_epoch_steps": _COUNT, "scoring_flops": _COUNT},
)
_NOISE = _object({}, {"kind": _maybe(_TEXT), "rate": _AMOUNT, "file": _maybe(_TEXT), "options": _maybe(_ANY)})
_SETTINGS = _object(
    {},
    {
        **dict.fromkeys(("id", "label", "method"), _TEXT),
        **dict.fromkeys(("format", "training_version"), _COUNT),
        **dict.fromkeys(("config", "data", "keep", "budget", "towers", "train", "evaluate"), _maybe(_ANY)),
        "preset": _maybe(_TEXT),
        "seed": _WHOLE,
        "noise": _maybe(_NOISE),
        "resolved": _RESOLVED,
    },
)
_BUDGET = _object({"kind": _TEXT, "value": _AMOUNT}, {})
_SPENT = (
    *("samples", "flops", "image_forwards", "image_backwards", "text_forwards", "text_backwards", "train_seconds"),
    *("data_seconds", "evaluate_seconds", "repeated_seconds", "peak_memory_bytes", "spent_share"),
)
_COSTS = {**dict.fromkeys(_SPENT, _AMOUNT), "over_budget": _FLAG, "budget": _BUDGET, "planned": _map(_AMOUNT)}
_PARTS = dict.fromkeys(("reference", "scoring"), _maybe(_object({}, _COSTS)))
_LEDGER = _object({}, {**_COSTS, **_PARTS})
_RANKS = _object({}, {"world": _kind(lambda value: type(value) is int and value > 0, "a number of processes")})
_ENVIRONMENT = _object(
    {},
    {
        **{"packages": _map(_maybe(_TEXT)), "python": _maybe(_TEXT), "commit": _maybe(_TEXT)},
        **{"hardware": _ANY, "ranks": _RANKS},
    },
)
_SERIES = _object(
    {"n": _COUNT, "dropped": _COUNT, "counts": _counts},
    {"mean": _maybe(_NUMBER), "quantiles": _map(_NUMBER)},
)
_ENTRY = _object(
    {
        **dict.fromkeys(("source", "name", "title", "axis"), _TEXT),
        **{"log": _FLAG, "edges": _numbers, "series": _map(_SERIES)},
    },
    {"protocol": _TEXT},
)


def _histogram(value: Any) -> str:
    if wrong := _ENTRY(value):
        return wrong
    edges, bins = value["edges"], max(0, len(value["edges"]) - 1)
    if not all(map(lt, edges, edges[1:])) or (value["log"] and any(edge <= 0 for edge in edges)):
        return ".edges: should rise"
    counts = (len(series["counts"]) for series in value["series"].values())
    return "" if all(count in (0, bins) for count in counts) else ".series: should have a count for each bin"


_PROCESS = _object({"host": _TEXT, "namespace": _TEXT, "pid": _COUNT, "started": _TEXT}, {})
_METHOD = _object(
    {
        **dict.fromkeys(("label", "title", "summary", "paper", "fidelity", "bibtex", "note", "score"), _TEXT),
        **{"config": _ANY, "preset": _maybe(_TEXT), "reference": _maybe(_TEXT)},
    },
    {
        **{"equations": _maybe(_TEXT), "state": _TEXT, "lr": _maybe(_AMOUNT), "keep": _maybe(_ANY)},
        **{"inapplicable": _map(_TEXT), "start": _maybe(_TEXT), "untrained": _FLAG},
    },
)
_CELL = _object(
    {
        **{"run": _TEXT, "method": _TEXT, "noise": _TEXT, "seed": _WHOLE, "steps": _COUNT},
        "reference_run": _maybe(_TEXT),
        "manifest": _maybe(_object({"hash": _TEXT, "realised_rate": _AMOUNT, "rows": _COUNT}, {})),
    },
    {"kept_rows": _maybe(_COUNT), "evaluations": _list(_TEXT)},
)
_TRIAL = _object({"changes": _map(_NUMBER), "run": _TEXT, "score": _maybe(_NUMBER)}, {"reference_run": _maybe(_TEXT)})
_TRIALS_OF_ONE = _kind(lambda value: type(value) is list and len(value) > 0, "a list of trials")
_CHOICE = _object(
    {
        **{"chosen": _map(_NUMBER), "score": _maybe(_NUMBER), "ledger": _map(_AMOUNT)},
        "trials": lambda value: _TRIALS_OF_ONE(value) or _list(_TRIAL)(value),
    },
    {},
)
_SHARED = _object({}, {"train": _ANY, "evaluate": _maybe(_object({"curve": _list(_NUMBER)}, {"along": _list(_TEXT)}))})
_PLAN = _object(
    {"cells": _list(_CELL)},
    {
        **dict.fromkeys(("suite", "description", "suite_hash", "protocol"), _TEXT),
        "made": _NUMBER,
        "budget": _BUDGET,
        "data": _object({"name": _TEXT, "rows": _COUNT}, {"description": _TEXT}),
        "primary": _maybe(_map(_TEXT)),
        "methods": _list(_METHOD),
        "baseline": _maybe(_TEXT),
        "noises": _list(
            _object({"label": _TEXT, "rate": _AMOUNT}, {"kind": _maybe(_TEXT), "towers": _TEXT, "seeds": _list(_WHOLE)})
        ),
        "seeds": _list(_WHOLE),
        "tuning": _maybe(_object({"methods": _map(_CHOICE)}, {"seed": _WHOLE, "rate": _maybe(_AMOUNT)})),
        "datasets": _map(_object({}, {"description": _TEXT, "n": _COUNT, "chance": _map(_NUMBER)})),
        "settings": _SHARED,
        "tables": _maybe(_ANY),
    },
)

MODELS: Mapping[str, Check] = {
    "status": _STATUS,
    "settings": _SETTINGS,
    "ledger": _LEDGER,
    "environment": _ENVIRONMENT,
    "diagnostics": _object({"diagnostics": _list(_histogram)}, {}),
    "job": _object({"job": _TEXT, "log": _TEXT}, {"submitted": _NUMBER, "by": _PROCESS}),
    "line": _object({"step": _COUNT}, {}),
    "plan": _PLAN,
    "trials": _list(_TEXT),
    "queue": _object({"suite": _ANY, "only": _list(_TEXT), "seeds": _list(_WHOLE)}, {}),
    "hashes": _map(_SHA256),
    "seconds": _map(_POSITIVE),
    "manifest": _object({"kind": _TEXT, "rate": _AMOUNT, "seed": _WHOLE, "n": _COUNT, "realised_rate": _AMOUNT}, {}),
}
