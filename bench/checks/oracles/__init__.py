"""Literal values of other implementations, most of them executed official code, that adapters must reproduce.

`values.json` holds inputs and outputs, and so does each further file `NAME.json`, below its name. Each method with such
values has a module beside this file, whose `cases()` say how the adapter computes each value. Values that no adapter
offers are listed in `not_offered.json` with the reason.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Comparison:
    """One value of an adapter, and the value that it should have."""

    what: str  #: "loss", "gradient of image"
    actual: Tensor | float
    expected: Any  #: a number or nested lists of numbers, as in values.json
    rtol: float = 1e-9
    atol: float = 1e-12


@dataclass(frozen=True)
class Case:
    """One entry of `values` that an adapter reproduces."""

    path: str  #: keys and list positions down to it, "clip/cases/0/out/A"; all values below it are compared
    compare: Callable[[], Iterable[Comparison]]


@functools.cache
def values() -> dict[str, Any]:
    """Return the content of values.json and, by their names, of the further files. Callers must not change it."""
    entries: dict[str, Any] = _read("values")
    further = {path.stem for path in FOLDER.glob("*.json")} - {"values", "not_offered"}
    return entries | {name: _read(name) for name in sorted(further - entries.keys())}


def _read(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def cases(method: str) -> Iterator[Case]:
    """Yield the cases of a method; none if it has no module here."""
    name = f"{__name__}.{method}"
    if importlib.util.find_spec(name) is not None:
        yield from importlib.import_module(name).cases()


def modules() -> list[str]:
    """Return the names that `cases` knows: methods, and parts of the evaluation."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def not_offered() -> dict[str, str]:
    """Return by position in `values` why no adapter reproduces the values below it."""
    reasons: dict[str, str] = _read("not_offered")
    return reasons
