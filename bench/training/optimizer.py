"""AdamW and its schedule: the suite's recipe, with a method's own options for the parameters it added."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import nn

from bench.errors import UserError
from bench.suite.settings import TrainSettings
from bench.towers.batchnorm import grouped_norms
from bench.towers.blocks import blocks
from bench.towers.build import OpenClipTowers
from methods.protocol import Method, Phase


def named_parameters(method: Method, towers: OpenClipTowers) -> Iterator[tuple[str, nn.Parameter]]:
    """All parameters as `Phase.trainable` names them: "towers.visual...", "method.scale.rho"."""
    assert isinstance(method, nn.Module)
    for prefix, module in (("towers", towers), ("method", method)):
        for name, parameter in module.named_parameters():
            yield f"{prefix}.{name}", parameter


def set_trainable(method: Method, towers: OpenClipTowers, phase: Phase) -> None:
    """Freeze parameters that the phase, or the suite's `train.freeze`, does not train. Such a tower goes to eval mode.

    A BatchNorm whose weights are frozen keeps its running statistics and uses them, wherever it stands. Raises
    UserError if the suite's setting leaves the phase nothing to train.
    """
    assert isinstance(method, nn.Module)
    held = f"towers.{towers.frozen}." if towers.frozen else None
    for name, parameter in named_parameters(method, towers):
        parameter.requires_grad_(phase.trainable(name) and not (held and name.startswith(held)))
    if held and not any(x.requires_grad for _, x in named_parameters(method, towers)):
        raise UserError(f"train.freeze: nothing left to train in phase {phase.name!r} of {method.name}; omit the entry")
    towers.train()
    method.train()
    for tower in (towers.visual, towers.text):
        assert isinstance(tower, nn.Module)
        tower.train(any(parameter.requires_grad for parameter in tower.parameters()))
        for norm in grouped_norms(tower):
            if not norm.weight.requires_grad:
                norm.eval()


def layer_factors(towers: OpenClipTowers, decay: float) -> dict[str, float]:
    """Return decay^k for the parameters of towers, by name, that stand k layers below the top.

    Of n blocks number i, from 0, stands n - i below the top, what comes before the first one n + 1, what comes between
    two as the second of them, and what comes after the last, and the projection, 0. Raises UserError for a tower
    without blocks.
    """
    factors = {}
    for kind in ("visual", "text") if decay != 1 else ():
        tower = getattr(towers, kind)
        found = blocks(tower)
        number = {id(x): i for i, block in enumerate(found) for x in block.parameters()}
        below = 0  # number of blocks below the next parameter
        for name, parameter in tower.named_parameters():
            place = number.get(id(parameter))
            below = below if place is None else place + 1
            depth = len(found) - (below if place is None else place)
            if place is None and below == 0:
                depth = 0 if name.split(".")[0] in ("proj", "text_projection") else depth + 1
            factors[f"towers.{kind}.{name}"] = decay**depth
    return factors


def make_optimiser(method: Method, towers: OpenClipTowers, phase: Phase, train: TrainSettings) -> torch.optim.AdamW:
    """AdamW over the phase's trained parameters. Only weights with two or more dimensions decay (open_clip's rule)."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    factors = layer_factors(towers, train.layer_decay)
    for name, parameter in named_parameters(method, towers):
        if not parameter.requires_grad:
            continue
        special = method.options(name) if name.startswith("method.") else {}
        lr = special.get("lr", train.lr * phase.lr_scale * factors.get(name, 1.0))
        decay = special.get("weight_decay", train.weight_decay if parameter.ndim >= 2 else 0.0)
        groups.setdefault((lr, decay), []).append(parameter)
    params = [{"params": own, "lr": lr, "base_lr": lr, "weight_decay": wd} for (lr, wd), own in groups.items()]
    return torch.optim.AdamW(params, betas=train.betas, eps=train.eps, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, step: int, steps: int, train: TrainSettings) -> float:
    """Linear warm-up, then a cosine to `final_lr`, over the `steps` of one phase; return the share of the rate.

    The warm-up is at most a tenth of the steps. A method's own learning rate keeps its ratio to the suite's.
    """
    asked = train.warmup * steps if train.warmup_steps is None else train.warmup_steps
    warm = int(min(asked, 0.1 * steps))
    cosine = 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
    last = train.final_lr / train.lr
    factor = (step + 1) / warm if step < warm else last + (1 - last) * cosine
    for group in optimiser.param_groups:
        group["lr"] = group["base_lr"] * factor
    return factor
