"""CyCLIP against its authors' code and NUCLR's.

official: github.com/goel-shashank/CyCLIP@707e7c7 src/train.py (get_loss)
official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (CyCLIP_Loss)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.cyclip import Cyclip


def cases() -> Iterator[Case]:
    section = values()["cyclip"]
    for number, entry in enumerate(section["cases"]):
        config = _weights(entry["lambda1"], entry["lambda2"]) | {"temperature": entry["temperature"]}
        for name, expected in entry["out"].items():
            yield Case(f"cyclip/cases/{number}/out/{name}", partial(_loss, config, name, expected))
    for name, components in section["components"].items():
        for key, expected in components.items():
            yield Case(f"cyclip/components/{name}/{key}", partial(_component, name, key, expected))
    both = {"loss": section["cross_check_nuclr"]}
    yield Case("cyclip/cross_check_nuclr", partial(_loss, _weights(0.25, 0.25), "A", both))
    yield Case("cyclip/inmodal_option/A", partial(_in_modal, section["inmodal_option"]["A"]))


def _weights(in_modal: float, cross_modal: float) -> dict[str, Any]:
    return {"lambda_in_modal": in_modal, "lambda_cross_modal": cross_modal}


def _loss(config: dict[str, Any], name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    z = lab.inputs(name)
    loss = lab.objective(lab.build(Cyclip, **config), z)
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)


def _component(name: str, key: str, expected: float) -> Iterator[Comparison]:
    z = lab.inputs(name)
    terms = lab.build(Cyclip, **_weights(1.0, 1.0)).loss(z, {}, slice(0, len(z["image"])))
    yield Comparison(key, terms[{"inmodal": "in_modal_cyclic", "crossmodal": "cross_modal_cyclic"}[key]], expected)


def _in_modal(expected: dict[str, Any]) -> Iterator[Comparison]:
    """The official run's second views are given, and its consistency weights are 0."""
    views = values()["inputs"]["A_aug"]
    given = {name: torch.tensor(views[f"{name}_aug"], dtype=torch.float64) for name in ("image", "text")}
    z = lab.inputs("A") | {f"{name}_view": x.requires_grad_() for name, x in given.items()}
    loss = lab.objective(lab.build(Cyclip, in_modal=True, **_weights(0.0, 0.0)), z)
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)
