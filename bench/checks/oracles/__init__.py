"""Literal values of other implementations, most of them executed official code, that adapters must reproduce.

`values.json` holds inputs and outputs, and so does each further file `NAME.json`, below its name. The modules next to
this file say in functions marked by `case` how adapters compute each value. Values that no adapter offers are listed in
`not_offered.json` with the reason.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

FOLDER = Path(__file__).parent
OracleEntry = dict[str, Any]  #: an entry of `values`
#: names of hyper-parameters in the values, where they are not ours
NAMES: dict[str, dict[str, str]] = {
    "bayes": {"a_plus": "a_positive", "a_minus": "a_negative", "iters": "sweeps"},
    "bicro": {"kappa": "warm_rows", "warm_share": "warm_rows"},
    "cyclip": {"lambda1": "lambda_in_modal", "lambda2": "lambda_cross_modal"},
    "decl_evidential": {"lambda1": "hinge_weight"},
    **{
        key: {"gamma": "gamma_min", "eps": "epsilon", "lr_tau": "eta", "adam_eps": "adam_epsilon"}
        for key in ("drrho", "fastclip")
    },
    "gradient_ascent": {"NC_ratio": "forget", "label_smoothing": "smoothing"},
    "l2rm": {"reg": "regularisation", "omega": "rematch_weight"},
    "ncu": {"NC_ratio": "forget"},
    "nuclr": {"zeta0": "zeta_init", "eta_I_ratio": "image_ratio", "max_epoch": "epochs"},
    "otter": {
        "ot": "transport",
        "sinkhorn_lambda": "regularisation",
        "sinkhorn_iter": "iterations",
        "vv_coef": "image_weight",
        "tt_coef": "text_weight",
        "remove_diag": "remove_own",
    },
    "pau": {"tau": "certainty_temperature"},
    "pcmepp": {"smoothness_alpha": "alpha", "vib_beta": "beta", "label_smoothing": "smoothing"},
    "prolip": {
        "vib_beta": "vib",
        "inclusion_alpha": "inclusion",
        "inclusion_alpha_occ": "masked_inclusion",
        "inclusion_loss_eps": "inclusion_eps",
        "inclusion_loss_scale": "inclusion_scale",
    },
    "roclip": {"size": "pool"},
    "safeclip": {"size": "bank_size"},
    "siglip": {"t": "scale"},
}


@dataclass(frozen=True)
class KnownValue:
    """One value of an adapter, and the value that it should have."""

    what: str  #: "loss", "gradient of image"
    actual: Tensor | float
    expected: Any  #: a number or nested lists of numbers, as in values.json
    rtol: float = 1e-9
    atol: float = 1e-12


KnownValues = Iterator[KnownValue]


@dataclass(frozen=True)
class Case:
    """One entry of `values` that an adapter reproduces."""

    path: str  #: keys and list positions down to it, "clip/cases/0/out/A"; all values below it are compared
    compare: Callable[[], Iterable[KnownValue]]


F = TypeVar("F", bound=Callable[..., KnownValues])
_cases: dict[str, list[Case]] = {}


@functools.cache
def values() -> dict[str, Any]:
    """Return the content of values.json and, by their names, of the further files. Callers must not change it."""
    entries: dict[str, Any] = _read("values")
    further = {path.stem for path in FOLDER.glob("*.json")} - {"values", "not_offered"}
    return entries | {name: _read(name) for name in sorted(further - entries.keys())}


def _read(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@functools.cache
def not_offered() -> dict[str, str]:
    """Return by position in `values` why no adapter reproduces the values below it."""
    reasons: dict[str, str] = _read("not_offered")
    return reasons


def case(method: str, *patterns: str) -> Callable[[F], F]:
    """Mark the function that compares what the paths of these patterns lead to, a case each.

    A word of a pattern with "*" stands for all keys that it fits, or for all positions of a list. The function gets for
    each such word the key, if it is one of a dict, and the entry; and last what the path leads to, if not that already.
    """

    def marked(compare: F) -> F:
        for pattern in patterns:
            for path, given in _matches(pattern):
                if path not in not_offered():
                    _cases.setdefault(method, []).append(Case(path, partial(compare, *given)))
        return compare

    return marked


def _matches(pattern: str) -> Iterator[tuple[str, list[Any]]]:
    found: list[tuple[list[str], Any, list[Any]]] = [([], values(), [])]
    for word in pattern.split("/"):
        longer = []
        for path, entry, given in found:
            if isinstance(entry, list):
                places = enumerate(entry) if word == "*" else [(int(word), entry[int(word)])]
                longer += [([*path, str(at)], x, [*given, x] if word == "*" else given) for at, x in places]
            else:
                keys = [key for key in entry if fnmatchcase(key, word)] if "*" in word else [word]
                longer += [([*path, k], entry[k], [*given, k, entry[k]] if "*" in word else given) for k in keys]
        found = longer
    for path, entry, given in found:
        yield "/".join(path), given if "*" in pattern.rpartition("/")[2] else [*given, entry]


@functools.cache
def _all() -> dict[str, list[Case]]:
    for path in sorted(FOLDER.glob("[a-z]*.py")):
        importlib.import_module(f"{__name__}.{path.stem}")
    return _cases


def cases(method: str) -> Iterator[Case]:
    """Yield the cases of a method, or of a part of the evaluation; none if there are no values for it."""
    yield from _all().get(method, ())


def of_other_code(method: str) -> list[Case]:
    """Return the cases that rest on values of other code: all but those of `defaults.json`."""
    return [one for one in cases(method) if not one.path.startswith("defaults/")]
