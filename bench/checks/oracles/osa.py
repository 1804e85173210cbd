"""OSA against the authors' weights and loss.

official: github.com/leolee99/OSA@d64645b main_clip.py (weight_function, CrossEn)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.osa import Osa
from methods.protocol import Batch


def cases() -> Iterator[Case]:
    for number, entry in enumerate(values()["osa"]["cases"]):
        config = {"temperature": 1 / entry["logit_scale"], "shift": entry["shift"]}
        for name, expected in entry["out"].items():
            yield Case(f"osa/cases/{number}/out/{name}", partial(_loss, name, expected, **config))


def _loss(name: str, expected: dict[str, Any], **config: Any) -> Iterator[Comparison]:
    method, z = lab.build(Osa, **config), lab.inputs(name, part="noisy_correspondence")
    seen = {f"side_{key}": torch.tensor(expected[f"estimator_{key}"], dtype=torch.float64) for key in z}
    with torch.no_grad():
        observed = method.observe({**z, **seen}, Batch(torch.arange(len(z["image"])), lab.clock()))
    yield Comparison("weights", observed["weights"], expected["weights"])
    yield from lab.graded(lab.sum_of_tiles(method, z, observed), z, expected, method.scale.rho)
