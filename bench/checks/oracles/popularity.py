"""SogCLR, iSogCLR and NUCLR against five steps of NUCLR's repository, and what its mistakes and floors change.

official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (GCL_Loss, RGCL_Loss, DGCL_Loss)

Other repositories compute other normalisers; their traces are not offered.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from methods.base import Adapter
from methods.isogclr import Isogclr
from methods.normaliser import Normalised
from methods.nuclr import Nuclr
from methods.protocol import Batch, Clock, Tensors
from methods.sogclr import Sogclr


def _follow(method: Adapter, trace: OracleEntry, state: Callable[[], Tensors], epochs: int = 1) -> KnownValues:
    """Compare five steps on inputs T: loss, gradients and every vector of `state`; the run has `epochs` epochs."""
    passes = 0
    for number, (given, expected) in enumerate(zip(values()["inputs"]["T"]["steps"], trace["steps"], strict=True)):
        if given["epoch"] > passes:
            method.end_epoch(passes)
            passes = given["epoch"]
        z = lab.pair(given)
        clock = Clock(number, "train", progress=passes / epochs, epoch=passes)
        yield from lab.compare_step(method, z, expected, batch=Batch(torch.tensor(given["ids"]), clock))
        vectors = state()
        assert vectors.keys() == expected["state"].keys()
        for name, vector in vectors.items():
            yield KnownValue(f"{name} after step {number}", vector.clone(), expected["state"][name])


def _state(method: Normalised, exponent_scale: float = 1.0, **own: str) -> Tensors:
    """Return the official state: u e^-b (0 for rows never seen), b, and ours by official names; b times the scale is
    an exponent."""
    vectors: Tensors = {}
    for name in ("image", "text"):
        letter, peak = name[0].upper(), getattr(method, f"peak_{name}")
        scaled = (getattr(method, f"log_u_{name}") - peak * exponent_scale).exp()
        vectors |= {f"s_{letter}": torch.where(method.seen, scaled, 0.0), f"b_{letter}": peak}
        vectors |= {f"{theirs}_{letter}": getattr(method, f"{ours}_{name}") for theirs, ours in own.items()}
    return vectors


def _apart(one: Tensor, other: Tensor, one_leaf: Tensor, other_leaf: Tensor) -> Tensor:
    """Return the largest difference between two losses' gradients, each in its own leaf."""
    (first,), (second,) = torch.autograd.grad(one, [one_leaf]), torch.autograd.grad(other, [other_leaf])
    return (first - second).abs().max()


@case("sogclr", "sogclr/traces/*")
def _sogclr(trace: OracleEntry) -> KnownValues:
    method = lab.adapter_of(Sogclr, trace, rows=6, **Sogclr.presets["official"])
    yield from _follow(method, trace, lambda: _state(method))


@case("sogclr", "sogclr/identity_gamma1/max_abs_grad_diff")
def _gamma_one(expected: float) -> KnownValues:
    """Measure how far the floor moves the images' gradient from that of tau * mean log-sum-exp, at gamma = 1."""
    z = lab.pair(values()["inputs"]["T"]["steps"][0])
    loss = lab.step_loss(lab.build_adapter(Sogclr, gamma=1.0, temperature=0.1), z)
    s = (z["image"] @ z["text"].T) / 0.1
    others, own = s.masked_fill(torch.eye(len(s), dtype=torch.bool), -torch.inf), s.diagonal()
    formula = 0.1 * ((others.logsumexp(1) - own).mean() + (others.logsumexp(0) - own).mean())
    yield KnownValue("largest difference of gradients", _apart(loss, formula, z["image"], z["image"]), expected, 1e-5)


@case("sogclr", "sogclr/eps_floor/rows/*")
def _floor(expected: OracleEntry) -> KnownValues:
    for floor, name in ((1e-10, "official"), (0.0, "no_floor")):
        given = {"loss": expected[f"{name}_loss"], "grad_image_norm": expected[f"{name}_grad_image_norm"]}
        yield from lab.compare_step(lab.adapter_of(Sogclr, expected, floor=floor), lab.oracle_inputs("C"), given)


@case("isogclr", "isogclr/traces/*")
def _isogclr(trace: OracleEntry) -> KnownValues:
    """The trace describes its settings in words: they are the defaults. The official code calls the momentum u."""
    method = lab.build_adapter(Isogclr, rows=6, **Isogclr.presets["official"])
    yield from _follow(method, trace, lambda: _state(method, u="momentum", tau="tau"))


@case("nuclr", "nuclr/traces/*")
def _nuclr(trace: OracleEntry, rescale: str = "official") -> KnownValues:
    method = lab.adapter_of(Nuclr, trace, rows=6, rescale=rescale)
    scale = 1 / method.config.temperature
    yield from _follow(
        method, trace, lambda: _state(method, scale, z="momentum", zeta="zeta", xi="xi"), trace["max_epoch"]
    )


def _corrected(official: int, trace: OracleEntry) -> KnownValues:
    """A corrected trace repeats an official one and lists only some settings."""
    yield from _nuclr(values()["nuclr"]["traces"][official] | trace, "corrected")


for _place, _official in enumerate((0, 2, 3)):
    case("nuclr", f"nuclr/traces_with_corrected_rescale/{_place}")(partial(_corrected, _official))

#: Rows of the comparison with SogCLR. values.json does not keep them: of all choices only these give SogCLR's losses.
IDS = ([0, 1, 2, 3], [4, 5, 6, 7], [0, 5, 2, 7], [1, 3, 4, 6], [0, 1, 2, 3])


@case("nuclr", "nuclr/identity_vs_sogclr/rows")
def _beside_sogclr(rows: list[OracleEntry]) -> KnownValues:
    """With popularities fixed at 0 and xi infinite, only SogCLR's floor and the official mistake make a difference.

    The step sizes of popularities, a cosine with drops, are compared by their formula.
    """
    sizes = [lab.build_adapter(Nuclr)._step_size(Clock(0, "train", epoch / 30, epoch)) for epoch in range(30)]
    drops = [1.0] * 10 + [0.1] * 7 + [0.01] * 8  # from epochs 5, 15 and 22 on
    cosine = [drop * 2.5e-6 * (1 + math.cos(math.pi * place / 24)) for place, drop in enumerate(drops)]
    yield KnownValue(
        "step sizes by default", lab.exact_tensor([size or 0.0 for size in sizes]), [0.0] * 5 + cosine, atol=0
    )
    frozen: dict[str, Any] = {"temperature": 0.1, "zeta_init": 0.0, "xi_init": math.inf, "eta": 0.0}
    methods = {
        "nuclr_corrected": lab.build_adapter(Nuclr, rows=8, **frozen),
        "nuclr_official": lab.build_adapter(Nuclr, rows=8, rescale="official", **frozen),
        "sogclr": lab.build_adapter(Sogclr, rows=8, temperature=0.1),
    }
    for number, (given, ids, expected) in enumerate(zip(values()["inputs"]["T"]["steps"], IDS, rows, strict=True)):
        z, losses = {name: lab.pair(given) for name in methods}, {}
        for name, method in methods.items():
            losses[name] = lab.step_loss(method, z[name], torch.tensor(ids), lab.a_clock(number, epoch=given["epoch"]))
            yield KnownValue(f"{name} at step {number}", losses[name], expected[name])
        two = ("nuclr_corrected", "sogclr")
        difference = _apart(*(losses[name] for name in two), *(z[name]["image"] for name in two))
        yield KnownValue(f"difference of gradients at step {number}", difference, expected["grad_diff"], 1e-5, 1e-15)
