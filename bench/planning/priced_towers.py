"""Towers on meta tensors whose passes are counted once: the same pass again only adds its FLOPs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bench.towers.build import OpenClipTowers


@dataclass(frozen=True)
class Pass:
    """What encoding one batch gives and costs."""

    out: Tensor  #: on meta, without gradient
    forward: int  #: FLOPs
    backward: int
    differentiable: bool


Passes = dict[tuple[Any, ...], Pass]  #: of towers with the same settings, by what else a pass depends on


class PricedTowers:
    """The protocol `Towers` of a method's `encode`, on meta tensors.

    A counter of FLOPs must be active around `encode` and the backward pass: it counts whatever a method does itself.
    The passes of `encode_image` and `encode_text` are in `flops`.
    """

    def __init__(self, towers: OpenClipTowers, passes: Passes) -> None:
        self._towers, self._passes = towers, passes
        self.flops = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._towers, name)

    def __copy__(self) -> OpenClipTowers:
        """Copy the towers themselves; the counter sees their passes."""
        return copy.copy(self._towers)

    def __deepcopy__(self, memo: dict[int, Any]) -> OpenClipTowers:
        return copy.deepcopy(self._towers, memo)

    def encode_image(self, images: Tensor) -> Tensor:
        """As the towers' own, and counted."""
        return self._encode(self._towers.encode_image, self._towers.visual, images)

    def encode_text(self, tokens: Tensor) -> Tensor:
        """As the towers' own, and counted."""
        return self._encode(self._towers.encode_text, self._towers.text, tokens)

    def _encode(self, encode: Callable[[Tensor], Tensor], tower: nn.Module, rows: Tensor) -> Tensor:
        if rows.requires_grad:
            return encode(rows)
        key = (tower is self._towers.visual, tuple(rows.shape), rows.dtype, torch.is_grad_enabled(), *_structure(tower))
        if key not in self._passes:
            self._passes[key] = known = _measured(encode, tower, rows)
            self.flops -= known.forward + known.backward  # the counter around this has seen the measurement
        known = self._passes[key]
        self.flops += known.forward
        if not known.differentiable:
            return torch.empty_like(known.out)
        out: Tensor = _Counted.apply(torch.empty(0, device="meta", requires_grad=True), self, known)  # type: ignore[no-untyped-call]
        return out


class _Counted(torch.autograd.Function):
    """A pass that only adds its FLOPs."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, towers: PricedTowers, known: Pass) -> Tensor:
        ctx.towers, ctx.known = towers, known
        return torch.empty_like(known.out)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[None, None, None]:
        ctx.towers.flops += ctx.known.backward
        return None, None, None


def _structure(tower: nn.Module) -> tuple[Any, ...]:
    """Return what the cost of a pass depends on beside the towers' settings: methods may change and freeze parts."""
    parameters = tuple((name, tuple(x.shape), x.requires_grad) for name, x in tower.named_parameters())
    return parameters, tuple((name, type(module), module.training) for name, module in tower.named_modules())


def _measured(encode: Callable[[Tensor], Tensor], tower: nn.Module, rows: Tensor) -> Pass:
    with FlopCounterMode(display=False) as counter:
        out = encode(rows)
        forward = counter.get_total_flops()
        if out.requires_grad:
            trained = [parameter for parameter in tower.parameters() if parameter.requires_grad]
            torch.autograd.grad(out, trained, torch.empty_like(out), allow_unused=True)
    return Pass(out.detach(), forward, counter.get_total_flops() - forward, out.requires_grad)
