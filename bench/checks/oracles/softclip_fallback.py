"""SoftCLIP (fallback guides) against our derivation of the recalled form, with guides given in place of its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.softclip_fallback import SoftclipFallback


def cases() -> Iterator[Case]:
    for key, expected in values()["softclip"]["cases"].items():
        yield Case(f"softclip/cases/{key}", partial(_loss, key.partition("_")[0], expected))


def _loss(name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    scales = {"temperature": 1 / expected["logit_scale"], "target_temperature": 1 / expected["target_scale"]}
    method, z = lab.build(SoftclipFallback, beta=expected["beta"], lam=expected["lam"], **scales), lab.inputs(name)
    guides = {"image_guide": "roi_features", "text_guide": "tag_features"}
    observed = {ours: torch.tensor(expected[theirs], dtype=torch.float64) for ours, theirs in guides.items()}
    loss = lab.sum_of_tiles(method, z, observed)
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)
