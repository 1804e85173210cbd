"""Millions of strings as a sequence, without millions of Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa

from bench.arrays import Ints

CHUNK = 1 << 16  #: strings that are Python objects at a time


class Strings(Sequence[str]):
    """An Arrow array of strings, read like a tuple of them. Equal to any sequence with the same strings."""

    def __init__(self, array: Any) -> None:
        """`array`: pyarrow Array or ChunkedArray of strings."""
        self.array = array

    @classmethod
    def of(cls, strings: Sequence[str]) -> Strings:
        """The same strings; itself where it is one already."""
        return strings if isinstance(strings, cls) else cls(pa.array(strings, pa.large_string()))

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Strings: ...
    def __getitem__(self, at: int | slice) -> str | Strings:
        if isinstance(at, slice):
            return self.take(np.arange(len(self), dtype=np.int64)[at])
        text: str = self.array[int(at)].as_py()
        return text

    def __iter__(self) -> Iterator[str]:
        for chunk in self._chunks():
            yield from chunk

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Strings):
            return len(self) == len(other) and all(a == b for a, b in zip(self._chunks(), other._chunks(), strict=True))
        if isinstance(other, Sequence) and not isinstance(other, str):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as for a list

    def take(self, rows: Ints) -> Strings:
        """The strings at `rows` [m]."""
        return Strings(self.array.take(pa.array(rows)))

    def joined(self, separator: str) -> Iterable[bytes]:
        """The UTF-8 bytes of separator.join(self), in pieces."""
        for place, chunk in enumerate(self._chunks()):
            yield (separator * (place > 0) + separator.join(chunk)).encode()

    def _chunks(self) -> Iterator[list[str]]:
        for start in range(0, len(self), CHUNK):
            yield self.array.slice(start, CHUNK).to_pylist()
