"""Every method's loss and gradients on a device against the CPU in fp64, and its towers' embeddings in bf16."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.adapters import registry
from bench.checks.lab import some_rows
from bench.checks.subject import BATCH, WHOLE, Subject, constants, largest_gap, loss_and_gradients, moments, total_of
from methods.protocol import Batch, Tensors

#: relative to the largest entry; fp32 sums of 40 x 40 exponentials at scales up to 100 keep about five digits
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def moved(tensors: Tensors, device: torch.device, dtype: torch.dtype) -> Tensors:
    """The same tensors elsewhere; those with gradient are leaves again."""
    found = {}
    for name, x in tensors.items():
        y = x.detach().to(device, dtype if x.is_floating_point() else x.dtype)
        found[name] = y.requires_grad_(x.requires_grad)
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["fp64", "fp32"])
@pytest.mark.parametrize("name", registry.method_names())
def test_loss_and_gradients_are_those_of_the_cpu_in_fp64(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """The step's constants are drawn on the CPU in fp64: some methods draw on the tensors' own device."""
    subject = Subject(name)
    for variant in subject.variants[:1]:
        for when in moments(subject.embedded(variant)[0]):
            method, z = subject.embedded(variant)
            fixed = constants(method, z, when)[1]
            expected = loss_and_gradients(method, total_of(method.loss(z, fixed, WHOLE)), z)
            there = method.to(device, dtype)
            leaves, given = moved(z, device, dtype), moved(fixed, device, dtype)
            found = loss_and_gradients(there, total_of(there.loss(leaves, given, WHOLE)), leaves)
            for what, value in expected.items():
                assert found[what].device.type == device.type
                gap = largest_gap(found[what].cpu(), value.cpu(), TOLERANCE[dtype], floor=1e-3)
                assert gap is None, f"{when.phase}, step {when.step}, {what}: {gap}"


@pytest.mark.parametrize("name", registry.method_names())
def test_a_step_keeps_everything_on_its_device_and_finite(name: str, device: torch.device) -> None:
    subject = Subject(name)
    for when in moments(subject.embedded(subject.variants[0])[0]):
        method, z = subject.embedded(subject.variants[0])
        method.to(device, torch.float32)
        leaves = moved(z, device, torch.float32)
        observed, drawn = constants(method, leaves, when, torch.arange(BATCH, device=device))
        for what, x in [*observed.items(), *drawn.items(), *method.state_dict().items()]:
            assert x.device.type == device.type, what
        assert torch.isfinite(total_of(method.loss(leaves, drawn, WHOLE)))


@pytest.mark.parametrize("name", registry.method_names())
def test_embeddings_of_bf16_towers_are_near_those_of_fp32(name: str, device: torch.device) -> None:
    instance = Subject(name).instance({})
    instance.towers.to(device), instance.method.to(device)
    rows = on(some_rows(instance.towers, BATCH, views=instance.method.extra_views), device)
    with torch.no_grad():
        plain: dict[str, Tensor] = deepcopy(instance.method).encode(instance.towers, rows)
        with torch.autocast(device.type, torch.bfloat16):
            found = deepcopy(instance.method).encode(instance.towers, rows)
    assert found.keys() == plain.keys()
    for what, x in plain.items():
        if x.is_floating_point():
            gap = (found[what].float() - x.float()).norm() / x.float().norm().clamp(min=1e-6)
            assert gap < 0.05, f"{what}: {float(gap):.3g}"


def on(rows: Any, device: torch.device) -> Any:
    """The same rows with their tensors on a device."""
    from dataclasses import replace

    views = tuple(view.to(device) for view in rows.views)
    return replace(
        rows, images=rows.images.to(device), tokens=rows.tokens.to(device), ids=rows.ids.to(device), views=views
    )


def test_a_batch_is_observed_where_its_rows_are(device: torch.device) -> None:
    """A stateful method's buffers are read and written by ids of the same device."""
    method, z = Subject("sogclr").embedded(Subject("sogclr").variants[0])
    method.to(device, torch.float32)
    leaves = moved(z, device, torch.float32)
    with torch.no_grad():
        method.observe(leaves, Batch(torch.arange(BATCH, device=device), moments(method)[0]))
    assert all(x.device.type == device.type for x in method.state_dict().values())
