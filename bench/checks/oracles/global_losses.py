"""FastCLIP and DRRho-CLIP against six steps of the authors' code, with the Adam of their temperature; AmorLIP's losses.

official: github.com/Optimization-AI/fast_clip@efd89d5 src/fast_clip/loss.py (FastCLIPLoss), src/training/train.py
official: github.com/Optimization-AI/DRRho-CLIP@33d7364 src/fast_clip/loss.py (SogCLRLoss)
official: github.com/haotiansun14/AmorLIP@88760ee src/open_clip/loss.py, utils.py (get_cosine_ema_beta), model.py
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from methods.amorlip import Amorlip
from methods.drrho import Drrho
from methods.fastclip import Fastclip
from methods.global_loss import GlobalLoss
from methods.normaliser import DIRECTIONS, differences
from methods.protocol import Batch, Clock, Tensors

Logged = Callable[[Tensors, Tensors, Tensor], Tensor]  #: of embeddings, weights and tau: the surrogate that is logged


@case("fastclip", "fastclip/traces/*/steps")
def _fastclip(trace: OracleEntry, _: list[OracleEntry]) -> KnownValues:
    def logged(_: Tensors, weights: Tensors, tau: Tensor) -> Tensor:
        return tau * (weights["image"].sum(1).mean() + weights["text"].sum(1).mean())

    def state(method: GlobalLoss, name: str) -> Tensor:
        return torch.where(method.seen, getattr(method, f"log_u_{name}").exp(), 0.0)

    yield from _follow(Fastclip, trace, logged, ("u", state))


@case("drrho", "drrho/traces/*/steps")
def _drrho(trace: OracleEntry, _: list[OracleEntry]) -> KnownValues:
    def logged(z: Tensors, weights: Tensors, _: Tensor) -> Tensor:
        everyone, total = slice(0, len(z["image"])), z["image"].new_zeros(())
        side = {"image": z["side_image"], "text": z["side_text"]}
        for one, other in DIRECTIONS:
            excess = differences(z, one, other, everyone) - differences(side, one, other, everyone)
            total = total + (weights[one] * excess).sum() / len(excess)
        return total

    yield from _follow(Drrho, trace, logged, ("log_u", lambda method, name: getattr(method, f"log_u_{name}").clone()))


def _follow(
    kind: type[GlobalLoss], trace: OracleEntry, logged: Logged, state: tuple[str, Callable[[GlobalLoss, str], Tensor]]
) -> KnownValues:
    """Compare six steps: the logged number, gradients, both slopes of the temperature, its step, and normalisers."""
    given = values()["poisoning"]["traces"][trace["inputs"]]
    settings = {"learnable_scale": True, **dict(zip(("beta1", "beta2"), trace["betas"], strict=True))}
    method, plain = (
        lab.adapter_of(kind, trace, given["rows"], 7, dim=8, temperature_rule=rule, **settings)
        for rule in ("official", "objective")
    )
    for step, (rows, expected) in enumerate(zip(given["steps"], trace["steps"], strict=True)):
        clock = _clock(method, step, rows["epoch"], trace["gamma_decay_epochs"])
        plain.load_state_dict(method.state_dict())
        z = _embeddings(kind, rows, trace.get("reference", True))
        batch = Batch(torch.tensor(rows["ids"]), clock)
        yield KnownValue(f"log scale before step {step}", method.rho.clone(), expected["log_scale"])
        lab.observe(plain, z, batch)
        observed = lab.observe(method, z, batch)
        with torch.no_grad():
            weights = method.draw(z, observed, slice(0, len(rows["ids"])))
            log_u = (observed["log_u_image"].mean() + observed["log_u_text"].mean()) / 2
            number = logged(z, weights, observed["tau"]) + observed["tau"] * (trace["rho"] + log_u)
        yield KnownValue(f"logged number of step {step}", number, expected["loss"])
        yield from lab.gradients(lab.sum_of_tiles(method, z, observed), z, expected)
        yield KnownValue(f"slope in step {step}", method.slope.clone(), expected["grad_log_scale"])
        yield KnownValue(f"slope of the objective in step {step}", plain.slope, expected["grad_log_scale_objective"])
        yield KnownValue(f"gamma in step {step}", method.gamma(clock), expected["gamma"])
        yield KnownValue(f"learning rate in step {step}", method.step_size(), expected["lr_tau"])
        if trace.get("learn_temperature", True):
            method.after_step(clock)
        yield KnownValue(f"log scale after step {step}", method.rho.clone(), expected["log_scale_after"])
        for name, _ in DIRECTIONS:
            yield KnownValue(f"{name}s' u after step {step}", state[1](method, name), expected[f"{state[0]}_{name}"])


def _clock(method: GlobalLoss, step: int, epoch: int, decay_epochs: int) -> Clock:
    """Return the moment of a run that reaches gamma_min after `decay_epochs` epochs."""
    return Clock(step, "train", progress=method.config.gamma_share * epoch / decay_epochs, epoch=epoch)


def _embeddings(kind: type[GlobalLoss], rows: OracleEntry, reference: bool) -> Tensors:
    """Return leaves, with the reference's embeddings if the method has one: all zero where the code was given none."""
    names = ("image", "text", *(("side_image", "side_text") if kind.side == "reference" else ()))
    z = lab.leaves({name: rows[name] for name in names})
    return z if reference else {name: 0 * x if name.startswith("side_") else x for name, x in z.items()}


@case("fastclip", "fastclip/gamma/of_epoch")
def _gamma(expected: list[float]) -> KnownValues:
    given = values()["fastclip"]["gamma"]
    method = lab.adapter_of(Fastclip, given)
    clocks = (_clock(method, epoch, epoch, given["gamma_decay_epochs"]) for epoch in range(len(expected)))
    yield KnownValue("gamma of every epoch", lab.exact_tensor([method.gamma(clock) for clock in clocks]), expected)


@case("drrho", "drrho/accumulation_path/log_u_image")
def _normalisers(expected: list[float]) -> KnownValues:
    """Compare the first visit's ln u in the order of the batch; the code got no reference, here it is all zero."""
    given = values()["drrho"]["accumulation_path"]
    rows = values()["poisoning"]["traces"][given["inputs"]]["steps"][0]
    method, z = lab.adapter_of(Drrho, given, 10), _embeddings(Drrho, rows, True)
    observed = lab.observe(
        method, z | {"side_image": 0 * z["side_image"]}, Batch(torch.tensor(rows["ids"]), lab.a_clock())
    )
    yield KnownValue("ln u of images", observed["log_u_image"], expected)


@case("amorlip", "amorlip/cases/*/out/*")
def _amorlip(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    z = lab.pair(lab.correspondence(name, "finetuning"))
    total, dim = z["image"].shape
    remembered = {"memory": entry["beta"], "memory_from": 0.5, "radius": entry["rho"]}
    method = lab.adapter_of(Amorlip, entry, dim=dim, **remembered)
    for key, weights in entry.get("previous", {}).items():
        method.networks.get_parameter(key).data.copy_(lab.exact_tensor(weights))
    method.averaged.copy_(torch.nn.utils.parameters_to_vector(method.networks.parameters()))
    if "previous" in entry:
        method.end_epoch(0)
    own = {key: method.networks.get_parameter(key) for key in entry["networks"]}
    for key, parameter in own.items():
        parameter.data.copy_(lab.exact_tensor(entry["networks"][key]))
    early, late = (Batch(torch.arange(total), Clock(1, "train", progress, 1)) for progress in (0.0, 0.9))
    for when, kind in ((early, "batch_normaliser"), (late, "normaliser")):
        observed = lab.observe(method, z, when)
        for key in ("image", "text"):
            yield KnownValue(f"{kind} of {key}s", observed[f"log_{key}"], expected[kind][key])
    terms = method.loss(z, observed, slice(0, total))
    loss = terms["contrastive"] + terms["radius"]
    yield from lab.compare_loss(method, loss, z, expected)
    yield KnownValue("loss of the networks", terms["networks"], expected["fit"])
    yield from lab.gradient_norms(terms["networks"], own, expected["fit_grad_norms"])
    yield from lab.gradient_norms(terms["networks"], z, dict.fromkeys(z, 0.0))  # they read detached embeddings
    yield KnownValue("loss in tiles", lab.sum_of_tiles(method, z, observed, (3,)), expected["loss"] + expected["fit"])


@case("amorlip", "amorlip/memory/beta")
def _amorlip_memory(expected: list[float]) -> KnownValues:
    """The share of the last pass, by pass of the script's 33."""
    method = lab.build_adapter(Amorlip)
    method.end_epoch(0)
    for epoch, share in zip(values()["amorlip"]["memory"]["epochs"], expected, strict=True):
        yield KnownValue(f"share in pass {epoch}", method.share(Clock(0, "train", epoch / 33, epoch)), share)
