"""Gradient ascent against our own derivation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.gradient_ascent import GradientAscent
from methods.protocol import Batch


def cases() -> Iterator[Case]:
    for number, entry in enumerate(values()["gradient_ascent"]["cases"]):
        yield Case(f"gradient_ascent/cases/{number}", partial(_case, entry))


def _case(expected: dict[str, Any]) -> Iterator[Comparison]:
    # The values were computed without a limit of the ascent.
    config = {"forget": expected["NC_ratio"], "smoothing": expected["label_smoothing"], "limit": None}
    method, z = lab.build(GradientAscent, temperature=1 / expected["logit_scale"], **config), lab.inputs("N")
    total = len(z["image"])
    with torch.no_grad():
        observed = method.observe(z, Batch(torch.arange(total), lab.clock()))
    forgotten = observed["forget"].nonzero().flatten()
    yield Comparison("forgotten rows", forgotten, sorted(expected["forget_ids"]), rtol=0, atol=0)
    terms = method.loss(z, observed, slice(0, total))
    yield Comparison("forget", -terms["forget"], expected["clip_on_forget"])
    yield Comparison("retain", terms["retain"], expected["clip_ls_on_retain"])
    loss = terms["forget"] + terms["retain"]
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradient_norms(loss, z, expected["grad_norms"])
