"""CleanCLIP against the authors' code at two pairs of weights and two logit scales.

official: github.com/nishadsinghi/CleanCLIP@d6e2f1d src/train.py (get_loss)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.cleanclip import Cleanclip
from methods.protocol import Tensors

VIEWED = ("image", "text", "image_view", "text_view")


def cases() -> Iterator[Case]:
    for number, entry in enumerate(values()["cleanclip"]["cases"]):
        yield Case(f"cleanclip/cases/{number}/out", partial(_loss, entry))


def viewed(name: str) -> Tensors:
    """Return one of the shared inputs as leaves, with their second views."""
    entry = values()["poisoning"]["inputs"][name]
    return lab.leaves({key: entry[key] for key in VIEWED})


def _loss(entry: dict[str, Any]) -> Iterator[Comparison]:
    settings: dict[str, Any] = {name: float(entry[name]) for name in ("clip_weight", "inmodal_weight")}
    method = lab.build(Cleanclip, temperature=math.exp(-entry["log_scale"]), **settings)
    z = viewed(entry["inputs"])
    loss = lab.objective(method, z)
    yield Comparison("loss", loss, entry["out"]["loss"])
    yield from lab.gradients(loss, {**z, "log_scale": method.scale.rho}, entry["out"])
