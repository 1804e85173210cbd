"""Which rows have the same captions: comparisons of millions of rows at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench import counter
from bench.arrays import Ints
from bench.data.pairs import Pairs


@runtime_checkable
class Columnar(Protocol):
    """Pairs whose captions are an Arrow column."""

    def caption_lists(self, rows: Ints) -> Any:
        """[m] rows -> pyarrow Array of lists of texts."""


@dataclass(frozen=True)
class TextSets:
    """The sets of captions of some rows, texts as numbers: equal numbers, equal texts."""

    rows: Ints  #: [m], rising
    starts: Ints  #: [m + 1]; row rows[i] has texts[starts[i]:starts[i + 1]]
    texts: Ints  #: rising within a row, each once

    @classmethod
    def of(cls, pairs: Pairs, rows: Ints) -> TextSets:
        """`rows` [m] in any order."""
        rows = np.sort(rows)
        lists = _lists(pairs, rows)
        texts = lists.flatten().dictionary_encode().indices.to_numpy().astype(np.int64)
        place = np.repeat(np.arange(len(rows)), np.diff(lists.offsets.to_numpy()))
        order = np.lexsort((texts, place))
        texts, place = texts[order], place[order]
        once = np.ones(len(texts), bool)
        once[1:] = (texts[1:] != texts[:-1]) | (place[1:] != place[:-1])
        counts = np.bincount(place[once], minlength=len(rows))
        return cls(rows, np.concatenate([[0], np.cumsum(counts)]), texts[once])

    def kinds(self, rows: Ints) -> npt.NDArray[np.uint64]:
        """[k] numbers that are equal where `rows` have the same set of captions."""
        if not len(self.rows):
            return np.empty(0, np.uint64)
        kinds = np.add.reduceat(counter.mix(self.texts.astype(np.uint64)), self.starts[:-1])
        return kinds[np.searchsorted(self.rows, rows)]

    def disjoint(self, rows: Ints, others: Ints) -> int:
        """How many of `rows` [k] have no caption in common with their counterpart of `others` [k]."""
        bound = int(self.texts.max(initial=0)) + 1
        both = np.intersect1d(self._coded(rows, bound), self._coded(others, bound), assume_unique=True)
        return len(rows) - len(np.unique(both // bound))

    def _coded(self, rows: Ints, bound: int) -> Ints:
        """One number for each text of each of `rows`: its place times `bound`, plus the text's."""
        at = np.searchsorted(self.rows, rows)
        counts = self.starts[at + 1] - self.starts[at]
        ends = np.cumsum(counts)
        inside = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
        coded: Ints = np.repeat(np.arange(len(rows)), counts) * bound
        coded += self.texts[np.repeat(self.starts[at], counts) + inside]
        return coded


def _lists(pairs: Pairs, rows: Ints) -> Any:
    """pyarrow Array of lists: the captions of `rows`."""
    if isinstance(pairs, Columnar):
        return pairs.caption_lists(rows)
    return pa.array([pairs.captions(row) for row in rows.tolist()], pa.list_(pa.large_string()))
