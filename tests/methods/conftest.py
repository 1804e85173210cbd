"""Oracle values, and the laboratory of `bench check`."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

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
