"""iSogCLR against five steps of NUCLR's repository.

official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (RGCL_Loss)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from bench.checks.oracles.sogclr import REFERENCE, follow, normalisers
from methods.isogclr import Isogclr
from methods.protocol import Tensors


def cases() -> Iterator[Case]:
    for number, trace in enumerate(values()["isogclr"]["traces"]):
        if REFERENCE in trace["impl"]:  # it describes its settings in words; they are the defaults
            yield Case(f"isogclr/traces/{number}", partial(_trace, trace))


def _trace(trace: dict[str, Any]) -> Iterator[Comparison]:
    method = lab.build(Isogclr, rows=6, **Isogclr.presets["official"])
    yield from follow(method, trace, lambda: _state(method))


def _state(method: Isogclr) -> Tensors:
    """The official code calls the temperatures' momentum u."""
    vectors = normalisers(method)
    for name in ("image", "text"):
        letter = name[0].upper()
        vectors |= {f"u_{letter}": getattr(method, f"momentum_{name}"), f"tau_{letter}": getattr(method, f"tau_{name}")}
    return vectors
