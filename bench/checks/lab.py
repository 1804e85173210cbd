"""Helpers of checks and of tests of adapters: adapters in fp64, a step as the runner evaluates it, tiny real towers."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

import bench.machine.torchvision_fix  # noqa: F401  before anything imports open_clip
from bench.checks.oracles import NAMES, KnownValue, values
from bench.towers.batchnorm import group_batchnorm
from bench.towers.build import OpenClipTowers
from methods.base import Adapter
from methods.protocol import Batch, Clock, Facts, Rows, Tensors

TEXTS = ["grinning face", "a photo of a red apple", "an ice cream", "the black cat sat down", "blue car , side view"]


def oracle_inputs(name: str, dtype: torch.dtype = torch.float64) -> Tensors:
    """Return inputs of the values as leaves with gradient: "image", "text" and, if the entry has some, "negative"."""
    own = values()["inputs"]
    entry = own[name] if name in own else correspondence(name)
    keys = {"image": "image", "text": "text", "text_neg": "negative"}
    return leaves({new: entry[old] for old, new in keys.items() if old in entry}, dtype)


def correspondence(name: str, source: str = "noisy_correspondence") -> dict[str, Any]:
    """Return an entry of the inputs for methods against noisy correspondence, or of another file of inputs."""
    entry: dict[str, Any] = values()[source]["inputs"][name]
    return entry


def exact_tensor(numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def pair(rows: Mapping[str, Any]) -> Tensors:
    """Return "image" and "text" of an entry as leaves."""
    return leaves({name: rows[name] for name in ("image", "text")})


def leaves(entry: Mapping[str, Any], dtype: torch.dtype = torch.float64) -> Tensors:
    """Return named rows as `observe` and `loss` get them: leaves with gradient; "side_..." are not."""
    tensors = {name: torch.tensor(x, dtype=dtype) for name, x in entry.items()}
    return {name: x.requires_grad_(not name.startswith("side_")) for name, x in tensors.items()}


def build_adapter(
    kind: type[Adapter], rows: int = 64, batch: int = 8, dim: int = 16, seed: int = 0, **config: Any
) -> Any:
    """Make an adapter in fp64; its own scalars are computed in fp64, too."""
    return in_fp64(lambda: kind(kind.Config(**config), Facts(rows=rows, batch=batch, dim=dim, seed=seed)))


def adapter_of(kind: type[Adapter], entry: Mapping[str, Any], rows: int = 64, batch: int = 8, **config: Any) -> Any:
    """Make an adapter in fp64 with the hyper-parameters that an entry of the values names, and those of `config`."""
    fields, theirs = {field.name for field in dataclasses.fields(kind.Config)}, NAMES.get(kind.name, {})
    given = {key: value for key, value in entry.items() if key in fields}
    given |= {ours: entry[name] for name, ours in theirs.items() if name in entry}
    if "temperature" in fields:
        given |= {"temperature": 1 / entry["logit_scale"]} if "logit_scale" in entry else {}
        given |= {"temperature": math.exp(-entry["log_scale"])} if "log_scale" in entry else {}
    return build_adapter(kind, rows, batch, **{**given, **config})


def in_fp64(make: Callable[[], Any]) -> Any:
    """Call `make` with fp64 as the default, so that scalars are exact, and return its adapter in fp64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return make().double()
    finally:
        torch.set_default_dtype(before)


def a_clock(step: int = 0, phase: str = "train", epoch: int = 0) -> Clock:
    return Clock(step=step, phase=phase, progress=0.0, epoch=epoch)


def tiles_of(total: int, cuts: tuple[int, ...] = ()) -> list[slice]:
    return [slice(a, b) for a, b in itertools.pairwise((0, *cuts, total))]


def observe(
    method: Any, z: Tensors, batch: Batch | None = None, *, ids: Tensor | None = None, when: Clock | None = None
) -> Tensors:
    """Return what `observe` gives, by default for rows 0..B-1 at the first step. Moves the method's state."""
    ids = torch.arange(len(z["image"])) if ids is None else ids
    with torch.no_grad():
        constants: Tensors = method.observe(z, batch or Batch(ids, when or a_clock()))
    return constants


def step_loss(
    method: Any, z: Tensors, ids: Tensor | None = None, when: Clock | None = None, cuts: tuple[int, ...] = ()
) -> Tensor:
    """Loss of one step as the runner evaluates it: observe once, then draw and loss on every tile."""
    return sum_of_tiles(method, z, observe(method, z, ids=ids, when=when), cuts)


def sum_of_tiles(method: Any, z: Tensors, observed: Tensors, cuts: tuple[int, ...] = ()) -> Tensor:
    parts = []
    for tile in tiles_of(z["image"].shape[0], cuts):
        with torch.no_grad():
            constants = method.draw(z, observed, tile)
        parts += list(method.loss(z, constants, tile).values())
    return torch.stack(parts).sum()


def compare_step(
    method: Any,
    z: Tensors,
    expected: Mapping[str, Any] | float,
    given: Tensors | None = None,
    batch: Batch | None = None,
    rtol: float = 1e-9,
) -> Iterator[KnownValue]:
    """Compare a step as the runner evaluates it, as `compare_loss` does; `given` in place of what `observe` returns."""
    constants = observe(method, z, batch) if given is None else given
    yield from compare_loss(method, sum_of_tiles(method, z, constants), z, expected, rtol)


def compare_loss(
    method: Any, loss: Tensor, z: Tensors, expected: Mapping[str, Any] | float, rtol: float = 1e-9
) -> Iterator[KnownValue]:
    """Compare the loss and, if expected, its gradients in the leaves, their norms, its slope in the log scale."""
    expected = {"loss": expected} if isinstance(expected, float) else expected
    yield KnownValue("loss", loss, expected["loss"])
    yield from gradients(loss, z, expected, rtol)
    norms = {name: expected[f"grad_{name}_norm"] for name in z if f"grad_{name}_norm" in expected}
    yield from gradient_norms(loss, z, norms | dict(expected.get("grad_norms", {})))
    if "grad_log_scale" in expected:
        yield from gradients(loss, {"log_scale": method.scale.rho}, expected)


def gradients(loss: Tensor, z: Tensors, expected: Mapping[str, Any], rtol: float = 1e-9) -> Iterator[KnownValue]:
    """Compare gradients in every leaf whose "grad_<name>" is expected; 0 if the loss does not depend on a leaf."""
    for name, leaf in z.items():
        if f"grad_{name}" in expected:
            yield KnownValue(f"gradient of {name}", _gradient(loss, leaf), expected[f"grad_{name}"], rtol)


def gradient_norms(loss: Tensor, z: Tensors, expected: Mapping[str, float]) -> Iterator[KnownValue]:
    """Compare Frobenius norms of the loss's gradients in the named leaves; 0 if the loss does not depend on a leaf."""
    for name, norm in expected.items():
        yield KnownValue(f"norm of the gradient of {name}", _gradient(loss, z[name]).norm(), norm)


def _gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(loss, [leaf], retain_graph=True, materialize_grads=True)
    return gradient


def assert_close(actual: Any, expected: Any, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    actual = torch.as_tensor(actual)
    torch.testing.assert_close(
        actual.detach(), torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol, check_device=False
    )


class TinyTowers(OpenClipTowers):
    """Real open_clip towers, small enough for a test, and a tokenizer of whole words.

    `text` holds further options of open_clip's text_cfg, "pool_type" for instance.
    """

    image_shape: tuple[int, ...] = (3, 32, 32)

    def __init__(
        self,
        visual: str = "vit",
        causal: bool = True,
        patch: int = 8,
        context: int = 16,
        text: Mapping[str, Any] | None = None,
    ) -> None:
        import open_clip

        vision = {
            "vit": {"layers": 2, "width": 32, "head_width": 16, "patch_size": patch, "image_size": 32},
            "resnet": {"layers": (1, 1, 1, 1), "width": 8, "head_width": 16, "image_size": 32},
            "timm": {"timm_model_name": "test_resnet", "timm_pool": "avg", "timm_proj": "linear", "image_size": 32},
        }[visual]
        tower = {"context_length": context, "vocab_size": 64, "width": 32, "heads": 2, "layers": 3, **(text or {})}
        with torch.random.fork_rng():
            torch.manual_seed(0)
            clip = open_clip.model.CustomTextCLIP(16, vision, {**tower, "no_causal_mask": not causal})
        super().__init__(clip.visual, clip.text, partial(whole_words, context=context), 16)
        group_batchnorm(self.visual, 8)


def whole_words(captions: list[str], context: int) -> Tensor:
    """b strings -> [b, context] int64: one of 57 ids a word between a start and an end token, then zeros."""
    words = [[3 + sum(word.encode()) % 57 for word in caption.split()][: context - 2] for caption in captions]
    return torch.tensor([[60, *row, 63] + [0] * (context - 2 - len(row)) for row in words])


def some_rows(towers: Any, total: int, part: slice | None = None, when: Clock | None = None, views: int = 0) -> Rows:
    """Rows `part` of a batch of `total` fixed random images, each with `views` more, and captions."""
    part = part or slice(0, total)
    draws = torch.Generator().manual_seed(5)
    images, *more = (torch.randn(total, *towers.image_shape, generator=draws)[part] for _ in range(1 + views))
    captions = [TEXTS[i % len(TEXTS)] for i in range(total)][part]
    ids = torch.arange(total)[part]
    tokens = towers.tokenize(captions)
    return Rows(images, tokens, captions, ids, range(total)[part], when or a_clock(), tuple(more))


def trace_steps(name: str, source: str = "noisy_correspondence") -> Iterator[tuple[Tensors, Batch, bool]]:
    """Yield leaves and batch of each step of a trace of `correspondence`, and whether the step ends a pass.

    Step k of n has progress k/n.
    """
    steps = correspondence(name, source)["steps"]
    for number, step in enumerate(steps):
        when = Clock(step=number, phase="train", progress=number / len(steps), epoch=step["epoch"])
        ends = number + 1 == len(steps) or steps[number + 1]["epoch"] > step["epoch"]
        yield pair(step), Batch(torch.tensor(step["ids"]), when), ends
