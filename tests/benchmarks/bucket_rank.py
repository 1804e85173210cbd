"""One of two ranks that sum the gradients of a tower of 96 MiB, in turn in three ways; a process of its own.

Usage: bucket_rank.py RANK WORLD FOLDER. Writes rankN.json: for each way and round seconds and CPU seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.distributed import FileStore

from bench.training.distributed import Group, _flat, current, join, leave
from bench.training.step.buckets import GradientSums

ROUNDS, LAYERS, WIDTH, ROWS = 5, 24, 1024, 256


def pass_back(way: str, tower: nn.Module, sums: GradientSums, group: Group, out: torch.Tensor) -> None:
    """The backward pass with sums of gradients: while it runs, after it, or after it as one flat message."""
    if way == "while":
        with sums.during_backward():
            out.sum().backward()
        return
    out.sum().backward()
    if way == "after":
        with sums.during_backward():
            pass
    else:
        _flat([x.grad for x in tower.parameters() if x.grad is not None], group.sum_)


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    join(rank, world, FileStore(str(folder / "meeting"), world), near=True)
    torch.manual_seed(0)
    group, x = current(), torch.randn(ROWS, WIDTH)
    tower = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    sums = GradientSums({f"towers.{name}": parameter for name, parameter in tower.named_parameters()}, group)
    measured: dict[str, list[tuple[float, float]]] = {"while": [], "after": [], "flat": []}
    for number in range(ROUNDS + 1):
        for way in measured:
            tower.zero_grad()
            out = tower(x)
            group.rows(0)  # both begin together
            began, used = time.perf_counter(), time.process_time()
            pass_back(way, tower, sums, group, out)
            spent = time.perf_counter() - began, time.process_time() - used
            if number:  # the first round warms up
                measured[way].append(spent)
    (folder / f"rank{rank}.json").write_text(json.dumps(measured))
    leave()


if __name__ == "__main__":
    main()
