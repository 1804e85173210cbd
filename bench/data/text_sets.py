"""Finds rows with equal or disjoint sets of captions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Protocol, runtime_checkable

from bench.arrays import Ints
from bench.data.pairs import Pairs

_BLOCK = 1 << 16  #: rows whose texts are in memory at a time


@runtime_checkable
class ColumnPairs(Protocol):
    """Pairs whose captions are an Arrow column."""

    def caption_lists(self, rows: Ints) -> Any:
        """Map rows [m] to a pyarrow Array of m lists of texts."""


def kinds_of_sets(texts_of_each: Iterable[Iterable[str]]) -> list[int]:
    """Return a number for each group of texts, equal for two groups with the same set of texts.

    Different sets get different numbers, except for collisions of 64-bit hashes.
    """
    sets = (repr(sorted(set(texts))).encode() for texts in texts_of_each)
    return [int.from_bytes(blake2b(one, digest_size=8).digest(), "little") for one in sets]


def disjoint(pairs: Pairs, rows: Ints, others: Ints) -> int:
    """Count the i at which rows[i] and others[i], both [k], have no caption in common."""
    both = zip(in_blocks(pairs, rows), in_blocks(pairs, others), strict=True)
    return sum(set(texts).isdisjoint(other) for texts, other in both)


def in_blocks(pairs: Pairs, rows: Ints) -> Iterator[tuple[str, ...]]:
    """Yield the texts of each of `rows` [k], which are read a block at a time."""
    for start in range(0, len(rows), _BLOCK):
        yield from of_rows(pairs, rows[start : start + _BLOCK])


def of_rows(pairs: Pairs, rows: Ints) -> list[tuple[str, ...]]:
    """Return the texts of each of `rows` [b]."""
    if isinstance(pairs, ColumnPairs):
        return [tuple(texts) for texts in pairs.caption_lists(rows).to_pylist()]
    return [pairs.captions(row) for row in rows.tolist()]
