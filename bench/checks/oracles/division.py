"""CREAM, BiCro and L2RM against official code: given labels or parts, and a trace of six steps each.

official: github.com/XLearning-SCU/2024-TIP-CREAM@f487d6f InfoNCELoss.py (InfoNCELoss)
official: github.com/XLearning-SCU/2024-TIP-CREAM@f487d6f train.py (eval_train)
official: github.com/xu5zhao/BiCro@0231631 model.py (ContrastiveLoss, SGRAF.predict)
official: github.com/xu5zhao/BiCro@0231631 co_train.py (BetaMixture1D)
official: github.com/hhc1997/L2RM@a766c22 models.py (SGRAF.forward, partial_ot, FeedForward_Network)

Traces are of our assembly of the parts for one network. CREAM's mixture is scikit-learn's GaussianMixture.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from methods.beta_mixture import beta_fit
from methods.bicro import EDGE, Bicro
from methods.cream import Cream
from methods.division import Divided
from methods.l2rm import SMALLEST, L2rm
from methods.protocol import Tensors
from methods.sinkhorn import partial_sinkhorn

SOURCE = "finetuning"  #: of the inputs


def _inputs(name: str) -> Tensors:
    return lab.pair(lab.correspondence(name, SOURCE))


#: (method, number of the step, leaves, constants, expected values) -> what the constants of a method's own are
Constants = Callable[[Any, int, Tensors, Tensors, OracleEntry], KnownValues]


def _trace(kind: type[Divided], trace: OracleEntry, divided: str, constants: Constants) -> KnownValues:
    """Compare loss, constants and state of each step; `divided` is a constant of the steps that are not warm.

    Probabilities and flags of the state are given where a step ends a pass.
    """
    method = lab.adapter_of(kind, trace, lab.correspondence(trace["inputs"], SOURCE)["N"])
    for number, (z, batch, ends) in enumerate(lab.trace_steps(trace["inputs"], SOURCE)):
        observed, expected = lab.observe(method, z, batch), trace["steps"][number]
        if ends:
            method.end_epoch(batch.clock.epoch)
        yield KnownValue(f"whether step {number} is warm", float(divided not in observed), float(expected["warm"]))
        yield from lab.compare_step(method, z, expected, observed)
        yield from constants(method, number, z, observed, expected)
        for name, value in expected["state"].items():
            yield KnownValue(f"{name} after step {number}", getattr(method, name).double(), value)


@case("cream", "cream/cases/*/out/*")
def _cream_case(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    z, label = _inputs(name), lab.exact_tensor(entry["labels"])
    method = lab.adapter_of(Cream, entry, len(label))
    parts = lab.observe(method, z)
    constants: Tensors = {}
    if entry["mode"] == "train":
        everywhere = torch.full_like(label, entry["filter"])
        constants = {"label": label, "floor": everywhere, "used": torch.ones_like(label, dtype=torch.bool)}
    yield from lab.compare_loss(method, lab.sum_of_tiles(method, z, constants), z, expected)
    for key in ("prediction", "row_loss"):
        yield KnownValue(key, parts[key], expected[key])


@case("cream", "cream/split/clean_probability")
def _cream_split(expected: list[float]) -> KnownValues:
    losses = lab.exact_tensor(values()["cream"]["split"]["row_loss"])
    probability, clean = lab.build_adapter(Cream).division(losses)
    yield KnownValue("probability of the smaller mean", probability, expected)
    yield KnownValue("clean rows", clean.double(), [float(x > 0.5) for x in expected])


@case("cream", "cream/traces/*")
def _cream_trace(trace: OracleEntry) -> KnownValues:
    return _trace(Cream, trace, "label", _cream_constants)


def _cream_constants(_: Any, number: int, __: Tensors, observed: Tensors, expected: OracleEntry) -> KnownValues:
    if not expected["warm"]:
        yield KnownValue(f"labels of step {number}", observed["label"], expected["labels"])
        floor = [math.inf if x is None else x for x in expected["floor"]]
        yield KnownValue(f"floors of step {number}", observed["floor"], floor)
        yield KnownValue(f"rows in use in step {number}", observed["used"].double(), expected["used"])


@case("bicro", "bicro/cases/*/out/*")
def _bicro_case(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    """Official losses are sums over the batch."""
    z = _inputs(name)
    total = len(z["image"])
    constants: Tensors | None = None
    if entry["mode"] == "train":
        everywhere = torch.ones(total, dtype=torch.bool)
        constants = {"label": lab.exact_tensor(entry["labels"]), "used": everywhere}
        method = lab.adapter_of(Bicro, entry)
        own = lab.sum_of_tiles(method, z, constants)
        yield from lab.compare_loss(method, total * own, z, expected["own_margin_form"])
    method = lab.adapter_of(Bicro, entry, margin_of="negative")
    constants = lab.observe(method, z) if constants is None else constants
    yield from lab.compare_loss(method, total * lab.sum_of_tiles(method, z, constants), z, expected)


@case("bicro", "bicro/labels/*")
def _bicro_labels(entry: OracleEntry) -> KnownValues:
    """Noisy rows have the anchors of a batch of clean ones."""
    z, noisy = _inputs(entry["input"]), 0
    total, anchors = len(z["image"]), entry["anchors"]
    left = (
        lab.observe(lab.adapter_of(Bicro, entry), z)["row_loss"].div(-2).add(entry["margin"]).clamp(0, entry["margin"])
    )
    lower = left[[row for row in range(total) if row not in anchors]]
    yield KnownValue("whether anchors lose least", float(left[anchors].min() >= lower.max()), 1.0)
    if entry["noisy_labels"]:
        noisy = len(entry["noisy_labels"])
        z = {name: torch.cat([x.detach(), lab.exact_tensor(entry[f"noisy_{name}"])]) for name, x in z.items()}
    row_loss = torch.cat([_losses(entry), torch.zeros(noisy)])
    for form in ("aligned", "misaligned"):
        labels = lab.adapter_of(Bicro, entry, clean_labels=form).labels(
            z, row_loss, torch.arange(total + noisy) < total
        )
        theirs = entry["labels_aligned" if form == "aligned" else "labels_official"]
        yield KnownValue(f"{form} labels of clean rows", labels[:total], theirs)
        yield KnownValue("labels of noisy rows", labels[total:], entry["noisy_labels"] or [])


def _losses(entry: OracleEntry) -> torch.Tensor:
    """Losses [B] in the order of the official sort, read off its labels: nothing else says how it breaks ties."""
    rest = [row for row in range(len(entry["labels_aligned"])) if row not in entry["anchors"]]
    losses = torch.zeros(len(entry["labels_aligned"]))
    for place, label in enumerate(entry["labels_aligned"][: len(rest)], start=1):
        row = min(rest, key=lambda row, label=label: abs(entry["labels_official"][row] - label))  # type: ignore[misc]
        losses[rest.pop(rest.index(row))] = place
    return losses


@case("bicro", "bicro/beta_mixture/*/[abw]*", "bicro/beta_mixture/*/posterior_clamped")
def _bicro_mixture(entry: OracleEntry, *given: Any) -> KnownValues:
    """The weights, the parameters, and the probability of the component of small losses."""
    mixture = beta_fit(lab.exact_tensor(entry["scaled_loss"]).clamp(EDGE, 1 - EDGE), iterations=10)
    if len(given) == 2:
        key, expected = given
        yield KnownValue(key, mixture.weights if key == "weight" else getattr(mixture, key), expected)
    else:
        x = lab.exact_tensor(entry["scaled_loss"])
        yield KnownValue("probability", lab.build_adapter(Bicro).division(x)[0], *given)


@case("bicro", "bicro/traces/*")
def _bicro_trace(trace: OracleEntry) -> KnownValues:
    return _trace(Bicro, trace, "label", _bicro_constants)


def _bicro_constants(_: Any, number: int, z: Tensors, observed: Tensors, expected: OracleEntry) -> KnownValues:
    if expected["warm"]:
        chosen = [float(place in expected["selected"]) for place in range(len(z["image"]))]
        yield KnownValue(f"rows in use in step {number}", observed["used"].double(), chosen)
    else:
        yield KnownValue(f"labels of step {number}", observed["label"], expected["labels"])
        yield KnownValue(f"rows in use in step {number}", observed["used"].double(), expected["used"])
        anchors = observed["label"][expected["anchors"]]
        yield KnownValue(f"labels of anchors of step {number}", anchors, [1.0] * len(anchors))


def _to_the_largest(known: KnownValues) -> KnownValues:
    """Allow 1e-9 of the largest expected number: L2RM's official normalisers have 1e-10 added."""
    for one in known:
        yield dataclasses.replace(one, atol=1e-9 * float(lab.exact_tensor(one.expected).abs().max()))


@case("l2rm", "l2rm/cases/*/out/*")
def _l2rm_case(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    yield from _to_the_largest(_l2rm_parts(entry, name, expected))


def _l2rm_parts(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    """Official losses of clean rows are sums, those of noisy ones means over the batch."""
    z = _inputs(name)
    total = len(z["image"])
    method = lab.adapter_of(L2rm, entry, total, rematch_weight=1.0, mask_own=entry["noise_ratio"] > 0)
    constants = lab.observe(method, z)
    yield KnownValue("row_loss", constants["row_loss"], expected["row_loss"])
    if entry["mode"] != "warm":
        constants["clean"] = torch.full((total,), entry["mode"] == "clean")
    if entry["mode"] == "noisy":
        s = (z["image"] @ z["text"].T).detach()
        costs = _costs(entry, s) if "cost_weight" in entry else 1 - s
        constants["plan"] = method.plan(costs)
        yield KnownValue("plan", constants["plan"], expected["plan"])
        yield KnownValue("what it moves", constants["plan"].sum(), expected["plan_mass"])
        allowed = torch.eye(total) == 0 if method.config.mask_own else torch.ones(total, total) > 0
        steps = (costs.clamp(min=SMALLEST), allowed, entry["mass"], entry["reg"], expected["iterations"], 0.0)
        yield KnownValue("plan after as many sweeps", partial_sinkhorn(*steps), expected["plan"])
    factor = total if entry["mode"] == "clean" else 1
    yield from lab.compare_loss(method, factor * lab.sum_of_tiles(method, z, constants), z, expected)


def _costs(entry: OracleEntry, s: torch.Tensor) -> torch.Tensor:
    """Costs [B, B] of the official network, which gives 1 - s before it is trained."""
    weight, bias = (lab.exact_tensor(entry[f"cost_{name}"]) for name in ("weight", "bias"))
    return torch.nn.functional.linear(s, weight, bias).relu()


@case("l2rm", "l2rm/traces/*")
def _l2rm_trace(trace: OracleEntry) -> KnownValues:
    return _to_the_largest(_trace(L2rm, trace, "clean", partial(_l2rm_constants, trace["omega"])))


def _l2rm_constants(
    omega: float, method: Any, number: int, z: Tensors, observed: Tensors, expected: OracleEntry
) -> KnownValues:
    if not expected["warm"]:
        yield KnownValue(f"clean rows of step {number}", observed["clean"].double(), expected["clean"])
        yield KnownValue(f"whether step {number} has a plan", float("plan" in observed), float("plan" in expected))
    if "plan" in expected:
        yield KnownValue(f"plan of step {number}", observed["plan"], expected["plan"])
        part = method.loss(z, observed, slice(0, len(z["image"])))["rematched"]
        share = omega * len(expected["plan"]) / len(z["image"])
        yield KnownValue(f"loss of noisy rows in step {number}", part, share * expected["rematch_loss"], 1e-8)
