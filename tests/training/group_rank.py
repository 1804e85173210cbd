"""One rank of a group that calls every collective of `bench.distributed`; a process of its own.

Usage: group_rank.py RANK WORLD FOLDER. Writes rankN.pt with what it got.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed import FileStore

from bench.distributed import Group, current_group, join_group, leave_group
from bench.towers.batchnorm import GroupedBatchNorm2d

BATCH, GROUP = 12, 2  #: rows over all ranks, rows that share statistics


def rows() -> torch.Tensor:
    """[BATCH, 3, 2, 2], the same on every rank."""
    return torch.randn(BATCH, 3, 2, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def parameters() -> list[nn.Parameter]:
    """Of two dtypes; the last one gets no gradient anywhere."""
    shapes = ((2, 3), (4,), (2, 2))
    kinds = (torch.float64, torch.float32, torch.float64)
    return [nn.Parameter(torch.zeros(shape, dtype=kind)) for shape, kind in zip(shapes, kinds, strict=True)]


def results(group: Group) -> dict[str, object]:
    """What this rank gets of every collective."""
    share = group.share(BATCH)
    own = parameters()
    for number, parameter in enumerate(own[:2], start=1):
        if number == 1 or group.rank == 0:  # the second one has a gradient on the first rank alone
            parameter.grad = torch.full_like(parameter, number * (group.rank + 1))
    group.sum_gradients(own)
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
        "current": (current_group().rank, current_group().world),
    }


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    if world > 1:
        join_group(rank, world, FileStore(str(folder / "meeting"), world), near=True)
    torch.save(results(current_group()), folder / f"rank{rank}.pt")
    leave_group()
    assert current_group() == Group(), "after it left, a process is a group of one"
    leave_group()


if __name__ == "__main__":
    main()
