"""One of two ranks that sum the gradients of a tower of 96 MiB, in turn in three ways; a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from ranks_in_turn import Work, in_turn
from torch import nn

from bench.training.distributed import Group, _flat
from bench.training.step.buckets import GradientSums

LAYERS, WIDTH, ROWS = 24, 1024, 256


def ways(_: int, group: Group) -> dict[str, Callable[[], Work]]:
    x = torch.randn(ROWS, WIDTH)
    tower = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    sums = GradientSums({f"towers.{name}": parameter for name, parameter in tower.named_parameters()}, group)

    def meanwhile(out: torch.Tensor) -> None:
        with sums.during_backward():
            out.sum().backward()

    def after(out: torch.Tensor) -> None:
        out.sum().backward()
        with sums.during_backward():
            pass

    def flat(out: torch.Tensor) -> None:
        out.sum().backward()
        _flat([x.grad for x in tower.parameters() if x.grad is not None], group.sum_)

    def forward(work: Callable[[torch.Tensor], None]) -> Work:
        tower.zero_grad()
        return partial(work, tower(x))

    return {name: partial(forward, work) for name, work in (("while", meanwhile), ("after", after), ("flat", flat))}


if __name__ == "__main__":
    in_turn(ways)
