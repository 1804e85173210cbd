"""FastCLIP against six steps of the authors' code, in two settings, its temperature's own Adam included.

official: github.com/Optimization-AI/fast_clip@efd89d5 src/fast_clip/loss.py (FastCLIPLoss), src/training/train.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.fastclip import Fastclip
from methods.global_loss import GlobalLoss
from methods.normaliser import DIRECTIONS
from methods.protocol import Batch, Clock, Tensors

Number = Callable[[Tensors, Tensors, Tensor], Tensor]  #: of embeddings, weights and tau: the surrogate that is logged
State = Callable[[GlobalLoss, str], Tensor]


def cases() -> Iterator[Case]:
    for number, trace in enumerate(values()["fastclip"]["traces"]):
        yield Case(f"fastclip/traces/{number}/steps", partial(_trace, trace))
    yield Case("fastclip/gamma/of_epoch", partial(_gamma, values()["fastclip"]["gamma"]))


def _trace(trace: dict[str, Any]) -> Iterator[Comparison]:
    def number(_: Tensors, weights: Tensors, tau: Tensor) -> Tensor:
        sums: Tensor = tau * (weights["image"].sum(1).mean() + weights["text"].sum(1).mean())
        return sums

    def state(method: GlobalLoss, name: str) -> Tensor:
        log_u = getattr(method, f"log_u_{name}")
        return torch.where(method.seen, log_u.exp(), 0.0)

    yield from follow(Fastclip, trace, number, ("u", state))


def follow(
    kind: type[GlobalLoss], trace: dict[str, Any], number: Number, state: tuple[str, State]
) -> Iterator[Comparison]:
    """Compare six steps: the logged number, gradients, both slopes of the temperature, its step, and normalisers."""
    given = values()["poisoning"]["traces"][trace["inputs"]]
    method, plain = (_built(kind, trace, given["rows"], rule) for rule in ("official", "objective"))
    for step, (rows, expected) in enumerate(zip(given["steps"], trace["steps"], strict=True)):
        clock = _clock(method, step, rows["epoch"], trace["gamma_decay_epochs"])
        plain.load_state_dict(method.state_dict())
        z = _embeddings(kind, rows, trace.get("reference", True))
        everyone, batch = slice(0, len(rows["ids"])), Batch(torch.tensor(rows["ids"]), clock)
        yield Comparison(f"log scale before step {step}", method.rho.clone(), expected["log_scale"])
        with torch.no_grad():
            plain.observe(z, batch)
            observed = method.observe(z, batch)
            weights = method.draw(z, observed, everyone)
            log_u = (observed["log_u_image"].mean() + observed["log_u_text"].mean()) / 2
            logged = number(z, weights, observed["tau"]) + observed["tau"] * (trace["rho"] + log_u)
        yield Comparison(f"logged number of step {step}", logged, expected["loss"])
        yield from lab.gradients(lab.sum_of_tiles(method, z, observed), z, expected)
        yield Comparison(f"slope in step {step}", method.slope.clone(), expected["grad_log_scale"])
        yield Comparison(f"slope of the objective in step {step}", plain.slope, expected["grad_log_scale_objective"])
        yield Comparison(f"gamma in step {step}", method.gamma(clock), expected["gamma"])
        yield Comparison(f"learning rate in step {step}", method.step_size(), expected["lr_tau"])
        if trace.get("learn_temperature", True):
            method.after_step(clock)
        yield Comparison(f"log scale after step {step}", method.rho.clone(), expected["log_scale_after"])
        for name, _ in DIRECTIONS:
            yield Comparison(f"{name}s' u after step {step}", state[1](method, name), expected[f"{state[0]}_{name}"])


def _built(kind: type[GlobalLoss], trace: dict[str, Any], rows: int, rule: str) -> Any:
    settings = {"gamma_min": trace["gamma"], "rho": trace["rho"], "epsilon": trace["eps"], "eta": trace["lr_tau"]}
    temperature = math.exp(-trace["log_scale"])
    return lab.build(kind, rows, 7, 8, temperature=temperature, learnable_scale=True, temperature_rule=rule, **settings)


def _clock(method: GlobalLoss, step: int, epoch: int, decay_epochs: int) -> Clock:
    """Return the moment of a run that reaches gamma_min after `decay_epochs` epochs."""
    return Clock(step, "train", progress=method.config.gamma_share * epoch / decay_epochs, epoch=epoch)


def _embeddings(kind: type[GlobalLoss], rows: dict[str, Any], reference: bool) -> Tensors:
    """Return leaves, with the reference's embeddings if the method has one: all zero where the code was given none."""
    names = ("image", "text", *(("side_image", "side_text") if kind.side == "reference" else ()))
    z = lab.leaves({name: rows[name] for name in names})
    return z if reference else {name: 0 * x if name.startswith("side_") else x for name, x in z.items()}


def _gamma(given: dict[str, Any]) -> Iterator[Comparison]:
    method = lab.build(Fastclip, gamma_min=given["gamma"])
    epochs = range(len(given["of_epoch"]))
    gammas = [method.gamma(_clock(method, epoch, epoch, given["gamma_decay_epochs"])) for epoch in epochs]
    yield Comparison("gamma of every epoch", torch.tensor(gammas, dtype=torch.float64), given["of_epoch"])
