"""GSC against the official code: given targets, and a trace of six steps with all state after each.

official: github.com/MediaBrain-SJTU/GSC@2759ba0 GSC/model/RINCE.py (RINCE.train_batch, RINCE.split_batch)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.gsc import Gsc
from methods.protocol import Batch, Tensors

INPUTS = "noisy_correspondence"
STATE = {  #: official name -> ours
    "targets": "target",
    "preds": "share",
    "preds_targets": "share_average",
    "topo_targets": "agreement_average",
}


def cases() -> Iterator[Case]:
    section = values()["gsc"]
    for number, entry in enumerate(section["cases"]):
        for name, expected in entry["out"].items():
            yield Case(f"gsc/cases/{number}/out/{name}", partial(_case, entry, name, expected))
    for number, entry in enumerate(section["traces"]):
        yield Case(f"gsc/traces/{number}/steps", partial(_trace, entry))


def _method(entry: dict[str, Any], rows: int, **config: Any) -> Gsc:
    given = {key: entry[key] for key in ("temperature", "structure_weight", "intra_scale")}
    method: Gsc = lab.build(Gsc, rows=rows, per_batch=False, learnable_scale=True, **given, **config)
    return method


def _case(entry: dict[str, Any], name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    z = lab.inputs(name, part=INPUTS)
    total = len(z["image"])
    method = _method(entry, total)
    method.target.copy_(torch.tensor(expected["targets"], dtype=torch.float64))
    yield from _step(method, z, Batch(torch.arange(total), lab.clock()), expected)
    yield Comparison("prediction", method.share, expected["prediction"])
    yield Comparison("structure score", 1 - method.disagreement, expected["structure_score"])


def _trace(entry: dict[str, Any]) -> Iterator[Comparison]:
    method = _method(entry, values()[INPUTS]["inputs"][entry["inputs"]]["N"], beta=entry["beta"])
    for number, (z, batch, ends) in enumerate(lab.trace(entry["inputs"], INPUTS)):
        expected = entry["steps"][number]
        yield from _step(method, z, batch, expected)
        if ends:
            method.end_epoch(batch.clock.epoch)
        for theirs, ours in STATE.items():
            state = getattr(method, ours).clone()
            yield Comparison(f"{theirs} after step {number}", state, expected["state"][theirs])
        yield Comparison(f"topos after step {number}", 1 - method.disagreement, expected["state"]["topos"])


def _step(method: Gsc, z: Tensors, batch: Batch, expected: dict[str, Any]) -> Iterator[Comparison]:
    with torch.no_grad():
        observed = method.observe(z, batch)
    terms = method.loss(z, observed, slice(0, len(z["image"])))
    yield from lab.graded(terms["cross_modal"] + terms["structure"], z, expected, method.scale.rho)
    yield Comparison("cross-modal loss", terms["cross_modal"], expected["cross"])
    settings = {key: getattr(method.config, key) for key in ("temperature", "intra_scale", "per_batch")}
    alone = lab.build(Gsc, structure_weight=1.0, **settings)  # one case has weight 0
    structure = alone.loss(z, observed, slice(0, len(z["image"])))["structure"]
    yield Comparison("structure loss", structure, expected["structure"])
