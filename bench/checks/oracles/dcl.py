"""DCL against the code of NUCLR (two modalities) and of its authors (one, with in-modal negatives).

official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (DCL_Loss)
official: github.com/chingyaoc/DCL@7d6345f main.py (train)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.dcl import Dcl


def cases() -> Iterator[Case]:
    section = values()["dcl"]
    for number, entry in enumerate(section["cases"]):
        config = {"tau_plus": entry["tau_plus"], "temperature": entry["temperature"]}
        for name, expected in entry["out"].items():
            yield Case(f"dcl/cases/{number}/out/{name}", partial(_loss, config, name, expected))
    original = "unimodal_original_A_tau0.5_tp0.1"
    config = {"tau_plus": 0.1, "temperature": 0.5, "in_modal_negatives": True}
    yield Case(f"dcl/{original}/loss", partial(_loss, config, "A", section[original]))


def _loss(config: dict[str, Any], name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    z = lab.inputs(name)
    loss = lab.objective(lab.build(Dcl, **config), z)
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)
