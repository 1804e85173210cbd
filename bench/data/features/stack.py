"""External arrays in .npy files, read row by row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import reading
from bench.arrays import Ints
from bench.errors import UserError, one_line

ARRAY_TYPES = ("<f2", "<f4", "<f8")


@dataclass(frozen=True)
class Stack:
    """The rows of one or more arrays, one array after the other."""

    name: str  #: file or folder, for messages
    parts: tuple[npt.NDArray[Any], ...]  #: each [n_i, ...] of the same shape and type beyond the first axis

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.parts[0].shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The stored type."""
        return self.parts[0].dtype

    def take(self, rows: Ints) -> npt.NDArray[Any]:
        """Map rows [b] to their numbers [b, ...]."""
        taken = np.empty((len(rows), *self.shape), self.dtype)
        part = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(part).tolist():
            where = np.flatnonzero(part == number)
            taken[where] = self.parts[number][rows[where] - self._starts[number]]
        return taken

    @cached_property
    def _starts(self) -> Ints:
        return np.concatenate([[0], np.cumsum([len(part) for part in self.parts])]).astype(np.int64)


def stacked(name: str, parts: dict[str, npt.NDArray[Any]]) -> Stack:
    """Put arrays on top of each other, by their files' names. Raises UserError if their shapes or types differ."""
    (first, like), *others = parts.items()
    for file, part in others:
        if part.shape[1:] != like.shape[1:] or part.dtype != like.dtype:
            own, expected = (f"{one.dtype} of {list(one.shape[1:])} a row" for one in (part, like))
            raise UserError(f"{file}: holds {own}, {first} holds {expected}; all parts must agree")
    return Stack(name, tuple(parts.values()))


def open_array(given: str) -> npt.NDArray[Any]:
    """Map the array in a .npy file from the disk.

    Raises UserError if it is missing, damaged, or holds anything but floats of two or three axes.
    """
    try:
        array = reading.map_array(given)
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or error, 200)
        raise UserError(f"{given}: cannot be read as an array: {reason}") from error
    if array.dtype not in ARRAY_TYPES or array.ndim not in (2, 3) or 0 in array.shape:
        fault = f"holds {array.dtype} {list(array.shape)}"
        fix = "features are floats of 16, 32 or 64 bits, [rows, width] or [rows, k, width]"
        raise UserError(f"{given}: {fault}; {fix}")
    return array
