"""Oracle values, and the laboratory of `bench check`."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from bench.checks import lab as laboratory
from bench.checks.oracles import values
from methods.protocol import Tensors


@pytest.fixture(scope="session")
def lab() -> ModuleType:
    return laboratory


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    return values()


@pytest.fixture
def case() -> Callable[..., Tensors]:
    """`case("A")`: leaves "image" and "text" in fp64 (or another type) with gradient."""
    return laboratory.inputs


@pytest.fixture(params=["vit", "resnet", "timm"])
def towers(request: pytest.FixtureRequest) -> laboratory.TinyTowers:
    return laboratory.TinyTowers(request.param)
