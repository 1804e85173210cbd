"""The images of pairs. Several rows show the same one if an index has a row for each caption."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from bench.arrays import Ints, ragged
from bench.data.pairs import Pairs
from bench.data.strings import Strings
from bench.data.text_sets import in_blocks, kinds_of_sets


@runtime_checkable
class GroupedPairs(Protocol):
    """Pairs that may have several rows an image."""

    @property
    def image_keys(self) -> Strings | None:
        """The key of each row's image; None if every row is an image of its own."""


@dataclass(frozen=True)
class ImageRows:
    """The rows of each image."""

    keys: Strings  #: [g], in the order of their first rows
    rows: Ints  #: [n], image after image, rising within one
    starts: Ints  #: [g + 1]; image i has rows[starts[i]:starts[i + 1]]
    by_caption: bool  #: whether the pairs have a row for each caption

    @classmethod
    def of(cls, pairs: Pairs) -> ImageRows:
        """The images of pairs."""
        own = pairs.image_keys if isinstance(pairs, GroupedPairs) else None
        if own is None:
            rows = np.arange(len(pairs), dtype=np.int64)
            return cls(Strings.of(pairs.keys), rows, np.arange(len(pairs) + 1), False)
        coded = pa.chunked_array([own.array]) if isinstance(own.array, pa.Array) else own.array
        coded = coded.combine_chunks().dictionary_encode()
        image = coded.indices.to_numpy().astype(np.int64)
        counts = np.bincount(image, minlength=len(coded.dictionary))
        starts = np.concatenate([[0], np.cumsum(counts)])
        return cls(Strings(coded.dictionary), np.argsort(image, kind="stable"), starts, True)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def numbers(self) -> Ints:
        """The image of each row, int64 [n]."""
        image = np.empty(len(self.rows), np.int64)
        image[self.rows] = np.repeat(np.arange(len(self)), np.diff(self.starts))
        return image

    def kinds(self, pairs: Pairs, images: Ints) -> list[int]:
        """Return a number for each of `images` [k], equal for two whose rows have the same set of captions."""
        places, _ = self._inside(images)
        texts, counts = in_blocks(pairs, self.rows[places]), self.starts[images + 1] - self.starts[images]
        return kinds_of_sets(chain.from_iterable(islice(texts, count)) for count in counts.tolist())

    def swapped(self, images: Ints, donors: Ints) -> tuple[Ints, Ints]:
        """Return all rows of `images` [k], and the rows of `donors` [k] whose captions they take.

        Row number j of an image takes those of row number j modulo c' of its donor, which has c' rows.
        """
        places, inside = self._inside(images)
        counts = self.starts[images + 1] - self.starts[images]
        others = np.repeat(self.starts[donors + 1] - self.starts[donors], counts)
        return self.rows[places], self.rows[np.repeat(self.starts[donors], counts) + inside % np.maximum(others, 1)]

    def _inside(self, images: Ints) -> tuple[Ints, Ints]:
        """Return where the rows of `images` [k] stand in `self.rows`, and the number of each within its image."""
        return ragged(self.starts[images], self.starts[images + 1] - self.starts[images])
