"""PSD against our own derivation: there is no code."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.psd import Psd


def cases() -> Iterator[Case]:
    for number, entry in enumerate(values()["psd"]["cases"]):
        config = {"temperature": 1 / entry["logit_scale"], **{key: entry[key] for key in ("swap", "sharpen")}}
        for name, expected in entry["out"].items():
            yield Case(f"psd/cases/{number}/out/{name}", partial(_loss, name, expected, **config))


def _loss(name: str, expected: dict[str, Any], **config: Any) -> Iterator[Comparison]:
    method, z = lab.build(Psd, **config), lab.inputs(name, part="noisy_correspondence")
    soft = torch.tensor(expected["soft_rows"]).bool()
    yield from lab.graded(lab.sum_of_tiles(method, z, {"soft": soft}), z, expected, method.scale.rho)
