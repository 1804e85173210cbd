"""DECL (Qin) against the authors' losses, evidence and two passes with flags.

official: github.com/QinYang79/DECL@1b0a775 model/DECL.py (warmup_batch, train_batch, mse_loss, KL, RDH_loss)
official: github.com/QinYang79/DECL@1b0a775 train.py (get_correspondence)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.decl_evidential import DeclEvidential
from methods.protocol import Batch, Clock, Tensors

PART = "noisy_correspondence"
SINGLE = 1e-7  #: get_correspondence returns its predictions in fp32


def cases() -> Iterator[Case]:
    section = values()["decl_evidential"]
    for number, entry in enumerate(section["cases"]):
        for name, expected in entry["out"].items():
            yield Case(f"decl_evidential/cases/{number}/out/{name}", partial(_loss, entry, name, expected))
    for number, entry in enumerate(section["evidence"]):
        yield Case(f"decl_evidential/evidence/{number}", partial(_evidence, entry))
    for number, trace in enumerate(section["traces"]):
        yield Case(f"decl_evidential/traces/{number}/steps", partial(_trace, trace))


def _settings(entry: dict[str, Any]) -> dict[str, Any]:
    given = {"hinge_weight": entry["lambda1"], **{key: entry[key] for key in ("temperature", "kl_weight", "margin")}}
    return {"hinge": "sum", **given}


def _loss(entry: dict[str, Any], name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    """Compare a step late in a run, when the number of negatives has come down to the one that is given."""
    z = lab.inputs(name, part=PART)
    total = len(z["image"])
    method = lab.build(DeclEvidential, rows=total, negatives=expected["negatives"], **_settings(entry))
    method.clean.copy_(torch.tensor(expected["clean"]))
    yield from _step(method, z, torch.arange(total), Clock(9, "train", 0.9, 9), expected)


def _step(
    method: DeclEvidential, z: Tensors, ids: torch.Tensor, when: Clock, expected: dict[str, Any]
) -> Iterator[Comparison]:
    with torch.no_grad():
        observed = method.observe(z, Batch(ids, when))
    terms = method.loss(z, observed, slice(0, len(ids)))
    yield Comparison("number of negatives", observed["negatives"], expected["negatives"])
    yield Comparison("flags in use", observed["clean"].double(), expected.get("clean", expected.get("clean_used")))
    yield Comparison("evidential loss", terms["evidential"], expected["edl"])
    yield Comparison("hinge", terms["hinge"], expected["hinge"])
    yield from lab.graded(terms["evidential"] + terms["hinge"], z, expected)


def _evidence(entry: dict[str, Any]) -> Iterator[Comparison]:
    z = lab.inputs(entry["inputs"], part=PART)
    total = len(z["image"])
    method = lab.build(DeclEvidential, rows=total, temperature=entry["temperature"])
    share, uncertainty = method.correspondence(z)
    yield Comparison("share of the own pair", share, entry["share"], SINGLE)
    yield Comparison("uncertainty", uncertainty, entry["uncertainty"], SINGLE)
    method.observe(z, Batch(torch.arange(total), lab.clock()))
    yield Comparison("recorded flags", method.clean.double(), entry["clean"])


def _trace(trace: dict[str, Any]) -> Iterator[Comparison]:
    """Compare two passes of three steps, the first one warm; official counts of negatives end at 3 of 7 rows."""
    source = values()[PART]["inputs"][trace["inputs"]]
    passes = source["steps"][-1]["epoch"] + 1
    schedule = {"warm": trace["warm_epochs"] / passes, "negatives": 3, "anneal": 1.0}
    method = lab.build(DeclEvidential, rows=source["N"], **_settings(trace), **schedule)
    for (z, batch, _), expected in zip(lab.trace(trace["inputs"], PART), trace["steps"], strict=True):
        yield from _step(method, z, batch.ids, batch.clock, expected)
        flags = method.clean[batch.ids].double()
        yield Comparison(f"flags after step {batch.clock.step}", flags, expected["clean_recorded"])
