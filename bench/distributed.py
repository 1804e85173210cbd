"""The process group: shares of rows, gathers, reductions. One process is a group of one, on the same code path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import Store

from bench.towers.batchnorm import GroupedBatchNorm2d
from methods.protocol import Tensors

#: how long a rank waits for the others in one message: for a checkpoint on a slow disk, or code being compiled
GROUP_TIMEOUT = timedelta(minutes=30)

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """This process's place among the ranks that share a global batch."""

    rank: int = 0
    world: int = 1
    members: dist.ProcessGroup | None = None  #: these ranks; None: all that torch.distributed was initialised with

    def share(self, batch: int) -> slice:
        """The consecutive global rows this rank encodes. Raises ValueError if the ranks' shares are not equal."""
        if batch % self.world:
            raise ValueError(f"batch {batch} is not a multiple of the number of ranks {self.world}")
        size = batch // self.world
        return slice(self.rank * size, (self.rank + 1) * size)

    def gather(self, x: Tensor) -> Tensor:
        """[b, ...] of every rank -> [B, ...] in rank order. No gradient: the runner carries it by hand."""
        if self.world == 1:
            return x
        parts = [torch.empty_like(x) for _ in range(self.world)]
        dist.all_gather(parts, x.contiguous(), group=self.members)
        return torch.cat(parts)

    def sum_(self, x: Tensor) -> Tensor:
        """Sum over ranks, in place; the same bits on every rank."""
        if self.world > 1:
            dist.all_reduce(x, group=self.members)
        return x

    @torch.no_grad()
    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum gradients over ranks, one flat message per dtype. A parameter without one gets zeros, in any world."""
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            by_dtype.setdefault(parameter.dtype, []).append(parameter.grad)
        for own in by_dtype.values() if self.world > 1 else ():
            flat = self.sum_(torch.cat([x.flatten() for x in own]))
            for x, part in zip(own, flat.split([x.numel() for x in own]), strict=True):
                x.copy_(part.view_as(x))

    def rows(self, *values: float) -> list[list[float]]:
        """A few numbers of every rank, on every rank, in rank order: [world][len(values)]. Leaves a GPU alone."""
        if self.world == 1:
            return [list(values)]
        found: list[list[float]] = self.gather(torch.tensor([values], dtype=torch.float64)).tolist()
        return found

    def agree(self, value: T) -> T:
        """Return the first rank's value, on every rank. The network between them is trusted."""
        told = [value]
        if self.world > 1:
            dist.broadcast_object_list(told, group_src=0, group=self.members)
        return told[0]

    def collect(self, tensors: Tensors) -> list[Tensors]:
        """Return every rank's tensors, in rank order and in host memory, on the first rank; on the others []."""
        if self.world == 1:
            return [tensors]
        told: list[Any] | None = None if self.rank else [None] * self.world
        dist.gather_object({name: x.cpu() for name, x in tensors.items()}, told, group_dst=0, group=self.members)
        return told or []

    def commit_batchnorm(self, norms: Sequence[GroupedBatchNorm2d]) -> None:
        """Move running statistics once, by the mean over the groups that all ranks saw in this step."""
        for norm in norms:
            if not norm.seen:
                continue
            if len(norm.seen) * self.world == 1:
                mean, var = norm.seen[0]
            else:
                total = torch.stack([torch.stack(pair) for pair in norm.seen]).sum(0)
                mean, var = self.sum_(total) / (len(norm.seen) * self.world)
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(var, norm.momentum)
            norm.seen.clear()


ALONE = Group()  #: a process without others


def join_group(rank: int, world: int, meeting: Store, near: bool) -> None:
    """Make this process one of `world`, which find each other through `meeting`; `current_group()` then returns it.

    near: all are on this machine. Tensors on GPUs travel by NCCL, the others by gloo.
    """
    if near and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a host's own name may lead nowhere
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=meeting, rank=rank, world_size=world, timeout=GROUP_TIMEOUT)


def leave_group() -> None:
    """Undo `join_group`."""
    if dist.is_initialized():
        dist.destroy_process_group()


def current_group() -> Group:
    """The group torch.distributed was initialised with, or a group of one."""
    if dist.is_initialized():
        return Group(dist.get_rank(), dist.get_world_size())
    return ALONE
