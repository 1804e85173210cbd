"""CRCL against the official code: given labels, and two traces of six steps with the labels after each.

official: github.com/QinYang79/CRCL@4a96406 CRCL_NeurIPS23/model/CRCL.py (CRCL.train_self)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.crcl import Crcl
from methods.protocol import Batch, Tensors

INPUTS = "noisy_correspondence"
#: What a warm step of a later stage does: it reads the labels, and moves them over the threshold alone.
WARM_LATER = {"alpha": 1.0, "warm": 0.0}


def cases() -> Iterator[Case]:
    section = values()["crcl"]
    for number, entry in enumerate(section["cases"]):
        for name, expected in entry["out"].items():
            yield Case(f"crcl/cases/{number}/out/{name}", partial(_case, entry, name, expected))
    for number, entry in enumerate(section["traces"]):
        yield Case(f"crcl/traces/{number}/steps", partial(_trace, entry))


def _method(entry: dict[str, Any], rows: int, **config: Any) -> Crcl:
    settings = {"floor": 1e-10, "temperature": entry["temperature"], "learnable_scale": True, **config}
    method: Crcl = lab.build(Crcl, rows=rows, **settings)
    return method


def _case(entry: dict[str, Any], name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    z = lab.inputs(name, part=INPUTS)
    weight = entry["complementary_weight"]
    method = _method(entry, len(z["image"]), complementary_weight=weight, **WARM_LATER)
    method.label.copy_(torch.tensor(expected["labels"], dtype=torch.float64))
    yield from _step(method, z, Batch(torch.arange(len(z["image"])), lab.clock()), expected)
    yield Comparison("labels after the step", method.label, expected["labels_after"])


def _trace(entry: dict[str, Any]) -> Iterator[Comparison]:
    """A warm pass and another; a later stage has its warm pass under WARM_LATER."""
    labels = torch.tensor(entry["start_labels"], dtype=torch.float64)
    for number, (z, batch, _) in enumerate(lab.trace(entry["inputs"], INPUTS)):
        warm = batch.clock.epoch < entry["warm_epochs"]
        later = WARM_LATER if warm and entry["stage"] > 0 else {"alpha": entry["alpha"], "warm": 0.5}
        method = _method(entry, len(labels), **later)
        method.label.copy_(labels)
        expected = entry["steps"][number]
        yield from _step(method, z, batch, expected)
        yield Comparison(f"labels after step {number}", method.label, expected["state"]["labels"])
        labels = method.label


def _step(method: Crcl, z: Tensors, batch: Batch, expected: dict[str, Any]) -> Iterator[Comparison]:
    with torch.no_grad():
        observed = method.observe(z, batch)
    whole = slice(0, len(z["image"]))
    terms = method.loss(z, observed, whole)
    yield from lab.graded(terms["active"] + terms["complementary"], z, expected, method.scale.rho)
    complementary = terms["complementary"] / method.config.complementary_weight
    yield Comparison("complementary", complementary, expected["complementary"])
    ones = method.loss(z, {"label": torch.ones_like(observed["label"])}, whole)
    yield Comparison("active loss if all labels were 1", ones["active"], expected["active_if_all_labels_1"])
