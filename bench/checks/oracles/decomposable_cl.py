"""Decomposable CL against our own derivation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.clip import Clip
from methods.decomposable_cl import DecomposableCl
from methods.protocol import Batch


def cases() -> Iterator[Case]:
    for name, entry in values()["decomposable_cl"]["cases"].items():
        yield Case(f"decomposable_cl/cases/{name}", partial(_case, name, entry))


def _case(name: str, entry: dict[str, Any]) -> Iterator[Comparison]:
    yield from _posterior_mean(name, entry["logit_scale"], entry["u_mean_identity"])
    yield from _fixed_rates(name, entry["logit_scale"], entry["fixed_u"])


def _posterior_mean(name: str, scale: float, expected: dict[str, Any]) -> Iterator[Comparison]:
    method, z = lab.build(DecomposableCl, u="mean", alpha=0.0, temperature=1 / scale), lab.inputs(name)
    observed = method.observe(z, Batch(torch.arange(len(z["image"])), lab.clock()))
    for direction in ("image", "text"):
        yield Comparison(f"u of the {direction}s", observed[f"log_u_{direction}"].exp(), expected[f"u_{direction}"])
    losses = [lab.objective(m, z) for m in (method, lab.build(Clip, temperature=1 / scale))]
    yield Comparison("loss", losses[0], expected["loss"])
    own, clip = (torch.cat(torch.autograd.grad(loss, list(z.values()))) for loss in losses)
    yield Comparison("distance from CLIP's gradient", (own - clip).abs().max(), expected["grad_equals_clip_maxdiff"])


def _fixed_rates(name: str, scale: float, expected: dict[str, Any]) -> Iterator[Comparison]:
    method, z = lab.build(DecomposableCl, temperature=1 / scale), lab.inputs(name)
    rates = {key: torch.tensor(expected[f"u_{key}"], dtype=torch.float64).log() for key in z}
    loss = lab.sum_of_tiles(method, z, {f"log_u_{key}": rate for key, rate in rates.items()})
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)
    yield from lab.gradient_norms(loss, z, {key: expected[f"grad_{key}_norm"] for key in z})
