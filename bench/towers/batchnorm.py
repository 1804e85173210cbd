"""BatchNorm whose statistics do not depend on ranks or micro-batches.

Statistics are taken over fixed groups of `group` consecutive rows of the global batch ("ghost" batch norm, Hoffer et
al. 2017), and running statistics move once a step by the mean over all groups of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GroupedBatchNorm2d(nn.Module):
    """Stands in for a BatchNorm2d and for timm's BatchNormAct2d (norm, dropout, activation)."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: nn.BatchNorm2d, group: int) -> None:
        super().__init__()
        if norm.running_mean is None or norm.running_var is None or norm.momentum is None:
            raise ValueError("GroupedBatchNorm2d needs a BatchNorm2d with running statistics and a momentum")
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("running_mean", norm.running_mean.clone())
        self.register_buffer("running_var", norm.running_var.clone())
        self.eps, self.momentum, self.group = norm.eps, norm.momentum, group
        self.drop: nn.Module = getattr(norm, "drop", nn.Identity())
        self.act: nn.Module = getattr(norm, "act", nn.Identity())
        self.recording = True
        self.seen: list[tuple[Tensor, Tensor]] = []  #: (mean, unbiased variance) of each group since the last commit

    def forward(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> the same; b is a multiple of `group` in training (or the whole batch, if that is smaller)."""
        if not self.training:
            mean, var = self.running_mean, self.running_var
            y = F.batch_norm(x, mean, var, self.weight, self.bias, False, 0.0, self.eps)
        elif len(x) <= self.group:  # the backward pass of a split would copy the gradient once more
            y = self._normalise(x)
        else:
            y = torch.cat([self._normalise(part) for part in x.split(self.group)])
        out: Tensor = self.act(self.drop(y))
        return out

    def _normalise(self, x: Tensor) -> Tensor:
        mean, var = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        # momentum 1 makes batch_norm hand back this group's statistics without a second pass over x
        y = F.batch_norm(x, mean, var, self.weight, self.bias, True, 1.0, self.eps)
        if self.recording:
            self.seen.append((mean, var))
        return y


def group_batchnorm(module: nn.Module, group: int) -> None:
    """Replace every BatchNorm2d below `module` by a grouped one.

    Raises ValueError for another kind of batch norm: its statistics would depend on ranks and micro-batches.
    """
    for name, child in list(module.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, GroupedBatchNorm2d(child, group))
        elif isinstance(child, nn.modules.batchnorm._BatchNorm):
            raise ValueError(f"{name} is a {type(child).__name__}; only BatchNorm2d can be grouped")
        else:
            group_batchnorm(child, group)


def grouped_norms(module: nn.Module) -> list[GroupedBatchNorm2d]:
    """All grouped norms below `module`, in a fixed order."""
    return [child for child in module.modules() if isinstance(child, GroupedBatchNorm2d)]


def record_statistics(norms: Iterable[GroupedBatchNorm2d], recording: bool) -> None:
    """Switch recording off while a micro-batch is encoded a second time for its gradient."""
    for norm in norms:
        norm.recording = recording
