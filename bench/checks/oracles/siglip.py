"""SigLIP against open_clip's loss and NUCLR's, which takes raw projections.

official: github.com/mlfoundations/open_clip@89fb801 src/open_clip/loss.py (SigLipLoss)
official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (SigLipLoss)

"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.siglip import Siglip


def cases() -> Iterator[Case]:
    section = values()["siglip"]
    for number, entry in enumerate(section["cases"]):
        for name, expected in entry["out"].items():
            yield Case(f"siglip/cases/{number}/out/{name}", partial(_loss, entry["t"], entry["bias"], name, expected))
    for key, factor in (("same_on_normalised", 1.0), ("on_embeddings_multiplied_by_3", 3.0)):
        yield Case(f"siglip/nuclr_repo/{key}", partial(_scaled, factor, section["nuclr_repo"][key]))


def _loss(scale: float, bias: float, name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    method, z = lab.build(Siglip, scale=scale, bias=bias), lab.inputs(name)
    loss = lab.objective(method, z)
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)
    own = torch.stack(torch.autograd.grad(loss, [method.scale.rho, method.bias]))
    yield Comparison("gradient of log scale and bias", own, expected["grad_extra"])


def _scaled(factor: float, expected: float) -> Iterator[Comparison]:
    z = {name: factor * x for name, x in lab.inputs("A").items()}
    yield Comparison("loss", lab.objective(lab.build(Siglip, unnormalised=True), z), expected)
