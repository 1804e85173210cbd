"""NUCLR against five steps of the official code, of the official code with its rescaling corrected, and SogCLR.

official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (DGCL_Loss)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from bench.checks.oracles.sogclr import RTOL, apart, follow, leaves, normalisers
from methods.nuclr import Nuclr
from methods.protocol import Tensors
from methods.sogclr import Sogclr

# official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (DGCL_Loss)
CORRECTS = (0, 2, 3)  #: the official trace that each corrected one repeats; the corrected one lists only some settings
#: Rows of the comparison with SogCLR. values.json does not keep them: of all choices only these give SogCLR's losses.
IDS = ([0, 1, 2, 3], [4, 5, 6, 7], [0, 5, 2, 7], [1, 3, 4, 6], [0, 1, 2, 3])


def cases() -> Iterator[Case]:
    section = values()["nuclr"]
    for number, trace in enumerate(section["traces"]):
        yield Case(f"nuclr/traces/{number}", partial(_trace, trace, "official"))
    for number, trace in enumerate(section["traces_with_corrected_rescale"]):
        whole = section["traces"][CORRECTS[number]] | trace
        yield Case(f"nuclr/traces_with_corrected_rescale/{number}", partial(_trace, whole, "corrected"))
    yield Case("nuclr/identity_vs_sogclr", partial(_beside_sogclr, section["identity_vs_sogclr"]["rows"]))


def _trace(trace: dict[str, Any], rescale: str) -> Iterator[Comparison]:
    names = {"zeta0": "zeta_init", "eta_I_ratio": "image_ratio", "max_epoch": "epochs"}
    settings = {names.get(key, key): value for key, value in trace.items() if key not in ("steps", "note")}
    method = lab.build(Nuclr, rows=6, rescale=rescale, **settings)
    yield from follow(method, trace, lambda: _state(method), settings["epochs"])


def _state(method: Nuclr) -> Tensors:
    vectors = normalisers(method, 1 / method.config.temperature)
    for name in ("image", "text"):
        letter = name[0].upper()
        own = {"z": "momentum", "zeta": "zeta", "xi": "xi"}
        vectors |= {f"{theirs}_{letter}": getattr(method, f"{ours}_{name}") for theirs, ours in own.items()}
    return vectors


def _beside_sogclr(rows: list[dict[str, float]]) -> Iterator[Comparison]:
    """With popularities fixed at 0 and xi infinite, only SogCLR's floor and the official mistake make a difference."""
    frozen: dict[str, Any] = {"temperature": 0.1, "zeta_init": 0.0, "xi_init": math.inf, "eta": 0.0}
    methods = {
        "nuclr_corrected": lab.build(Nuclr, rows=8, **frozen),
        "nuclr_official": lab.build(Nuclr, rows=8, rescale="official", **frozen),
        "sogclr": lab.build(Sogclr, rows=8, temperature=0.1),
    }
    for number, (given, ids, expected) in enumerate(zip(values()["inputs"]["T"]["steps"], IDS, rows, strict=True)):
        z, losses = {name: leaves(given) for name in methods}, {}
        for name, method in methods.items():
            losses[name] = lab.objective(method, z[name], torch.tensor(ids), lab.clock(number, epoch=given["epoch"]))
            yield Comparison(f"{name} at step {number}", losses[name], expected[name], RTOL)
        two = ("nuclr_corrected", "sogclr")
        difference = apart(*(losses[name] for name in two), *(z[name]["image"] for name in two))
        yield Comparison(f"difference of gradients at step {number}", difference, expected["grad_diff"], 1e-5, 1e-15)
