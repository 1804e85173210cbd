"""NCR against the official code in its parts, and two traces of our assembly of them for one network.

official: github.com/XLearning-SCU/2021-NeurIPS-NCR@60256ba NCR/model.py (ContrastiveLoss)
official: github.com/XLearning-SCU/2021-NeurIPS-NCR@60256ba NCR/co_train.py (eval_train, split_prob)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.ncr import Ncr, divided
from methods.protocol import Batch, Tensors

INPUTS = "noisy_correspondence"
#: name of a rule of margins in the values -> ours. A batch of noisy rows, or of clean ones, has one rule alone.
RULES = {"paper": "paper", "row": "official", "official_clean": "official", "official": "official"}


def cases() -> Iterator[Case]:
    section = values()["ncr"]
    for number, entry in enumerate(section["cases"]):
        for name, expected in entry["out"].items():
            yield Case(f"ncr/cases/{number}/out/{name}", partial(_case, entry, name, expected))
    for number, entry in enumerate(section["parts"]):
        yield Case(f"ncr/parts/{number}", partial(_part, entry))
    for number, entry in enumerate(section["split"]):
        yield Case(f"ncr/split/{number}", partial(_split, entry))
    for number, entry in enumerate(section["traces"]):
        yield Case(f"ncr/traces/{number}/steps", partial(_trace, entry))


def _exact(numbers: list[float]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _case(entry: dict[str, Any], name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    z = lab.inputs(name, part=INPUTS)
    total = len(z["image"])
    config = {"margin": entry["margin"], "soft_margin": entry["soft_margin"]}
    constants: Tensors = {}
    if entry["mode"] == "train":
        config["margins"] = RULES[entry["margins"]]
        # As noisy rows have them, targets are predictions.
        clean = "clean_probability" in expected
        constants = {
            "clean": torch.full((total,), clean),
            "clean_probability": _exact(expected.get("clean_probability", [0.0] * total)),
            "prediction": _exact(expected["prediction" if clean else "targets"]),
            "used": torch.ones(total, dtype=torch.bool),
        }
    loss = lab.sum_of_tiles(lab.build(Ncr, **config), z, constants)
    yield from lab.graded(loss, z, expected)
    if "official_sum" in expected:
        yield Comparison("loss as a sum", loss * total, expected["official_sum"])


def _part(entry: dict[str, Any]) -> Iterator[Comparison]:
    z = lab.inputs(entry["inputs"], part=INPUTS)
    with torch.no_grad():
        batch = Batch(torch.arange(len(z["image"])), lab.clock())
        observed = lab.build(Ncr, margin=entry["margin"]).observe(z, batch)
    for key in ("prediction", "row_loss"):
        yield Comparison(key, observed[key], entry[key])


def _split(entry: dict[str, Any]) -> Iterator[Comparison]:
    yield Comparison("clean rows", divided(_exact(entry["clean_probability"])).double(), entry["clean"])


def _trace(entry: dict[str, Any]) -> Iterator[Comparison]:
    given = values()[INPUTS]["inputs"][entry["inputs"]]
    epochs = 1 + given["steps"][-1]["epoch"]
    method = lab.build(
        Ncr,
        rows=given["N"],
        margin=entry["margin"],
        soft_margin=entry["soft_margin"],
        margins=RULES[entry["margins"]],
        warm=entry["warm_epochs"] / epochs,
        noisy_from=entry["noisy_rows_from_epoch"] / epochs,
    )
    for number, (z, batch, ends) in enumerate(lab.trace(entry["inputs"], INPUTS)):
        expected = entry["steps"][number]
        for name, state in expected["state"].items():  # as the step uses it
            yield Comparison(f"{name} before step {number}", getattr(method, name).double(), state)
        with torch.no_grad():
            observed = method.observe(z, batch)
        yield from lab.graded(lab.sum_of_tiles(method, z, observed), z, expected)
        for key in ("prediction", "row_loss"):
            yield Comparison(f"{key} of step {number}", observed[key], expected[key])
        used = observed.get("used", torch.ones(len(batch.ids)))
        yield Comparison(f"rows in use in step {number}", used.double(), expected["rows_used"])
        if ends:
            method.end_epoch(batch.clock.epoch)
