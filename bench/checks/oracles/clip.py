"""CLIP against open_clip's loss.

official: github.com/mlfoundations/open_clip@89fb801 src/open_clip/loss.py (ClipLoss)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.clip import Clip


def cases() -> Iterator[Case]:
    section = values()["clip"]
    for number, entry in enumerate(section["cases"]):
        for name, expected in entry["out"].items():
            yield Case(f"clip/cases/{number}/out/{name}", partial(_loss, entry["logit_scale"], name, expected))
    yield Case("clip/grad_log_scale_A_at_0.07", partial(_scale_gradient, section["grad_log_scale_A_at_0.07"]))


def _loss(scale: float, name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    method, z = lab.build(Clip, temperature=1 / scale, learnable_scale=False), lab.inputs(name)
    loss = lab.objective(method, z)
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)


def _scale_gradient(expected: float) -> Iterator[Comparison]:
    method = lab.build(Clip)
    lab.objective(method, lab.inputs("A")).backward()
    assert isinstance(method.scale.rho.grad, torch.Tensor)
    yield Comparison("gradient of the log scale", method.scale.rho.grad, expected)
