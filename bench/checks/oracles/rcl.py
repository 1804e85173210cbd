"""RCL against the authors' loss, every form of it.

official: github.com/penghu-cs/RCL@1096a24 RCL-SGRAF/model.py (CCL)

The authors' code subtracts p from 1, which loses digits where a negative takes nearly all the mass, as on P.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.rcl import Rcl

RTOL = 3e-9  #: of the gradients


def cases() -> Iterator[Case]:
    for number, entry in enumerate(values()["rcl"]["cases"]):
        config = {key: entry[key] for key in ("form", "temperature", "q", "floor")}
        for name, expected in entry["out"].items():
            yield Case(f"rcl/cases/{number}/out/{name}", partial(_loss, name, expected, **config))


def _loss(name: str, expected: dict[str, Any], **config: Any) -> Iterator[Comparison]:
    method = lab.build(Rcl, learnable_scale=True, **config)
    z = lab.inputs(name, part="noisy_correspondence")
    yield from lab.graded(lab.objective(method, z), z, expected, method.scale.rho, RTOL)
