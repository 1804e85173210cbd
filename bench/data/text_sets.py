"""Finds rows with equal or disjoint sets of captions, among millions of rows at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench import counter
from bench.arrays import Ints, ragged
from bench.data.pairs import Pairs
from bench.data.strings import TEXT_LISTS


@runtime_checkable
class ColumnPairs(Protocol):
    """Pairs whose captions are an Arrow column."""

    def caption_lists(self, rows: Ints) -> Any:
        """Map rows [m] to a pyarrow Array of m lists of texts."""


@dataclass(frozen=True)
class TextSets:
    """The caption sets of some rows. A text is a number, and equal numbers mean equal texts."""

    rows: Ints  #: [m], rising
    starts: Ints  #: [m + 1]; row rows[i] has texts[starts[i]:starts[i + 1]]
    texts: Ints  #: rising within a row, without repeats

    @classmethod
    def of(cls, pairs: Pairs, rows: Ints) -> TextSets:
        """Read the captions of `rows` [m], which may be in any order."""
        rows = np.sort(rows)
        return cls.of_lists(rows, caption_lists(pairs, rows))

    @classmethod
    def of_lists(cls, rows: Ints, lists: Any) -> TextSets:
        """`lists`: a pyarrow Array with a list of texts for each of `rows` [m], which rise."""
        texts = lists.flatten().dictionary_encode().indices.to_numpy().astype(np.int64)
        place = np.repeat(np.arange(len(rows)), np.diff(lists.offsets.to_numpy()))
        order = np.lexsort((texts, place))
        texts, place = texts[order], place[order]
        once = np.ones(len(texts), bool)
        once[1:] = (texts[1:] != texts[:-1]) | (place[1:] != place[:-1])
        counts = np.bincount(place[once], minlength=len(rows))
        return cls(rows, np.concatenate([[0], np.cumsum(counts)]), texts[once])

    def kinds(self, rows: Ints) -> npt.NDArray[np.uint64]:
        """Return uint64 [k], equal for two of `rows` [k] if their caption sets are equal.

        Different sets get different numbers, except for collisions of 64-bit sums. Each of `rows` is among `self.rows`.
        """
        if not len(self.rows):
            return np.empty(0, np.uint64)
        kinds = np.add.reduceat(counter.mix(self.texts.astype(np.uint64)), self.starts[:-1])
        return kinds[np.searchsorted(self.rows, rows)]

    def disjoint(self, rows: Ints, others: Ints) -> int:
        """Count the i at which rows[i] and others[i] have no caption in common; both [k], each among `self.rows`."""
        bound = int(self.texts.max(initial=0)) + 1
        both = np.intersect1d(self._coded(rows, bound), self._coded(others, bound), assume_unique=True)
        return len(rows) - len(np.unique(both // bound))

    def _coded(self, rows: Ints, bound: int) -> Ints:
        """Return i * `bound` + text for each text of each rows[i]."""
        at = np.searchsorted(self.rows, rows)
        counts = self.starts[at + 1] - self.starts[at]
        coded: Ints = np.repeat(np.arange(len(rows)), counts) * bound
        coded += self.texts[ragged(self.starts[at], counts)[0]]
        return coded


def of_rows(pairs: Pairs, rows: Ints) -> list[tuple[str, ...]]:
    """Return the texts of each of `rows` [b]."""
    if isinstance(pairs, ColumnPairs):
        return [tuple(texts) for texts in pairs.caption_lists(rows).to_pylist()]
    return [pairs.captions(row) for row in rows.tolist()]


def caption_lists(pairs: Pairs, rows: Ints) -> Any:
    """Return the captions of `rows` [m] as a pyarrow Array of m lists."""
    if isinstance(pairs, ColumnPairs):
        return pairs.caption_lists(rows)
    return pa.array([pairs.captions(row) for row in rows.tolist()], TEXT_LISTS)
