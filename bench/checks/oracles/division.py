"""CREAM against official code: given labels or parts, and a trace of six steps.

official: github.com/XLearning-SCU/2024-TIP-CREAM@f487d6f InfoNCELoss.py (InfoNCELoss)
official: github.com/XLearning-SCU/2024-TIP-CREAM@f487d6f train.py (eval_train)

Traces are of our assembly of the parts for one network. CREAM's mixture is scikit-learn's GaussianMixture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Comparison, Comparisons, Entry, case, values
from methods.cream import Cream
from methods.protocol import Batch, Tensors

SOURCE = "finetuning"  #: of the inputs


def _inputs(name: str) -> Tensors:
    return lab.pair(lab.correspondence(name, SOURCE))


def _steps(method: Any, trace: Entry) -> Iterator[tuple[int, Tensors, Batch, Tensors, Entry]]:
    """Yield number, leaves, batch, constants and expected values of each step; one that ends a pass has ended it."""
    for number, (z, batch, ends) in enumerate(lab.trace(trace["inputs"], SOURCE)):
        constants = lab.observed(method, z, batch)
        if ends:
            method.end_epoch(batch.clock.epoch)
        yield number, z, batch, constants, trace["steps"][number]


def _state(method: Any, number: int, expected: Entry) -> Comparisons:
    """Compare state after a step; probabilities and flags are given where it ends a pass."""
    for name, value in expected["state"].items():
        yield Comparison(f"{name} after step {number}", getattr(method, name).double(), value)


@case("cream", "cream/cases/*/out/*")
def _cream_case(entry: Entry, name: str, expected: Entry) -> Comparisons:
    z, label = _inputs(name), lab.exact_tensor(entry["labels"])
    method = lab.made(Cream, entry, len(label))
    parts = lab.observed(method, z)
    constants: Tensors = {}
    if entry["mode"] == "train":
        everywhere = torch.full_like(label, entry["filter"])
        constants = {"label": label, "floor": everywhere, "used": torch.ones_like(label, dtype=torch.bool)}
    yield from lab.graded(method, lab.sum_of_tiles(method, z, constants), z, expected)
    for key in ("prediction", "row_loss"):
        yield Comparison(key, parts[key], expected[key])


@case("cream", "cream/split/clean_probability")
def _cream_split(expected: list[float]) -> Comparisons:
    losses = lab.exact_tensor(values()["cream"]["split"]["row_loss"])
    probability, clean = lab.build(Cream).division(losses)
    yield Comparison("probability of the smaller mean", probability, expected)
    yield Comparison("clean rows", clean.double(), [float(x > 0.5) for x in expected])


@case("cream", "cream/traces/*")
def _cream_trace(trace: Entry) -> Comparisons:
    method = lab.made(Cream, trace, lab.correspondence(trace["inputs"], SOURCE)["N"])
    for number, z, _, observed, expected in _steps(method, trace):
        yield Comparison(f"whether step {number} is warm", float("label" not in observed), float(expected["warm"]))
        yield from lab.compared(method, z, expected, observed)
        if not expected["warm"]:
            yield Comparison(f"labels of step {number}", observed["label"], expected["labels"])
            floor = [math.inf if x is None else x for x in expected["floor"]]
            yield Comparison(f"floors of step {number}", observed["floor"], floor)
            yield Comparison(f"rows in use in step {number}", observed["used"].double(), expected["used"])
        yield from _state(method, number, expected)
