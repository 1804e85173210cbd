"""Embeddings have length 1 to single precision, whatever type the towers work in."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from bench.adapters import registry
from bench.checks.subject import Subject
from methods.base import unit

METHODS = [name for name in registry.method_names() if not registry.method_source(name).plugin]


def embeddings(z):
    """Encoded rows apart from log-variances, SuperCLIP's images before the projection, and rows not encoded again."""
    others = ("logvar", "pooled")
    kept = {name: x for name, x in z.items() if x.is_floating_point() and not any(one in name for one in others)}
    rows = {name: x[(x != 0).any(1)] for name, x in kept.items()}
    return {name: x for name, x in rows.items() if len(x) or not name.startswith("masked_")}


@pytest.mark.parametrize("name", METHODS)
def test_under_autocast_rows_are_single_and_of_length_one(name):
    subject = Subject(name)
    for variant in subject.variants:
        if variant.config.get("unnormalised"):  # SigLIP's option, which trains on raw projections
            continue
        instance = subject.instance(variant.config, batch=16)
        rows = instance.rows(total=16)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            found = embeddings(instance.method.encode(instance.towers, rows))
            features = {
                "image features": instance.method.image_features(instance.towers, rows.images)["embedding"],
                "text features": instance.method.text_features(instance.towers, rows.tokens)["embedding"],
            }
        for what, x in (found | features).items():
            assert x.dtype == torch.float32, (variant.label, what)
            assert float((x.double().norm(dim=1) - 1).abs().max()) < 1e-6, (variant.label, what)


@pytest.mark.parametrize("name", METHODS)
def test_double_precision_stays(name):
    subject = Subject(name)
    instance = subject.instance({}, batch=16)
    instance.method.double(), instance.towers.double()
    rows = instance.rows(total=16)
    doubled = (rows.images.double(), tuple(view.double() for view in rows.views))
    rows = dataclasses.replace(rows, images=doubled[0], views=doubled[1])
    with torch.no_grad():
        z = instance.method.encode(instance.towers, rows)
    assert {x.dtype for x in z.values() if x.is_floating_point()} == {torch.float64}
    assert all(float((x.norm(dim=1) - 1).abs().max()) < 1e-12 for x in embeddings(z).values())


def test_a_row_of_zeros_stays_one_and_half_precision_is_widened():
    x = torch.randn(5, 512, generator=torch.Generator().manual_seed(0)).bfloat16()
    x[2] = 0
    found = unit(x)
    assert found.dtype == torch.float32
    assert torch.equal(found[2], torch.zeros(512))
    assert float((found[[0, 1, 3, 4]].norm(dim=1) - 1).abs().max()) < 1e-6
