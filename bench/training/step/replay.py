"""Keeps what a replay of CUDA graphs would overwrite, where towers are compiled with `reduce-overhead`.

A graph writes its outputs to the same memory each time, and torch frees the memory of one generation of graphs when the
next one begins. A generation is one encoding with its backward pass: without marks torch would begin one with every
block. What outlives it is copied: embeddings, statistics of batch norms, gradients of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from bench.towers.batchnorm import grouped_norms
from methods.protocol import Tensors

REPLAYED = "reduce-overhead"  #: the `train.compile` that records CUDA graphs


def encoded(encode: Callable[[], Tensors], towers: nn.Module) -> Tensors:
    """Begin a generation, encode, and return copies; gradients flow through them."""
    norms = grouped_norms(towers)
    before = [len(norm.seen) for norm in norms]
    torch.compiler.cudagraph_mark_step_begin()
    z = {key: x.clone() for key, x in encode().items()}
    for norm, start in zip(norms, before, strict=True):
        norm.seen[start:] = [(mean.clone(), var.clone()) for mean, var in norm.seen[start:]]
    return z


def own_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Give parameters without a gradient zeros to add to, or a graph's output would become their gradient."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
