"""AdamW and its schedule: the suite's recipe, with a method's own options for the parameters it added."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import nn

from bench.suite.settings import TrainSettings
from bench.towers.batchnorm import grouped_norms
from methods.protocol import Method, Phase


def named_parameters(method: Method, towers: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """All parameters as `Phase.trainable` names them: "towers.visual...", "method.scale.rho"."""
    assert isinstance(method, nn.Module)
    for prefix, module in (("towers", towers), ("method", method)):
        for name, parameter in module.named_parameters():
            yield f"{prefix}.{name}", parameter


def set_trainable(method: Method, towers: nn.Module, phase: Phase) -> None:
    """Freeze parameters that the phase does not train. A tower without trained parameters goes to eval mode.

    A BatchNorm whose weights are frozen keeps its running statistics and uses them, wherever it stands.
    """
    assert isinstance(method, nn.Module)
    for name, parameter in named_parameters(method, towers):
        parameter.requires_grad_(phase.trainable(name))
    towers.train()
    method.train()
    for tower in (towers.visual, towers.text):
        assert isinstance(tower, nn.Module)
        tower.train(any(parameter.requires_grad for parameter in tower.parameters()))
        for norm in grouped_norms(tower):
            if not norm.weight.requires_grad:
                norm.eval()


def make_optimiser(method: Method, towers: nn.Module, phase: Phase, train: TrainSettings) -> torch.optim.AdamW:
    """AdamW over the phase's trained parameters. Only weights with two or more dimensions decay (open_clip's rule)."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in named_parameters(method, towers):
        if not parameter.requires_grad:
            continue
        special = method.options(name) if name.startswith("method.") else {}
        lr = special.get("lr", train.lr * phase.lr_scale)
        decay = special.get("weight_decay", train.weight_decay if parameter.ndim >= 2 else 0.0)
        groups.setdefault((lr, decay), []).append(parameter)
    params = [{"params": own, "lr": lr, "base_lr": lr, "weight_decay": wd} for (lr, wd), own in groups.items()]
    return torch.optim.AdamW(params, betas=train.betas, eps=train.eps, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, step: int, steps: int, train: TrainSettings) -> None:
    """Linear warm-up, then a cosine to `final_lr`, over the `steps` of one phase.

    The warm-up is at most a tenth of the steps. A method's own learning rate keeps its ratio to the suite's.
    """
    asked = train.warmup * steps if train.warmup_steps is None else train.warmup_steps
    warm = int(min(asked, 0.1 * steps))
    cosine = 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
    last = train.final_lr / train.lr
    factor = (step + 1) / warm if step < warm else last + (1 - last) * cosine
    for group in optimiser.param_groups:
        group["lr"] = group["base_lr"] * factor
