"""PCME++ against the official loss, and its distance against sampling.

official: github.com/naver-ai/pcmepp@8829c0d pcmepp/criterions/pcmepp.py (ClosedFormSampledDistanceLoss)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from methods.pcmepp import Pcmepp
from methods.protocol import Tensors


def gaussians(name: str, order: list[int] | None = None) -> Tensors:
    """Return leaves "image", "text" and their log-variances of an input, with its rows in `order`."""
    given, logvar = values()["inputs"][name], values()["inputs"]["logsigma_sq"][name]
    z = {}
    for key in ("image", "text"):
        z[key], z[f"{key}_logvar"] = lab.exact_tensor(given[key]), lab.exact_tensor(logvar[key])
    return {key: (x if order is None else x[order]).requires_grad_() for key, x in z.items()}


def of_leaves(norms: Mapping[str, float]) -> dict[str, float]:
    """Return norms of gradients by the leaves' names, in place of "mu_image" and "logvar_text"."""
    parts = ((name.partition("_"), norm) for name, norm in norms.items())
    return {f"{side}_logvar" if kind == "logvar" else side: norm for (kind, _, side), norm in parts}


@case("pcmepp", "pcmepp/cases/*/out/*")
def _case(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    method, z = lab.adapter_of(Pcmepp, entry, smoothing=0.0, mixed_share=0.0), gaussians(name)
    yield from _compared(method, z, lab.step_loss(method, z), expected, list(range(len(z["image"]))))


def _compared(method: Any, z: Tensors, loss: Tensor, expected: OracleEntry, order: list[int]) -> KnownValues:
    """Compare the loss and all gradients; row i of z is row order[i] of values.json."""
    given = {"loss": expected["loss"], "grad_norms": of_leaves(expected["grad_norms"])}
    given["grad_image_logvar"] = [expected["grad_logvar_image"][row] for row in order]
    yield from lab.compare_loss(method, loss, z, given)
    yield from lab.gradients(loss, {name: getattr(method, name) for name in ("shift", "negative_scale")}, expected)


MIXED_ORDER = [1, 2, 0, 3]  #: rows 1 and 2 are mixed with each other there, neighbours 0 and 1 here


def _mixed() -> tuple[Any, Tensors]:
    """Return the method, and its step's constants for the lambdas of the entry."""
    entry = values()["pcmepp"]["mixed_targets_A"]
    shares = lab.exact_tensor(entry["lam"])[MIXED_ORDER]
    explodes = torch.tensor(False)
    partner = torch.tensor([1, 0, 3, 2])
    observed = {"kept": shares, "partner": partner, "no_vib_image": explodes, "no_vib_text": explodes}
    return lab.adapter_of(Pcmepp, entry), observed


@case("pcmepp", "pcmepp/mixed_targets_A/out")
def _mixed_targets(expected: OracleEntry) -> KnownValues:
    method, observed = _mixed()
    z = gaussians("A", MIXED_ORDER)
    yield from _compared(method, z, lab.sum_of_tiles(method, z, observed), expected, MIXED_ORDER)


@case("pcmepp", "pcmepp/mixed_targets_A/matched")
def _labels(matched: list[list[float]]) -> KnownValues:
    method, observed = _mixed()
    expected = lab.exact_tensor(matched)[MIXED_ORDER][:, MIXED_ORDER]
    yield KnownValue("labels of image anchors", method._labels(observed, "image", slice(0, 4)), expected)
    yield KnownValue("labels of text anchors", method._labels(observed, "text", slice(0, 4)), expected.T)


@case("pcmepp", "pcmepp/csd_mc_check")
def _distance(entry: OracleEntry) -> KnownValues:
    z = gaussians("C")
    method = lab.build_adapter(Pcmepp, negative_scale=1.0, shift=0.0)
    distance = -method._logits(z, "image", "text", slice(0, 8))[0, 1]  # C image 0, text 1
    yield KnownValue("closed form", distance, entry["closed_form"])
    # 200,000 draws: their mean has a relative standard error near 1e-3.
    yield KnownValue("mean of sampled distances", distance, entry["monte_carlo_200k"], rtol=3e-3)
