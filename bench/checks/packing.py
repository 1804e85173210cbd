"""Tensors end to end in one vector of each dtype: thousands of small ones travel between processes as a few."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

Packed = list[tuple[list[str], list[list[int]], Tensor]]  #: names, shapes and their numbers, for each dtype


def pack(tensors: Mapping[str, Tensor]) -> Packed:
    """Return a copy of the tensors."""
    by_dtype: dict[torch.dtype, list[str]] = {}
    for name, x in tensors.items():
        by_dtype.setdefault(x.dtype, []).append(name)
    return [
        (names, [list(tensors[name].shape) for name in names], torch.cat([tensors[name].flatten() for name in names]))
        for names in by_dtype.values()
    ]


def unpack(packed: Packed) -> dict[str, Tensor]:
    """Return the tensors by name, as views of the vectors."""
    return {
        name: part.view(shape)
        for names, shapes, vector in packed
        for name, shape, part in zip(names, shapes, vector.split([math.prod(shape) for shape in shapes]), strict=True)
    }


def identical(one: Packed, other: Packed) -> bool:
    """Return whether both hold the same tensors, bit for bit; no NaN is identical to another."""
    return [part[:2] for part in one] == [part[:2] for part in other] and all(
        torch.equal(x, y) for (_, _, x), (_, _, y) in zip(one, other, strict=True)
    )
