"""DRRho-CLIP against six steps of the authors' code: fixed and learned temperature, with a reference and without.

official: github.com/Optimization-AI/DRRho-CLIP@33d7364 src/fast_clip/loss.py (SogCLRLoss)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from bench.checks.oracles.fastclip import follow
from methods.drrho import Drrho
from methods.global_loss import GlobalLoss
from methods.normaliser import DIRECTIONS, differences
from methods.protocol import Batch, Tensors


def cases() -> Iterator[Case]:
    section = values()["drrho"]
    for number, trace in enumerate(section["traces"]):
        yield Case(f"drrho/traces/{number}/steps", partial(_trace, trace))
    yield Case("drrho/accumulation_path/log_u_image", partial(_normalisers, section["accumulation_path"]))
    yield Case("drrho/accumulation_path/s_ii", partial(_own_similarities, section["accumulation_path"]))


def _trace(trace: dict[str, Any]) -> Iterator[Comparison]:
    def number(z: Tensors, weights: Tensors, _: Tensor) -> Tensor:
        everyone, total = slice(0, len(z["image"])), z["image"].new_zeros(())
        side = {"image": z["side_image"], "text": z["side_text"]}
        for one, other in DIRECTIONS:
            excess = differences(z, one, other, everyone) - differences(side, one, other, everyone)
            total = total + (weights[one] * excess).sum() / len(excess)
        return total

    def state(method: GlobalLoss, name: str) -> Tensor:
        log_u: Tensor = getattr(method, f"log_u_{name}")
        return log_u.clone()

    yield from follow(Drrho, trace, number, ("log_u", state))


def _first_rows(given: dict[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    rows = values()["poisoning"]["traces"][given["inputs"]]["steps"][0]
    z = lab.leaves({name: rows[name] for name in ("image", "text", "side_image", "side_text")})
    return z | {"side_image": 0 * z["side_image"]}, rows


def _normalisers(given: dict[str, Any]) -> Iterator[Comparison]:
    """Compare the first visit's ln u without a reference, in the order of the batch."""
    z, rows = _first_rows(given)
    method = lab.build(Drrho, 10, epsilon=given["eps"])
    method.rho.fill_(given["log_scale"])
    with torch.no_grad():
        observed = method.observe(z, Batch(torch.tensor(rows["ids"]), lab.clock()))
    yield Comparison("ln u of images", observed["log_u_image"], given["log_u_image"])


def _own_similarities(given: dict[str, Any]) -> Iterator[Comparison]:
    z, _ = _first_rows(given)
    yield Comparison("similarity of each pair", (z["image"] * z["text"]).sum(1), given["s_ii"])
