"""Every adapter of `methods/`, oracle values, and the laboratory of `bench check`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import methods
from bench.check import lab as laboratory
from bench.check.oracles import values
from methods.base import Adapter
from methods.protocol import Tensors


def adapters() -> list[type[Adapter]]:
    """The adapter of every file in `methods/`."""
    modules = [importlib.import_module(f"methods.{found.name}") for found in pkgutil.iter_modules(methods.__path__)]
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return sorted({k for k in kinds if issubclass(k, Adapter) and "name" in vars(k)}, key=lambda kind: kind.name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "any_method" in metafunc.fixturenames:
        metafunc.parametrize("any_method", adapters(), ids=lambda kind: kind.name)


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
