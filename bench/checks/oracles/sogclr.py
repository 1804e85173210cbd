"""SogCLR against five steps of NUCLR's repository, and the effect of the official floor.

official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (GCL_Loss)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.base import Adapter
from methods.normaliser import Normalised
from methods.protocol import Clock, Tensors
from methods.sogclr import Sogclr

REFERENCE = "bokun-wang/NUCLR"  #: the code that the adapters follow; other repositories compute other normalisers
RTOL = 1e-9


def cases() -> Iterator[Case]:
    section = values()["sogclr"]
    for number, trace in enumerate(section["traces"]):
        if REFERENCE in trace["impl"]:
            yield Case(f"sogclr/traces/{number}", partial(_trace, trace))
    yield Case("sogclr/identity_gamma1", partial(_gamma_one, section["identity_gamma1"]["max_abs_grad_diff"]))
    for number, row in enumerate(section["eps_floor"]["rows"]):
        yield Case(f"sogclr/eps_floor/rows/{number}", partial(_floor, row))


def follow(
    method: Adapter, trace: dict[str, Any], state: Callable[[], Tensors], epochs: int = 1
) -> Iterator[Comparison]:
    """Compare five steps on inputs T: loss, gradients and every vector of `state`; the run has `epochs` epochs."""
    passes = 0
    for number, (given, expected) in enumerate(zip(values()["inputs"]["T"]["steps"], trace["steps"], strict=True)):
        if given["epoch"] > passes:
            method.end_epoch(passes)
            passes = given["epoch"]
        z = leaves(given)
        clock = Clock(number, "train", progress=passes / epochs, epoch=passes)
        loss = lab.objective(method, z, torch.tensor(given["ids"]), clock)
        yield Comparison(f"loss of step {number}", loss, expected["loss"], RTOL)
        yield from lab.gradients(loss, z, expected, RTOL)
        vectors = state()
        assert vectors.keys() == expected["state"].keys()
        for name, vector in vectors.items():
            yield Comparison(f"{name} after step {number}", vector.clone(), expected["state"][name], RTOL)


def leaves(given: dict[str, Any]) -> Tensors:
    """Return one step of inputs T as leaves with gradient."""
    return lab.leaves({name: given[name] for name in ("image", "text")})


def normalisers(method: Normalised, exponent_scale: float = 1.0) -> Tensors:
    """Return the official state: u e^-b (0 for rows never seen), and b; b times `exponent_scale` is an exponent."""
    vectors: Tensors = {}
    for name in ("image", "text"):
        log_u, peak = getattr(method, f"log_u_{name}"), getattr(method, f"peak_{name}")
        scaled: Tensor = (log_u - peak * exponent_scale).exp()
        vectors |= {f"s_{name[0].upper()}": torch.where(method.seen, scaled, 0.0), f"b_{name[0].upper()}": peak}
    return vectors


def apart(one: Tensor, other: Tensor, one_leaf: Tensor, other_leaf: Tensor) -> Tensor:
    """Return the largest difference between two losses' gradients, each in its own leaf."""
    (first,), (second,) = torch.autograd.grad(one, [one_leaf]), torch.autograd.grad(other, [other_leaf])
    return (first - second).abs().max()


def _trace(trace: dict[str, Any]) -> Iterator[Comparison]:
    settings = {"gamma": trace["gamma"], "temperature": trace["temperature"], **Sogclr.presets["official"]}
    method = lab.build(Sogclr, rows=6, **settings)
    yield from follow(method, trace, lambda: normalisers(method))


def _gamma_one(expected: float) -> Iterator[Comparison]:
    """Measure how far the floor moves the images' gradient from that of tau * mean log-sum-exp, at gamma = 1."""
    z = leaves(values()["inputs"]["T"]["steps"][0])
    loss = lab.objective(lab.build(Sogclr, gamma=1.0, temperature=0.1), z)
    s = (z["image"] @ z["text"].T) / 0.1
    others, own = s.masked_fill(torch.eye(len(s), dtype=torch.bool), -torch.inf), s.diagonal()
    formula = 0.1 * ((others.logsumexp(1) - own).mean() + (others.logsumexp(0) - own).mean())
    yield Comparison("largest difference of gradients", apart(loss, formula, z["image"], z["image"]), expected, 1e-5)


def _floor(expected: dict[str, Any]) -> Iterator[Comparison]:
    for floor, name in ((1e-10, "official"), (0.0, "no_floor")):
        z = lab.inputs("C")
        loss = lab.objective(lab.build(Sogclr, temperature=expected["temperature"], floor=floor), z)
        (gradient,) = torch.autograd.grad(loss, [z["image"]])
        yield Comparison(f"loss, {name}", loss, expected[f"{name}_loss"], RTOL)
        yield Comparison(f"norm of the gradient, {name}", gradient.norm(), expected[f"{name}_grad_image_norm"], RTOL)
