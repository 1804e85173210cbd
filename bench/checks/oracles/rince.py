"""RINCE against its formula for two modalities and against the authors' SimCLR and MoCo code.

official: github.com/chingyaoc/RINCE@c7f8534 ImageNet/simclr/simclr_module.py (sym_loss)
official: github.com/chingyaoc/RINCE@c7f8534 ImageNet/moco-v3/moco/builder.py
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.rince import Rince


def cases() -> Iterator[Case]:
    section = values()["rince"]
    for kind, compare in (
        ("bimodal", _loss),
        ("official_simclr_two_view", partial(_loss, in_modal_negatives=True)),
        ("official_moco_one_direction", _one_direction),
    ):
        for number, entry in enumerate(section[kind]):
            config = {key: entry[key] for key in ("q", "lam", "temperature")}
            for name, expected in entry["out"].items():
                yield Case(f"rince/{kind}/{number}/out/{name}", partial(compare, name, expected, **config))
    growing = section["unbounded_with_learnable_scale"]
    for number, row in enumerate(growing["rows"]):
        for key, q in (("q0_1", 0.1), ("q0_5", 0.5)):
            config = {"q": q, "lam": growing["lam"], "temperature": 1 / row["logit_scale"]}
            path = f"rince/unbounded_with_learnable_scale/rows/{number}/{key}"
            yield Case(path, partial(_loss, growing["case"], {"loss": row[key]}, **config))


def _loss(name: str, expected: dict[str, Any], **config: Any) -> Iterator[Comparison]:
    z = lab.inputs(name)
    loss = lab.objective(lab.build(Rince, **config), z)
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)


def _one_direction(name: str, expected: dict[str, Any], **config: Any) -> Iterator[Comparison]:
    """MoCo's loss has image anchors only, is multiplied by twice the temperature, and normalises what it is given."""
    method, z = lab.build(Rince, **config), lab.inputs(name)
    unit = {key: F.normalize(x, dim=1) for key, x in z.items()}
    image_half: torch.Tensor = 2 * method.loss(unit, {}, slice(0, len(z["image"])))["image_anchored"]
    loss = 2 * config["temperature"] * image_half
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)
