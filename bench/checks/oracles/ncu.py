"""NCU's two phases and its masked Sinkhorn against the official code; finite values where that gives NaN.

official: github.com/hhc1997/NCU@cd338a5 src/ul_clip.py (Invert_Loss, ContrastiveLoss)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from bench.checks.subject import total_of
from methods.forget import confidence_odds, log_odds
from methods.ncu import Ncu
from methods.protocol import Batch, Tensors
from methods.sinkhorn import masked_sinkhorn


def _step(phase: str, entry: OracleEntry, **config: Any) -> tuple[Ncu, Tensors, Tensors, Tensors]:
    """Return method, leaves, constants and terms of one step on inputs N."""
    method, z = lab.adapter_of(Ncu, entry, **config), lab.oracle_inputs("N")
    total = len(z["image"])
    observed = lab.observe(method, z, Batch(torch.arange(total), lab.a_clock(0, phase)))
    return method, z, observed, method.loss(z, observed, slice(0, total))


def _graded(method: Ncu, terms: Tensors, z: Tensors, expected: OracleEntry) -> KnownValues:
    names = {"image": "image", "text": "text", "negative": "text_neg"}
    norms = {name: expected["grad_norms"][key] for name, key in names.items()}
    negative = {"grad_negative": expected["grad_text_neg"]} if "grad_text_neg" in expected else {}
    yield from lab.compare_loss(method, total_of(terms), z, {**expected, "grad_norms": norms, **negative})


@case("ncu", "ncu/phase1/cases/*")
def _learn(expected: OracleEntry) -> KnownValues:
    for confidence in ("two_sided", "image_to_text"):
        method, z, observed, terms = _step("learn", expected, confidence=confidence)
        yield KnownValue("kept rows", observed["kept"], sorted(expected["retain_ids"]), rtol=0, atol=0)
        forgotten = sorted(set(range(len(z["image"]))) - set(observed["kept"].tolist()))
        yield KnownValue("forgotten rows", torch.tensor(forgotten), sorted(expected["forget_ids"]), rtol=0, atol=0)
        names = {"relation": "cyclic_x10", "margin": "opposite_x10", "yes": "sigmoid_yes", "no": "sigmoid_no"}
        for name, key in names.items():
            yield KnownValue(name, terms[name], expected[key])
        yield from _graded(method, terms, z, expected)


@case("ncu", "ncu/phase2/cases/*")
def _unlearn(expected: OracleEntry) -> KnownValues:
    method, z, observed, terms = _step("unlearn", expected, **Ncu.presets["official"])
    yield KnownValue("margin", terms["margin"], expected["opposite"])
    yield KnownValue("forgotten rows", _forgotten(observed), [row[-1] for row in expected["mask_v"]], rtol=0, atol=0)
    yield from _plans(method, z, expected)
    if expected["loss"] == "nan":  # nothing to forget: the official code divides 0 by 0
        # The third variant has a finite value for it; NaN reached neither the texts nor the margin.
        finite = values()["ncu"]["phase2_variants"]["rows"][2]["loss_ul"]
        yield KnownValue("transport", terms["transport"], finite)
        yield KnownValue("loss", total_of(terms), finite + expected["opposite"])
        yield from lab.gradient_norms(total_of(terms), z, {"text": expected["grad_norms"]["text"]})
        slopes = torch.autograd.grad(total_of(terms), [*z.values(), method.scale.rho])
        finite_ones = torch.cat([x.isfinite().flatten() for x in slopes]).double()
        yield KnownValue("share of finite gradients", finite_ones.mean(), 1)
    else:
        yield KnownValue("transport", terms["transport"], expected["loss_ul"])
        yield from _graded(method, terms, z, expected)


def _plans(method: Ncu, z: Tensors, expected: OracleEntry) -> KnownValues:
    cost = 1 - method._affinities(z).detach()
    cost = cost / cost.max()
    yield KnownValue("cost", cost, expected["cost_v"])
    allowed = torch.tensor(expected["mask_v"]).bool()
    by_image, by_text = masked_sinkhorn(cost, allowed), masked_sinkhorn(cost.T, allowed.T)
    for name, plan in (("plan_v", by_image), ("plan_t", by_text)):
        yield KnownValue(name, plan, expected[name])
        yield KnownValue(f"{name}, row sums", plan.sum(1), expected[f"{name}_row_sums"])
        yield KnownValue(f"{name}, column sums", plan.sum(0), expected[f"{name}_col_sums"])
    apart = (by_text - by_image.T).abs().max()
    yield KnownValue("distance of the plans", apart, expected["max_abs_plan_t_minus_plan_v_T"])


def _forgotten(observed: Tensors) -> Tensor:
    """[B] 1.0 for rows whose target has some weight on their own negative."""
    return (observed["image_targets"][:, -1] > 0).double()


@case("ncu", "ncu/phase2_variants/rows/*")
def _variant(expected: OracleEntry) -> KnownValues:
    config = {"confidence": "two_sided" if expected["two_sided_confidence"] else "image_to_text"}
    _, z, observed, terms = _step("unlearn", expected, **config)
    forgotten = _forgotten(observed).nonzero().flatten()
    yield KnownValue("forgotten rows", forgotten, sorted(expected["forget"]), rtol=0, atol=0)
    yield KnownValue("transport", terms["transport"], expected["loss_ul"])
    yield from lab.gradient_norms(terms["transport"], z, dict(zip(z, expected["grad_norms"], strict=True)))
    summed = _step("unlearn", expected, **config, mean_of_directions=False)[3]["transport"]
    yield KnownValue("sum of both divergences", summed, expected["loss_img"] + expected["loss_txt"])


@case("ncu", "ncu/masked_sinkhorn")
def _solver(given: OracleEntry) -> KnownValues:
    cost, allowed = torch.tensor(given["cost"], dtype=torch.float64), torch.tensor(given["mask"]).bool()
    converged = masked_sinkhorn(cost, allowed, given["reg"], iterations=5000, threshold=1e-12)
    for plan, ending, key in (
        (masked_sinkhorn(cost, allowed, given["reg"]), "100", "plan_100_iters_thresh1e_4"),
        (converged, "conv", "plan_converged"),
    ):
        yield KnownValue(key, plan, given[key])
        yield KnownValue(f"{key}, row sums", plan.sum(1), given[f"row_sums_{ending}"])
        yield KnownValue(f"{key}, column sums", plan.sum(0), given[f"col_sums_{ending}"])
    nothing = torch.ones_like(allowed)
    nothing[:, -1] = False
    empty = masked_sinkhorn(cost, nothing, given["reg"])
    yield KnownValue("nothing to forget, row sums", empty.sum(1), given["no_forget_rows"]["row_sums"])
    yield KnownValue("nothing to forget, column sums", empty.sum(0), given["no_forget_rows"]["col_sums"])


@case("ncu", "ncu/confidence")
def _confidence(expected: OracleEntry) -> KnownValues:
    odds = log_odds(lab.oracle_inputs("N"), torch.tensor(1 / 0.07, dtype=torch.float64))
    two, one = (confidence_odds(odds, kind).sigmoid() for kind in ("two_sided", "image_to_text"))
    yield KnownValue("both directions", two, expected["paper_eq2_two_sided"])
    yield KnownValue("images only", one, expected["official_image_to_text_only"])


@case("ncu", "ncu/relation_loss_paper_vs_code")
def _relation(expected: OracleEntry) -> KnownValues:
    for relation, key in (("paper", "paper_eq4"), ("code", "official_code_before_x10")):
        terms = _step("learn", {"logit_scale": 1 / 0.07}, forget=0.25, relation=relation, negative_weight=1.0)[3]
        yield KnownValue(relation, terms["relation"], expected[key])
