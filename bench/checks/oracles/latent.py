"""LATENT's three regularisers against our own derivation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.latent import Latent, LatentConfig
from methods.protocol import Batch, Tensors

NAMES = {  # name of a feature in values.json -> name of its leaf
    "v": "image",
    "t": "text",
    "va": "image_view",
    "ta": "text_view",
    "vi": "image_independent",
    "ti": "text_independent",
    "via": "image_view_independent",
    "tia": "text_view_independent",
}
TERMS = {  # name of a value -> the variant, and the terms whose sum it is
    "L_con": ("br", ("contrastive",)),
    "L_ortho": ("sep", ("orthogonality",)),
    "L_con_i": ("sep", ("independent_contrastive",)),
    "L_uni_i": ("sep", ("uniformity",)),
    "L_sep": ("sep", ("orthogonality", "independent_contrastive", "uniformity")),
    "L_br": ("br", ("bridge",)),
    "L_gc": ("gc", ("modality_geometry",)),
    "L_gc_aug": ("gc", ("view_geometry",)),
}


def cases() -> Iterator[Case]:
    section = values()["latent"]
    yield Case("latent/t", partial(_default, "kappa", section["t"]))
    yield Case("latent/kernel_t", partial(_default, "kernel_t", section["kernel_t"]))
    for name, entry in section["cases"].items():
        yield Case(f"latent/cases/{name}", partial(_case, entry))
    identity = section["identity_gc_equals_cyclip_terms_A"]
    yield Case("latent/identity_gc_equals_cyclip_terms_A", partial(_geometry, section["cases"]["A"], identity))


def _default(field: str, expected: float) -> Iterator[Comparison]:
    yield Comparison(f"default of {field}", getattr(LatentConfig(), field), expected)


def _terms(entry: dict[str, Any], variant: str) -> tuple[Tensors, Tensors]:
    """Return the leaves and the terms of a variant."""
    given = entry["inputs"]
    z = {NAMES[key]: torch.tensor(given[key], dtype=torch.float64).requires_grad_() for key in NAMES}
    method, total = lab.build(Latent, variant=variant, temperature=1 / entry["logit_scale"]), len(z["image"])
    with torch.no_grad():
        observed = method.observe(z, Batch(torch.arange(total), lab.clock()))
    return z, method.loss(z, observed, slice(0, total))


def _case(entry: dict[str, Any]) -> Iterator[Comparison]:
    for key, (variant, names) in TERMS.items():
        z, terms = _terms(entry, variant)
        value = torch.stack([terms[name] for name in names]).sum()
        yield Comparison(key, value, entry["values"][key])
        if key == "L_br":
            yield Comparison("L_br, expanded", value, entry["L_br_expanded_form"])
        norms = {NAMES[name]: norm for name, norm in entry["grad_norms"][key].items()}
        yield from (
            Comparison(f"{key}, {one.what}", one.actual, one.expected) for one in lab.gradient_norms(value, z, norms)
        )


def _geometry(entry: dict[str, Any], expected: dict[str, float]) -> Iterator[Comparison]:
    _, terms = _terms(entry, "gc")
    for what, value in expected.items():
        yield Comparison(what, terms["modality_geometry"], value)
