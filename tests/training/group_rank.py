"""One rank of a group that calls every collective of `bench.training.distributed`; a process of its own.

Usage: group_rank.py RANK WORLD FOLDER. Writes rankN.pt with what it got.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import FileStore

from bench.towers.batchnorm import GroupedBatchNorm2d
from bench.training.distributed import Group, current, join, leave
from bench.training.step import buckets
from bench.training.step.buckets import GradientSums

BATCH, GROUP = 12, 2  #: rows over all ranks, rows that share statistics


def rows() -> torch.Tensor:
    """[BATCH, 3, 2, 2], the same on every rank."""
    return torch.randn(BATCH, 3, 2, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def parameters() -> list[nn.Parameter]:
    """Of two dtypes; the last one gets no gradient anywhere."""
    shapes = ((2, 3), (4,), (2, 2))
    kinds = (torch.float64, torch.float32, torch.float64)
    return [nn.Parameter(torch.zeros(shape, dtype=kind)) for shape, kind in zip(shapes, kinds, strict=True)]


class Told(Group):
    """A group that notes what is sent."""

    def sum_later_(self, x: Tensor) -> dist.Work:
        EVENTS.append(x.numel())
        return super().sum_later_(x)


EVENTS: list[object] = []  #: numbers of elements sent, and "almost": one product is still to go back


def gradients_of(rank: int, group: Group | None) -> dict[str, Tensor | None]:
    """Gradients of a product that each rank multiplies in an order of its own, after two backward passes.

    group: over which they are summed; None: of this rank alone. The first rank begins with the first factor; on the
    second one, which begins with the last, a factor is not used. Method parameters have gradients from before.
    """
    sizes = {"first": 1, "shared": 2, "lost": 3, "last": 4, "method.head": 5, "method.scale": 6}
    factors = {name: nn.Parameter(torch.linspace(0.5, 1.5, size).double()) for name, size in sizes.items()}
    (factors["method.scale"].sum() * (rank + 2) + factors["method.head"].square().sum()).backward()
    used = [name for name in (*sizes, "shared") if name != "method.scale" and not (name == "lost" and rank == 1)]
    sums = None if group is None else GradientSums(factors, group)
    for micro_batch in range(2):
        value = out = torch.tensor(1.0 + rank + 10 * micro_batch, dtype=torch.float64, requires_grad=True)
        for number, name in enumerate(used if rank != 1 else used[::-1]):
            out = out * factors[name].sum()
            if number == 0 and micro_batch == 1:
                out.register_hook(lambda _: EVENTS.append("almost"))
        if sums is None or micro_batch == 0:
            out.backward()
        else:
            with sums.during_backward():
                out.backward()
        assert value.grad is not None
    return {name: factor.grad for name, factor in factors.items()}


def results(group: Group) -> dict[str, object]:
    """What this rank gets of every collective."""
    share = group.share(BATCH)
    own = parameters()
    for number, parameter in enumerate(own[:2], start=1):
        if number == 1 or group.rank == 0:  # the second one has a gradient on the first rank alone
            parameter.grad = torch.full_like(parameter, number * (group.rank + 1))
    with GradientSums({str(number): parameter for number, parameter in enumerate(own)}, group).during_backward():
        pass
    norm = GroupedBatchNorm2d(nn.BatchNorm2d(3, momentum=0.25, dtype=torch.float64), GROUP)
    silent = GroupedBatchNorm2d(nn.BatchNorm2d(3, dtype=torch.float64), GROUP)
    norm(rows()[share])
    group.commit_batchnorm([norm, silent])
    return {
        "share": (share.start, share.stop),
        "gathered": group.gather(rows()[share].transpose(1, 2)),
        "ids": group.gather(torch.arange(BATCH)[share]),
        "sum": group.sum_(torch.tensor([1.0, float(group.rank)])),
        "rows": group.rows(float(group.rank), 0.1 + group.rank),
        "gradients": [parameter.grad for parameter in own],
        "running": (norm.running_mean, norm.running_var),
        "silent": (silent.running_mean, silent.running_var),
        "left": len(norm.seen),
        "product": gradients_of(group.rank, Told(group.rank, group.world)),
        "events": [*EVENTS],
        "alone": gradients_of(group.rank, None),
        "current": (current().rank, current().world),
    }


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    buckets.BUCKET = 1  # each parameter has its own
    if world > 1:
        join(rank, world, FileStore(str(folder / "meeting"), world), near=True)
    torch.save(results(current()), folder / f"rank{rank}.pt")
    leave()
    assert current() == Group(), "after it left, a process is a group of one"
    leave()


if __name__ == "__main__":
    main()
