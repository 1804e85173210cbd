"""Oracle values, and the laboratory of `bench check`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.checks import lab as laboratory
from bench.checks.oracles import values
from methods.protocol import Clock, Tensors


@pytest.fixture(scope="session")
def lab() -> ModuleType:
    return laboratory


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    return values()


@pytest.fixture
def case() -> Callable[..., Tensors]:
    """`case("A")`: leaves "image" and "text" in fp64 (or another type) with gradient."""
    return laboratory.oracle_inputs


@pytest.fixture
def z() -> Tensors:
    """Sixteen pairs, the inputs "Q" of the values of noisy correspondence: leaves in fp64."""
    return laboratory.oracle_inputs("Q")


@pytest.fixture
def viewed() -> Tensors:
    """Eight random pairs with second views, "image_view" and "text_view": leaves in fp64."""
    draws, names = torch.Generator().manual_seed(0), ("image", "text", "image_view", "text_view")
    rows = (F.normalize(torch.randn(8, 5, generator=draws, dtype=torch.float64), dim=1) for _ in names)
    return {name: x.requires_grad_() for name, x in zip(names, rows, strict=True)}


@pytest.fixture
def assert_same_gradients() -> Callable[..., None]:
    """`assert_same_gradients(one, other, leaves)`: the gradients of two losses agree in every leaf."""

    def check(one: Tensor, other: Tensor, leaves: Iterable[Tensor], rtol: float = 1e-9, atol: float = 1e-12) -> None:
        leaves = list(leaves)
        for a, b in zip(torch.autograd.grad(one, leaves), torch.autograd.grad(other, leaves), strict=True):
            laboratory.assert_close(a, b, rtol, atol)

    return check


@pytest.fixture
def assert_no_loss_before() -> Callable[..., None]:
    """`assert_no_loss_before(late, method, z, when=early)`: neither loss nor gradient at first, and a loss later."""

    def check(late: Clock, method: Any, z: Tensors, when: Clock) -> None:
        loss = laboratory.step_loss(method, z, when=when)
        assert loss == 0
        for gradient in torch.autograd.grad(loss, list(z.values())):
            assert not gradient.any()
        assert laboratory.step_loss(method, z, when=late) > 0

    return check


@pytest.fixture(params=["vit", "resnet", "timm"])
def towers(request: pytest.FixtureRequest) -> laboratory.TinyTowers:
    return laboratory.TinyTowers(request.param)
