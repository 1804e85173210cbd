"""LATENT's three regularisers against our own derivation."""

from __future__ import annotations

import torch

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from methods.latent import Latent, LatentConfig
from methods.protocol import Tensors

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


@case("latent", "latent/*t")
def _default(key: str, expected: float) -> KnownValues:
    field = {"t": "kappa"}.get(key, key)
    yield KnownValue(f"default of {field}", getattr(LatentConfig(), field), expected)


def _terms(entry: OracleEntry, variant: str) -> tuple[Tensors, Tensors]:
    """Return the leaves and the terms of a variant."""
    given = entry["inputs"]
    z = lab.leaves({ours: given[theirs] for theirs, ours in NAMES.items()})
    method = lab.adapter_of(Latent, entry, variant=variant)
    return z, method.loss(z, lab.observe(method, z), slice(0, len(z["image"])))


@case("latent", "latent/cases/*")
def _case(_: str, entry: OracleEntry) -> KnownValues:
    for key, (variant, names) in TERMS.items():
        z, terms = _terms(entry, variant)
        value = torch.stack([terms[name] for name in names]).sum()
        yield KnownValue(key, value, entry["values"][key])
        if key == "L_br":
            yield KnownValue("L_br, expanded", value, entry["L_br_expanded_form"])
        norms = {NAMES[name]: norm for name, norm in entry["grad_norms"][key].items()}
        yield from (
            KnownValue(f"{key}, {one.what}", one.actual, one.expected) for one in lab.gradient_norms(value, z, norms)
        )


@case("latent", "latent/identity_gc_equals_cyclip_terms_A")
def _geometry(expected: OracleEntry) -> KnownValues:
    _, terms = _terms(values()["latent"]["cases"]["A"], "gc")
    for what, value in expected.items():
        yield KnownValue(what, terms["modality_geometry"], value)
