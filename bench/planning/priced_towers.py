"""Towers on meta tensors whose passes are counted once: repeated passes only add their FLOPs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bench.towers.build import OpenClipTowers


@dataclass(frozen=True)
class Pass:
    """Result and cost of one pass through a part of a tower."""

    out: Tensor  #: on meta, without gradient
    forward: int  #: FLOPs
    backward: int
    differentiable: bool


Passes = dict[tuple[Any, ...], Pass | None]
"""Passes of towers with the same settings, by what else a pass depends on; None if a part returns no single tensor."""


class FlopCount:
    """FLOPs of all that runs while it counts. Passes that are already known add theirs without running again."""

    def __init__(self, counter: FlopCounterMode, passes: Passes) -> None:
        self._counter, self.passes = counter, passes
        self.added = 0  #: FLOPs of passes that did not run, less those that ran to be measured

    @property
    def total(self) -> int:
        return int(self._counter.get_total_flops()) + self.added


@contextmanager
def count_flops(towers: OpenClipTowers, passes: Passes) -> Iterator[FlopCount]:
    """Count the FLOPs of what is done with `towers`, which are on meta, and of what else runs meanwhile.

    passes: those of towers with the same settings that were counted before; new ones are added. Meanwhile the towers,
    their children and the blocks inside, and those of a second pair, run only if `passes` lacks the pass. Parts that a
    method has given a hook or another `forward` always run.
    """
    parts = {name: part for name, part in _parts(towers) if not any("forward" in vars(one) for one in part.modules())}
    with FlopCounterMode(display=False) as counter:
        count = FlopCount(counter, passes)
        try:
            for part, name in {part: name for name, part in parts.items()}.items():
                vars(part)["forward"] = _PricedForward(part, name.rstrip("0123456789"), count)
            yield count
        finally:
            for part in parts.values():
                vars(part).pop("forward", None)


def _parts(towers: OpenClipTowers) -> Iterator[tuple[str, nn.Module]]:
    for side in ("visual", "text"):
        tower: Any = getattr(towers, side)
        yield side, tower
        yield from ((f"{side}.{name}", child) for name, child in tower.named_children() if any(child.children()))
        for name, several in tower.named_modules():
            if isinstance(several, nn.Sequential | nn.ModuleList):
                blocks = ((number, block) for number, block in enumerate(several) if any(block.children()))
                yield from ((f"{side}.{name} {number}", block) for number, block in blocks)
    if towers.held_side is not None:
        yield from ((f"side {name}", part) for name, part in _parts(towers.side))


class _PricedForward:
    """Stands for the `forward` of a part."""

    def __init__(self, part: nn.Module, name: str, count: FlopCount) -> None:
        self._part, self._name, self._count = part, name, count

    def __deepcopy__(self, memo: dict[int, Any]) -> _PricedForward:
        return _PricedForward(copy.deepcopy(self._part, memo), self._name, self._count)

    def __call__(self, *given: Any, **named: Any) -> Any:
        part, count = self._part, self._count
        values = (*given, *named.values())
        run = type(part).forward
        if any(one._forward_hooks or one._forward_pre_hooks for one in part.modules() if one is not part):
            return run(part, *given, **named)
        described = [_described(value) for value in values]
        if None in described:
            return run(part, *given, **named)
        # next to the towers' settings, as methods may change and freeze parts
        parameters = tuple((name, tuple(x.shape), x.requires_grad) for name, x in part.named_parameters())
        modules = tuple((name, type(module), module.training) for name, module in part.named_modules())
        key = (self._name, torch.is_grad_enabled(), len(given), *named, *described, parameters, modules)
        if key not in count.passes:
            count.passes[key] = self._measured(given, named)
        known = count.passes[key]
        if known is None:
            return run(part, *given, **named)
        count.added += known.forward
        if not known.differentiable:
            return torch.empty_like(known.out)
        tensors = [value for value in values if isinstance(value, Tensor)]
        own = torch.empty(0, device="meta", requires_grad=True)  # stands for the parameters
        return _Counted.apply(count, known, own, *tensors)  # type: ignore[no-untyped-call]

    def _measured(self, given: tuple[Any, ...], named: dict[str, Any]) -> Pass | None:
        part, count = self._part, self._count
        given, named = tuple(map(_leaf, given)), {name: _leaf(value) for name, value in named.items()}
        before = count.added
        with FlopCounterMode(display=False) as counter:
            out = type(part).forward(part, *given, **named)
            forward = counter.get_total_flops() + count.added - before
            if isinstance(out, Tensor) and out.requires_grad:
                out.backward(torch.empty_like(out))
        total = counter.get_total_flops() + count.added - before
        count.added = before - counter.get_total_flops()  # counters around this one have seen the measurement
        return Pass(out.detach(), forward, total - forward, out.requires_grad) if isinstance(out, Tensor) else None


class _Counted(torch.autograd.Function):
    """A pass that only adds its FLOPs."""

    @staticmethod
    def forward(ctx: Any, count: FlopCount, known: Pass, _: Tensor, *tensors: Tensor) -> Tensor:
        ctx.count, ctx.known = count, known
        ctx.save_for_backward(*tensors)
        return torch.empty_like(known.out)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        ctx.count.added += ctx.known.backward
        needed = zip(ctx.needs_input_grad[3:], ctx.saved_tensors, strict=True)
        return (None, None, None, *(torch.empty_like(one) if needs else None for needs, one in needed))


def _described(value: object) -> tuple[Any, ...] | None:
    """Return what the cost of a pass depends on of a given value; None for a value that may be anything."""
    if isinstance(value, Tensor):
        return "tensor", tuple(value.shape), value.stride(), value.dtype, value.device.type, value.requires_grad
    return ("value", value) if value is None or isinstance(value, bool | int | float | str) else None


def _leaf(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value
