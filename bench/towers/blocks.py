"""Reduces the memory or time of towers: recomputes activations in the backward pass, or applies torch.compile.

Both act on blocks, not on whole towers, because methods also call the towers' parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from bench.errors import UserError, one_line
from bench.towers.batchnorm import GroupedBatchNorm2d, grouped_norms
from bench.towers.build import OpenClipTowers


def blocks(tower: nn.Module) -> list[nn.Module]:
    """Return the repeated parts of a tower, with nearly all of its activations: a ResNet's or a transformer's blocks.

    Raises UserError for a tower without such parts.
    """
    lists = (part for part in tower.modules() if isinstance(part, nn.ModuleList | nn.Sequential))
    candidates = [one for part in lists if len({type(one) for one in part}) == 1 for one in part if _is_block(one)]
    inner = [one for one in candidates if not any(other is not one and other in one.modules() for other in candidates)]
    if not inner:
        raise UserError(f"train: {type(tower).__name__} has no blocks; omit recompute, compile and layer_decay")
    return inner


def _is_block(module: nn.Module) -> bool:
    return sum(isinstance(part, nn.Conv2d | nn.Linear) for part in module.modules()) > 1


def recompute_blocks(towers: OpenClipTowers) -> None:
    """Keep of every block only its input for the backward pass; gradients are the same, draws of dropout too."""
    for tower in (towers.visual, towers.text):
        for block in blocks(tower):
            block.forward = partial(_checkpointed, block.forward, grouped_norms(block))


def _checkpointed(forward: Callable[..., Any], norms: Sequence[GroupedBatchNorm2d], *args: Any, **named: Any) -> Any:
    # A method may have batch norms use their running statistics for one forward pass; the backward pass comes later.
    modes = [norm.training for norm in norms]
    return checkpoint(partial(_in_modes, forward, norms, modes), *args, use_reentrant=False, **named)


def _in_modes(
    forward: Callable[..., Any], norms: Sequence[GroupedBatchNorm2d], modes: Sequence[bool], *args: Any, **named: Any
) -> Any:
    changed = [norm for norm, mode in zip(norms, modes, strict=True) if norm.training != mode]
    for norm in changed:
        norm.training = not norm.training
    try:
        return forward(*args, **named)
    finally:
        for norm in changed:
            norm.training = not norm.training


def compile_blocks(towers: OpenClipTowers, device: torch.device) -> None:
    """Compile every block when it is first called; blocks of one shape share the code.

    Dropout draws as it does uncompiled, so that a micro-batch encoded again gets the same. Raises UserError if this
    machine cannot compile.
    """
    import torch._dynamo

    try:
        torch.compile(torch.sin)(torch.zeros(8, device=device))
    except Exception as error:  # raised by the compiler, its cache or triton
        fault = f"this machine cannot compile ({one_line(error, 200)})"
        fix = "it needs a C++ compiler on the CPU, triton on a GPU; or omit it"
        raise UserError(f"train.compile: {fault}; {fix}") from error
    # Each block is compiled once with and once without gradient, for every size of batch, and per tower. Only versions
    # of torch that are newer than the oldest here give the limit a public name, torch.compiler.config.recompile_limit.
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    for tower in (towers.visual, towers.text):
        for block in blocks(tower):
            block.compile(options={"fallback_random": True})
