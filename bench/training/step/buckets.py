"""Sums gradients over ranks while the last backward pass of a step still runs, bucket by bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench.training.distributed import Group

BUCKET = 25 * 2**20  #: bytes of gradients that travel together, as torch's DistributedDataParallel has them


def buckets(trained: dict[str, nn.Parameter]) -> list[list[nn.Parameter]]:
    """Group parameters, named as `Phase.trainable` names them, by BUCKET bytes at most (a larger one is alone).

    Towers come from their last parameter to their first, as a backward pass completes gradients. The method's own
    follow apart: those of its loss are complete before, and would keep every bucket waiting. A bucket has one dtype.
    """
    found: list[list[nn.Parameter]] = []
    common: object = None  #: to the parameters of the last bucket
    backwards = [*reversed(trained.items())]
    for name, parameter in sorted(backwards, key=lambda one: one[0].startswith("method.")):
        kind = (name.startswith("method."), parameter.dtype, parameter.device)
        if kind != common or sum(x.nbytes for x in found[-1]) + parameter.nbytes > BUCKET:
            found.append([])
            common = kind
        found[-1].append(parameter)
    return found


class GradientSums:
    """Sums gradients of some parameters over ranks. They follow each other in one order on every rank.

    A summed gradient is a view of its bucket, in the memory format of its parameter, so that nothing is held twice
    but the bucket that is being filled.
    """

    def __init__(self, trained: dict[str, nn.Parameter], group: Group) -> None:
        self._group = group
        self._buckets = buckets(trained)
        self._place = {parameter: at for at, bucket in enumerate(self._buckets) for parameter in bucket}
        self._lacking: list[set[nn.Parameter]] = []  #: of each bucket, those that the backward pass has yet to reach
        self._sent: list[dist.Work] = []  #: of the first buckets

    @contextmanager
    def during_backward(self) -> Iterator[None]:
        """Within it the last backward pass of a step runs; after it every gradient is the sum over ranks.

        A parameter without one gets zeros, in any world. In a group of one nothing else happens.
        """
        if self._group.world == 1:
            yield
            for parameter in self._place:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            return
        self._lacking, self._sent = [{*bucket} for bucket in self._buckets], []
        handles = [parameter.register_post_accumulate_grad_hook(self._complete) for parameter in self._place]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        while len(self._sent) < len(self._buckets):
            self._send()
        for work in self._sent:
            work.wait()

    def _complete(self, parameter: Tensor) -> None:
        """Note that a gradient is complete, and send the buckets whose turn has come."""
        assert isinstance(parameter, nn.Parameter)
        lacking = self._lacking[self._place[parameter]]
        if parameter not in lacking:
            raise RuntimeError(
                "a backward pass reached a parameter twice; a checkpoint in it needs use_reentrant=False"
            )
        lacking.remove(parameter)
        while len(self._sent) < len(self._buckets) and not self._lacking[len(self._sent)]:
            self._send()

    def _send(self) -> None:
        """Begin to sum the next bucket. All ranks send in one order, whatever is complete first, or none would end."""
        self._sent.append(self._group.sum_later_(_flat(self._buckets[len(self._sent)])))


@torch.no_grad()
def _flat(bucket: list[nn.Parameter]) -> Tensor:
    """Move the gradients of a bucket into one flat tensor, of which they are views from now on."""
    flat, start = torch.empty(sum(x.numel() for x in bucket), dtype=bucket[0].dtype, device=bucket[0].device), 0
    for parameter in bucket:
        view = flat.as_strided(parameter.size(), parameter.stride(), start)
        if parameter.grad is None:
            view.zero_()
        else:
            view.copy_(parameter.grad)
        parameter.grad = view
        start += parameter.numel()
    return flat
