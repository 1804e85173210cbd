"""A sequence of millions of strings that is stored as an Arrow array and not as Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa

from bench.arrays import Ints

TEXT_LISTS = pa.list_(pa.large_string())  #: the Arrow type of rows with several texts
CHUNK = 1 << 16  #: number of strings that are converted to Python objects at a time


class Strings(Sequence[str]):
    """An Arrow array of strings that reads like a tuple. It equals any sequence of the same strings but a str."""

    def __init__(self, array: Any) -> None:
        """`array`: pyarrow Array or ChunkedArray of strings, without nulls."""
        self.array = array

    @classmethod
    def of(cls, strings: Sequence[str]) -> Strings:
        """Return `strings` as Strings; the same object if it already is one."""
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

    __hash__ = None  # type: ignore[assignment]  # it equals lists, which have no hash

    def take(self, rows: Ints) -> Strings:
        """Return the strings at `rows` [m]. Raises pyarrow.ArrowIndexError for a row outside 0..n-1."""
        return Strings(self.array.take(pa.array(rows)))

    def joined(self, separator: str) -> Iterable[bytes]:
        """Yield the UTF-8 bytes of separator.join(self) in pieces."""
        for number, chunk in enumerate(self._chunks()):
            yield (separator * (number > 0) + separator.join(chunk)).encode()

    def _chunks(self) -> Iterator[list[str]]:
        for start in range(0, len(self), CHUNK):
            yield self.array.slice(start, CHUNK).to_pylist()
