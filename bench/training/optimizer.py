"""AdamW and its schedule: the suite's recipe, with a method's own options for the parameters it added."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bench.suite.settings import TrainSettings
from bench.towers.batchnorm import grouped_norms
from bench.training.distributed import Group
from methods.protocol import Method, Phase

_MOMENTS = ("exp_avg", "exp_avg_sq")  #: AdamW's names for them


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


def make_optimiser(
    method: Method, towers: nn.Module, phase: Phase, train: TrainSettings, group: Group | None = None
) -> torch.optim.AdamW:
    """AdamW over the phase's trained parameters. Only weights with two or more dimensions decay (open_clip's rule).

    group: the ranks that train, over which `train.shard_optimizer` shards it. In a group of one that does nothing.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in named_parameters(method, towers):
        if not parameter.requires_grad:
            continue
        special = method.options(name) if name.startswith("method.") else {}
        lr = special.get("lr", train.lr * phase.lr_scale)
        decay = special.get("weight_decay", train.weight_decay if parameter.ndim >= 2 else 0.0)
        groups.setdefault((lr, decay), []).append(parameter)
    params = [{"params": own, "lr": lr, "base_lr": lr, "weight_decay": wd} for (lr, wd), own in groups.items()]
    options: dict[str, Any] = {"betas": train.betas, "eps": train.eps, "fused": True}
    if train.shard_optimizer and group is not None and group.world > 1:
        return ShardedAdamW(params, group, **options)
    return torch.optim.AdamW(params, **options)


def owners(sizes: Sequence[int], world: int) -> list[int]:
    """Return the rank that owns each of several tensors: the largest first, each to the rank that has least."""
    held, found = [0] * world, [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        found[index] = held.index(min(held))
        held[found[index]] += sizes[index]
    return found


class ShardedAdamW(torch.optim.AdamW):
    """AdamW whose moments are shared out over ranks (ZeRO stage 1: https://arxiv.org/abs/1910.02054, section 5.1).

    Each rank steps the parameters that it owns, whole tensors, and sends them to the others: weights have the bits of
    AdamW. Every rank must make the same calls with the same gradients, and every parameter must have one.
    """

    def __init__(self, params: Iterable[dict[str, Any]], group: Group, **options: Any) -> None:
        """params: groups, as AdamW takes them; group: the ranks."""
        super().__init__(params, **options)
        self._group = group
        self._all = [parameter for own in self.param_groups for parameter in own["params"]]  # as indices count them
        self._owners = owners([parameter.numel() for parameter in self._all], group.world)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Step all parameters. Gradients of those that other ranks own are dropped."""
        for parameter, owner in zip(self._all, self._owners, strict=True):
            if owner != self._group.rank:
                parameter.grad = None
        super().step()
        self._group.share_(self._all, self._owners)

    def state_dict(self) -> dict[str, Any]:
        """Return AdamW's own on the first rank, with the moments of others on the CPU; on others what they send it."""
        found = super().state_dict()
        own = found["state"]
        if self._group.rank:
            for index in sorted(own):
                for moment in _MOMENTS:
                    self._group.send(own[index][moment].flatten().cpu()).wait()
            return found
        steps = next(iter(own.values()))["step"]  # those of the phase, for every parameter
        for index, owner in enumerate(self._owners):
            if owner:
                own[index] = {"step": steps.clone(), **{moment: self._received(index) for moment in _MOMENTS}}
        return {**found, "state": dict(sorted(own.items()))}

    def _received(self, index: int) -> Tensor:
        moment = torch.empty_like(self._all[index], device="cpu", requires_grad=False)
        flat = torch.empty(moment.numel(), dtype=moment.dtype)
        self._group.receive_(flat, self._owners[index])
        return moment.copy_(flat.view_as(moment))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's part of the state of an AdamW, sharded over any number of ranks or not."""
        state = state_dict["state"].items()
        own = {index: value for index, value in state if self._owners[index] == self._group.rank}
        super().load_state_dict({**state_dict, "state": own})


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
