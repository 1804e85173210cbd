"""Oracle cases, tiny real towers, and one training step of any adapter."""

from __future__ import annotations

import importlib
import itertools
import json
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bench.vision  # noqa: F401  before open_clip, which imports torchvision
import methods
from bench.batchnorm import group_batchnorm
from methods.base import Adapter
from methods.protocol import Batch, Clock, Facts, Rows, Tensors

TEXTS = ["grinning face", "a photo of a red apple", "an ice cream", "the black cat sat down", "blue car , side view"]


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
    """The helpers below; test files cannot import each other."""
    return sys.modules[__name__]


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("oracles.json").read_text())


@pytest.fixture
def case(oracles: dict[str, Any]) -> Callable[..., Tensors]:
    """`case("A")`: leaves "image" and "text" in fp64 (or another type) with gradient."""

    def make(name: str, dtype: torch.dtype = torch.float64) -> Tensors:
        found = oracles["inputs"][name]
        keys = {"image": "image", "text": "text", "text_neg": "negative"}
        return {
            new: torch.tensor(found[old], dtype=dtype).requires_grad_() for old, new in keys.items() if old in found
        }

    return make


def build(kind: type[Adapter], rows: int = 64, batch: int = 8, dim: int = 16, seed: int = 0, **config: Any) -> Any:
    """An fp64 adapter."""
    return kind(kind.Config(**config), Facts(rows=rows, batch=batch, dim=dim, seed=seed)).double()


def clock(step: int = 0, phase: str = "train", epoch: int = 0) -> Clock:
    return Clock(step=step, phase=phase, progress=0.0, epoch=epoch)


def tiles_of(total: int, cuts: tuple[int, ...] = ()) -> list[slice]:
    return [slice(a, b) for a, b in itertools.pairwise((0, *cuts, total))]


def objective(
    method: Any, z: Tensors, ids: Tensor | None = None, when: Clock | None = None, cuts: tuple[int, ...] = ()
) -> Tensor:
    """Loss of one step as the runner evaluates it: observe once, then draw and loss on every tile."""
    total = z["image"].shape[0]
    with torch.no_grad():
        observed = method.observe(z, Batch(torch.arange(total) if ids is None else ids, when or clock()))
    return sum_of_tiles(method, z, observed, cuts)


def sum_of_tiles(method: Any, z: Tensors, observed: Tensors, cuts: tuple[int, ...] = ()) -> Tensor:
    parts = []
    for tile in tiles_of(z["image"].shape[0], cuts):
        with torch.no_grad():
            constants = method.draw(z, observed, tile)
        parts += list(method.loss(z, constants, tile).values())
    return torch.stack(parts).sum()


def assert_close(found: Any, expected: Any, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    found = torch.as_tensor(found)
    torch.testing.assert_close(
        found.detach(), torch.as_tensor(expected, dtype=found.dtype), rtol=rtol, atol=atol, check_device=False
    )


class TinyTowers(nn.Module):
    """Real open_clip towers, small enough for a test, and a tokenizer of whole words."""

    def __init__(self, visual: str = "vit", causal: bool = True) -> None:
        super().__init__()
        import open_clip

        vision = {
            "vit": {"layers": 2, "width": 32, "head_width": 16, "patch_size": 8, "image_size": 32},
            "resnet": {"layers": (1, 1, 1, 1), "width": 8, "head_width": 16, "image_size": 32},
            "timm": {"timm_model_name": "test_resnet", "timm_pool": "avg", "timm_proj": "linear", "image_size": 32},
        }[visual]
        text = {"context_length": 16, "vocab_size": 64, "width": 32, "heads": 2, "layers": 3}
        with torch.random.fork_rng():
            torch.manual_seed(0)
            clip = open_clip.model.CustomTextCLIP(16, vision, {**text, "no_causal_mask": not causal})
        self.visual, self.text, self.dim, self.context_length = clip.visual, clip.text, 16, 16
        group_batchnorm(self.visual, 8)

    def encode_image(self, images: Tensor) -> Tensor:
        return self.visual(images)

    def encode_text(self, tokens: Tensor) -> Tensor:
        return self.text(tokens)

    def tokenize(self, captions: list[str]) -> Tensor:
        words = [[3 + sum(word.encode()) % 57 for word in caption.split()][:14] for caption in captions]
        return torch.tensor([[60, *row, 63] + [0] * (14 - len(row)) for row in words])


@pytest.fixture(params=["vit", "resnet", "timm"])
def towers(request: pytest.FixtureRequest) -> TinyTowers:
    return TinyTowers(request.param)


def some_rows(towers: Any, total: int, part: slice | None = None, when: Clock | None = None) -> Rows:
    """Rows `part` of a batch of `total` fixed random images and captions."""
    part = part or slice(0, total)
    images = torch.randn(total, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    captions = [TEXTS[i % len(TEXTS)] for i in range(total)][part]
    ids = torch.arange(total)[part]
    tokens = towers.tokenize(captions)
    return Rows(images[part], tokens, captions, ids, range(total)[part], when or clock())
