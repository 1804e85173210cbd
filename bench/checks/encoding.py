"""Checks of `encode`: row-local, in mixed precision, at the declared cost; and of randomness everywhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.checks import lab
from bench.checks.subject import WHOLE, Failed, Subject, Variant, constants, moment_name, moments, same, total_of
from bench.towers.build import OpenClipTowers
from methods.protocol import Tensors

SMALL = 16  #: rows of a batch that is only encoded
LENGTH_ATOL = 1e-6  #: largest deviation of a unit row's length from 1 in fp32; in bf16 it is 1e-3
COST_RTOL = 0.02  #: allows a few more tokens in a sequence of 257, but no further forward of any row


def micro_batches(subject: Subject) -> None:
    """Micro-batches encode as the whole batch, on both kinds of image towers, in fp64: `encode` is row-local."""
    for variant, towers in _on_towers(subject):
        instance = subject.instance(variant.config, towers, batch=SMALL)
        instance.method.double(), instance.towers.double()
        for when in moments(instance.method):
            rows = instance.rows(when=when, total=SMALL)
            parts = [instance.rows(slice(at, at + 8), when, SMALL) for at in range(0, SMALL, 8)]
            with torch.no_grad():
                whole = instance.method.encode(instance.towers, _double(rows))
                pieces = [instance.method.encode(instance.towers, _double(part)) for part in parts]
            for name, x in whole.items():
                where = f"{variant.label}, {towers} towers, {moment_name(when)}: {name}"
                if x.shape[0] != SMALL:
                    raise Failed(f"{where} has {x.shape[0]} rows for {SMALL} pairs")
                same(f"{where} in two micro-batches", torch.cat([piece[name] for piece in pieces]), x, 1e-9)


def _on_towers(subject: Subject) -> Iterator[tuple[Variant, str]]:
    for variant in subject.variants:
        for towers in ("vit", "resnet") if variant.label == "default" else ("vit",):
            yield variant, towers


def _double(rows: Any) -> Any:
    return replace(rows, images=rows.images.double(), views=tuple(view.double() for view in rows.views))


def mixed_precision(subject: Subject) -> None:
    """Under bf16 autocast, embeddings are near those in fp32; log-variances and unit rows are in fp32."""
    for variant, towers in _on_towers(subject):
        instance = subject.instance(variant.config, towers, batch=SMALL)
        rows = instance.rows(total=SMALL)
        with torch.no_grad():
            plain = instance.method.encode(instance.towers, rows)
            with torch.autocast("cpu", torch.bfloat16):
                mixed = instance.method.encode(instance.towers, rows)
        for name, x in mixed.items():
            where = f"{variant.label}, {towers} towers: {name}"
            if "logvar" in name and x.dtype != torch.float32:
                raise Failed(f"{where} is {str(x.dtype)[6:]}; around -10, bfloat16 has steps of 1/16")
            if x.is_floating_point():
                same(f"{where} under bf16 autocast", x.float(), plain[name], 0.05, floor=1.0)
            lengths = plain[name].double().flatten(1).norm(dim=1)
            if bool(((lengths - 1).abs() > LENGTH_ATOL).logical_and(lengths != 0).any()):
                continue  # no unit rows
            if x.dtype != torch.float32:
                raise Failed(f"{where} is {str(x.dtype)[6:]} under bf16 autocast; normalise by methods.base.unit")
            lengths = x.double().flatten(1).norm(dim=1)
            gap = float(((lengths - 1).abs() * (lengths != 0)).max())
            if gap > LENGTH_ATOL:
                raise Failed(
                    f"{where} under bf16 autocast: lengths of rows are off 1 by {gap:.1e}; see methods.base.unit"
                )


def randomness(subject: Subject) -> None:
    """No part of a step uses or moves the global generators of torch, NumPy or Python."""
    for variant in subject.variants:
        for what, act in _acts(subject, variant):
            results = []
            for poison in (3, 4):
                with _poisoned(poison, f"{variant.label}: {what}"):
                    results.append(act())
            for name, x in results[0].items():
                same(f"{variant.label}: {what} under another global seed: {name}", results[1][name], x, 0)


def _acts(subject: Subject, variant: Variant) -> Iterator[tuple[str, Callable[[], Tensors]]]:
    instance = subject.instance(variant.config, batch=SMALL)

    def encode() -> Tensors:
        with torch.no_grad():
            return {
                f"{name}, {moment_name(when)}": x
                for when in moments(instance.method)
                for name, x in instance.method.encode(instance.towers, instance.rows(when=when, total=SMALL)).items()
            }

    def step() -> Tensors:
        method, z = subject.embedded(variant)
        losses = {}
        for when in moments(method):
            _, drawn = constants(method, z, when)
            losses[f"loss, phase {when.phase}, step {when.step}"] = total_of(method.loss(z, drawn, WHOLE)).detach()
            method.after_step(when)
        method.end_epoch(0)
        return losses | dict(method.state_dict())

    yield "encode", encode
    yield "observe, draw, loss, after_step", step


@contextmanager
def _poisoned(seed: int, what: str) -> Iterator[None]:
    """Set the global generators to `seed` and put them back afterwards; Failed if something moved them in between."""
    saved = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)  # noqa: NPY002
        before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index] # noqa: NPY002
        yield
        after = torch.get_rng_state(), np.random.get_state()[1], random.getstate()  # type: ignore[index] # noqa: NPY002
        moved = {
            "torch's": not torch.equal(after[0], before[0]),
            "NumPy's": bool((after[1] != before[1]).any()),
            "Python's": after[2] != before[2],
        }
        if any(moved.values()):
            whose = " and ".join(name for name, is_moved in moved.items() if is_moved)
            raise Failed(f"{what} draws from {whose} global generator; use methods.base.stream")
    finally:
        torch.set_rng_state(saved[0])
        np.random.set_state(saved[1])  # noqa: NPY002
        random.setstate(saved[2])


def cost(subject: Subject) -> None:
    """Declared tower forwards per pair are those that `encode` makes, in every phase, on both kinds of image towers.

    The check counts the numbers that go through each linear, convolution and attention layer, weighted by its
    parameters, relative to one plain forward of every row. So it also measures methods that call parts of a tower or
    drop patches.
    """
    for variant, towers in _on_towers(subject):
        instance = subject.instance(variant.config, towers, batch=SMALL, patch=2, context=77)
        method = instance.method
        rows = instance.rows(total=SMALL)
        with _counted(instance.towers) as plain, torch.no_grad():
            instance.towers.encode_image(rows.images), instance.towers.encode_text(rows.tokens)
        for phase in method.phases():
            with _counted(instance.towers, method.side != "none") as work, torch.no_grad():
                method.encode(instance.towers, instance.rows(when=lab.a_clock(3, phase.name), total=SMALL))
            declared = method.cost(phase.name)
            forwards = {"visual": declared.image, "text": declared.text}
            if method.side != "none":
                forwards |= {"side.visual": declared.side_image, "side.text": declared.side_text}
            for part, expected in forwards.items():
                made = work[part] / plain[part.removeprefix("side.")]
                if abs(made - expected) > COST_RTOL * max(expected, 1.0):
                    raise Failed(
                        f"{variant.label}, {towers} towers, phase {phase.name}: cost() declares {expected:.3f} "
                        f"forwards of the {_TOWERS[part]} tower a pair, encode makes {made:.3f}"
                    )


_TOWERS = {"visual": "image", "text": "text", "side.visual": "side image", "side.text": "side text"}


@contextmanager
def _counted(towers: OpenClipTowers, beside: bool = False) -> Iterator[dict[str, float]]:
    """Count the work of each tower while the context is open; with `beside` also that of the side towers."""
    parts: dict[str, nn.Module] = {"visual": towers.visual, "text": towers.text}
    if beside:
        parts |= {"side.visual": towers.side.visual, "side.text": towers.side.text}
    work, hooks = dict.fromkeys(parts, 0.0), []
    for side, tower in parts.items():
        for module in tower.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | nn.MultiheadAttention):
                weight = sum(parameter.numel() for parameter in module.parameters(recurse=False))

                def count(_: nn.Module, given: tuple[Tensor, ...], side: str = side, weight: int = weight) -> None:
                    work[side] += weight * given[0].numel()

                hooks.append(module.register_forward_pre_hook(count))
    try:
        yield work
    finally:
        for hook in hooks:
            hook.remove()
