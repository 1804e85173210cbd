"""Schema of a store's JSON files. Fields that are not named here are allowed, because later versions may add some.

A shape is a check, which takes a value and returns what is wrong with it, such as "" or ": should be text"; a list of
one shape, for a list of such values; or a dict, for an object: field -> shape, where "field?" may be absent, and "*"
stands for every field. Reports read tens of thousands of files, so no package is loaded for it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import lt
from typing import Any

from bench.errors import nearest

ContentCheck = Callable[[Any], str]
STATES = ("running", "interrupted", "failed", "done")  #: of a run
Shape = Any  #: ContentCheck | list[Shape] | dict[str, Shape]


def complaint(value: Any, model: str) -> str:
    """Return what is wrong with the content of a file of this kind, with its field; "" if it fits."""
    return _wrong(value, MODELS[model]).removeprefix(": ").removeprefix(".")[:200]


def _wrong(value: Any, shape: Shape) -> str:
    if type(shape) is list:
        return _first(enumerate(value), shape[0]) if type(value) is list else ": should be a list"
    if type(shape) is not dict:
        return str(shape(value))
    if type(value) is not dict:
        return ": should be an object"
    if "*" in shape:
        return _first(value.items(), shape["*"])
    for field, inner in shape.items():
        name = field.removesuffix("?")
        if name in value:
            if reason := _wrong(value[name], inner):
                return f".{name}{reason}"
        elif name == field:
            return f".{name}: is missing"
    return ""


def _first(values: Iterable[tuple[Any, Any]], shape: Shape) -> str:
    return next((f".{name}{reason}" for name, value in values if (reason := _wrong(value, shape))), "")


def _kind(test: Callable[[Any], bool], words: str) -> ContentCheck:
    return lambda value: "" if test(value) else f": should be {words}"


def _maybe(shape: Shape) -> ContentCheck:
    return lambda value: "" if value is None else _wrong(value, shape)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_pair(value: Any) -> bool:
    """Return whether it is a text and a whole number."""
    return type(value) is list and [type(one) for one in value] == [str, int]


def _is_phases(value: Any) -> bool:
    return type(value) is list and all(_is_pair(one) and one[1] >= 0 for one in value)


def _fields(names: str, shape: Shape) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), shape)


_TEXT = _kind(lambda value: type(value) is str, "text")
_FLAG = _kind(lambda value: type(value) is bool, "true or false")
_WHOLE = _kind(lambda value: type(value) is int, "a whole number")
_COUNT = _kind(lambda value: type(value) is int and value >= 0, "a non-negative whole number")
_NUMBER = _kind(_is_number, "a finite number")
_AMOUNT = _kind(lambda value: _is_number(value) and value >= 0, "a non-negative finite number")
_POSITIVE = _kind(lambda value: _is_number(value) and value > 0, "a positive finite number")
_SHA256 = _kind(lambda value: type(value) is str and re.fullmatch("[0-9a-f]{64}", value) is not None, "64 hex digits")
_STATE = _kind(lambda value: value in STATES, "a state of a run")
_PHASES = _kind(_is_phases, "a list of names, each with a number of steps")
_PLACE = _kind(_is_pair, "the label of a noise and a seed")
_RANGE = _kind(lambda value: type(value) is list and len(value) == 2 and all(map(_is_number, value)), "two numbers")
_RULE = _kind(lambda value: value in ("samples", "passes"), "samples or passes")
_ANY: Shape = {}  #: an object


def _closed(shape: dict[str, Shape]) -> ContentCheck:
    """Return the check of an object without other fields, whose meaning this version would not know."""
    known = {field.removesuffix("?") for field in shape}

    def check(value: Any) -> str:
        other = sorted(value.keys() - known) if type(value) is dict else []
        return f".{other[0][:40]}: is unknown to this version" if other else _wrong(value, shape)

    return check


def _numbers(value: Any) -> str:
    """Refuse all but a list of finite numbers. A histogram has hundreds, so they are checked all at once first."""
    good = type(value) is list and {int, float}.issuperset(map(type, value)) and all(map(math.isfinite, value))
    return "" if good else _wrong(value, [_NUMBER])


def _counts(value: Any) -> str:
    """Refuse all but a list of non-negative whole numbers, checked all at once first."""
    good = type(value) is list and {int}.issuperset(map(type, value)) and min(value, default=0) >= 0
    return "" if good else _wrong(value, [_COUNT])


def _histogram(value: Any) -> str:
    if reason := _wrong(value, _ENTRY):
        return reason
    edges, bins = value["edges"], max(0, len(value["edges"]) - 1)
    if not all(map(lt, edges, edges[1:])) or (value["log"] and any(edge <= 0 for edge in edges)):
        return ".edges: should rise"
    counts = (len(series["counts"]) for series in value["series"].values())
    return "" if all(count in (0, bins) for count in counts) else ".series: should have a count for each bin"


def _some(shape: Shape) -> ContentCheck:
    return lambda value: _wrong(value, [shape]) if value else ": is empty"


def _tuning(value: Any) -> str:
    return _wrong(value, _SPREAD if type(value) is dict and "temperature" in value else _SPACES)


def _plan(value: Any) -> str:
    """Refuse a wrong field, two entries with one label, or a label that no entry has."""
    if reason := _wrong(value, _PLAN):
        return reason
    labels = {part: Counter(entry["label"] for entry in value[part]) for part in ("methods", "noises")}
    for part, known in labels.items():
        if twice := [label for label, count in known.items() if count > 1]:
            return f".{part}: duplicate label {twice[0]!r}"
    named = [("baseline", value["baseline"], "methods")]
    for place, cell in enumerate(value["cells"]):
        named += [(f"cells.{place}.{field}", cell[field], f"{field}s") for field in ("method", "noise")]
    for field, label, part in named:
        if label not in labels[part]:
            return f".{field}: {label!r} is not among {part}{nearest(label, labels[part])}"
    return ""


_SERIES = {"n": _COUNT, "dropped": _COUNT, "counts": _counts, "mean?": _maybe(_NUMBER), "quantiles?": {"*": _NUMBER}}
_ENTRY = {
    **_fields("source name title axis protocol?", _TEXT),
    **{"log": _FLAG, "edges": _numbers, "series": {"*": _SERIES}},
}
_ERROR = {**_fields("type? message?", _TEXT), "step?": _maybe(_COUNT), "term?": _maybe(_TEXT)}
_STATUS = {
    **{"state": _STATE, "stage?": _TEXT, "updated?": _NUMBER, "error?": _maybe(_ERROR)},
    **_fields("step? steps?", _maybe(_COUNT)),
}
_NOISE = {"kind?": _maybe(_TEXT), "rate?": _AMOUNT, "file?": _maybe(_TEXT), "options?": _maybe(_ANY)}
_RESOLVED = _closed(
    {
        **{"phases": _PHASES, "step_flops": {"*": _COUNT}},
        **_fields("batch epoch_steps budget_epoch_steps? scoring_flops?", _COUNT),
    }
)
_SETTINGS = {
    **_fields("id? label? method?", _TEXT),
    **_fields("format? training_version?", _COUNT),
    **_fields("config? data? keep? budget? towers? train? evaluate?", _maybe(_ANY)),
    **{"preset?": _maybe(_TEXT), "seed?": _WHOLE, "noise?": _maybe(_NOISE), "resolved?": _RESOLVED},
}
_BUDGET = {"kind": _TEXT, "value": _AMOUNT}
_COSTS = {
    **_fields("samples? flops? image_forwards? image_backwards? text_forwards? text_backwards?", _AMOUNT),
    **_fields("train_seconds? data_seconds? evaluate_seconds? repeated_seconds?", _AMOUNT),
    **_fields("peak_memory_bytes? spent_share?", _AMOUNT),
    **{"over_budget?": _FLAG, "budget?": _BUDGET, "planned?": {"*": _AMOUNT}},
}
_RANKS = {"world?": _kind(lambda value: type(value) is int and value > 0, "a number of processes")}
_ENVIRONMENT = {
    **{"packages?": {"*": _maybe(_TEXT)}, "python?": _maybe(_TEXT), "commit?": _maybe(_TEXT)},
    **{"hardware?": _ANY, "ranks?": _RANKS},
}
_KEEP = {**_fields("label about uses scorer? teacher?", _TEXT), "rule": _RULE, "external?": _fields("name hash", _TEXT)}
_METHOD = {
    **_fields("label method title summary paper fidelity bibtex note score state", _TEXT),
    **_fields("preset reference equations start", _maybe(_TEXT)),
    **{"config": _ANY, "keep": _maybe(_KEEP), "lr": _AMOUNT, "untrained?": _FLAG, "average?": _AMOUNT},
    **{"inapplicable?": {"*": _TEXT}, "select?": _TEXT},
}
_CELL = {
    **_fields("run method noise", _TEXT),
    **{"seed": _WHOLE, "steps": _COUNT, "reference_run": _maybe(_TEXT)},
    **{"manifest": _maybe({"hash": _TEXT, "realised_rate": _AMOUNT, "rows": _COUNT})},
    **{"kept_rows": _maybe(_COUNT), "evaluations": [_TEXT]},
}
_TRIAL = {"changes": _ANY, "run": _TEXT, "score": _maybe(_NUMBER), "reference_run?": _maybe(_TEXT)}
_CHOICE = {
    **{"chosen": _ANY, "score": _maybe(_NUMBER), "trials": _some(_TRIAL)},
    **{"ledger": _fields("flops train_seconds samples? evaluate_seconds?", _AMOUNT)},
}
_SPACED = {**_CHOICE, "points": _COUNT, "default": _maybe(_NUMBER), "edge": [_TEXT], "outer?": [_TEXT]}
_RUNG = {"budget": _TEXT, "settings": _COUNT, "seeds": [_WHOLE]}
_SPACES = {
    **{"methods": {"*": _SPACED}, "rungs": _some(_RUNG), "rate": _AMOUNT, "by?": _TEXT},
    **_fields("lr weight_decay", _maybe(_RANGE)),
}
#: of committed comparisons from before trials had spaces
_SPREAD = {
    **{"methods": {"*": _CHOICE}, "budget": {"*": _AMOUNT}, "rate": _AMOUNT, "seed": _WHOLE},
    **_fields("lr temperature", _RANGE),
}
_BLOCK = {
    **_fields("label title towers", _TEXT),
    **{"kind": _maybe(_TEXT), "rate": _AMOUNT, "budget?": _AMOUNT, "seeds?": [_WHOLE]},
}
_PAPER = {"paper": _TEXT, "numbers": [_TEXT], **_fields("rows towers", _ANY)}
_PLAN = {
    **_fields("suite description suite_hash protocol baseline", _TEXT),
    "made": _NUMBER,
    "budget": {**_BUDGET, "unit": _TEXT},
    "data": {**_fields("name description", _TEXT), "rows": _COUNT},
    "primary": _fields("dataset task metric", _TEXT),
    "methods": _some(_METHOD),
    "noises": _some(_BLOCK),
    "seeds": _some(_WHOLE),
    "cells": [_CELL],
    "added?": [_PLACE],
    "trained_on?": {"*": _TEXT},
    "tuning": _maybe(_tuning),
    "datasets": {"*": {"description": _TEXT, "n": _COUNT, "chance": {"*": _NUMBER}}},
    "settings": {"train": {"batch": _COUNT}, "evaluate": {"curve": [_NUMBER], "along?": [_TEXT]}},
    "tables": _maybe({**_PAPER, "others?": [_PAPER]}),
}
_PROCESS = {"host": _TEXT, "namespace": _TEXT, "pid": _COUNT, "started": _TEXT}

MODELS: Mapping[str, Shape] = {
    "format": {"format": _COUNT},
    "status": _STATUS,
    "settings": _SETTINGS,
    "ledger": {**_COSTS, **_fields("reference? scoring?", _maybe(_COSTS))},
    "environment": _ENVIRONMENT,
    "diagnostics": {"diagnostics": [_histogram]},
    "job": {"job": _TEXT, "log": _TEXT, "submitted?": _NUMBER, "by?": _PROCESS},
    "line": {"step": _COUNT},
    "plan": _plan,
    "trials": [_TEXT],
    "queue": {"suite": _ANY, "only": [_TEXT], "seeds": [_WHOLE]},
    "hashes": {"*": _SHA256},
    "seconds": {"*": _POSITIVE},
}
