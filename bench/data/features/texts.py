"""Texts and their features: equal strings share one row, which is looked up by a 64-bit hash of the string."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench.arrays import Ints
from bench.data.strings import Strings
from bench.errors import UserError

TextHashes = npt.NDArray[np.uint64]
SHOWN_LETTERS = 80  #: characters of a text that a message quotes


def text_hashes(texts: Iterable[str]) -> TextHashes:
    """Return uint64 [n]: the 64-bit BLAKE2b hash of each text's UTF-8 bytes."""
    joined = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(joined, "<u8").astype(np.uint64, copy=False)


def row_digest(prefix: bytes, row: npt.NDArray[Any]) -> int:
    """Return 64 bits over what a row of an array belongs to, its key or its text's hash, and over its numbers."""
    return int.from_bytes(hashlib.blake2b(prefix + row.tobytes(), digest_size=8).digest(), "little")


def row_digests(prefixes: Iterable[bytes], block: npt.NDArray[Any]) -> TextHashes:
    """Return uint64 [b]: `row_digest` of each row of `block` [b, ...]."""
    values = (row_digest(prefix, row) for prefix, row in zip(prefixes, block, strict=True))
    return np.fromiter(values, np.uint64, len(block))


def hash_prefixes(hashes: Iterable[np.uint64]) -> list[bytes]:
    """Return the bytes of each hash, with which `row_digest` binds features to their text."""
    return [int(one).to_bytes(8, "little") for one in hashes]


@dataclass(frozen=True)
class TextPlan:
    """Texts that get a feature row, in the order of their first appearance, prompts after captions."""

    hashes: TextHashes  #: [M], of each text row's string
    first: Ints  #: [M], where the string first stands among the T captions and prompts
    rows: Ints  #: [T], the text row of each caption and prompt
    strings: Any  #: pyarrow Array of the T captions and prompts

    @classmethod
    def of(cls, captions: Any, prompts: Sequence[str] = ()) -> TextPlan:
        """Number the texts of `captions`, a pyarrow Array of lists of strings, and of `prompts`.

        Raises UserError if different strings have the same hash.
        """
        parts = [captions.flatten().cast(pa.large_string()), Strings.of(prompts).array]
        strings = pa.concat_arrays([part.combine_chunks() if hasattr(part, "chunks") else part for part in parts])
        hashes = text_hashes(Strings(strings))
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(first), np.int64)
        rank[order] = np.arange(len(first))
        rows, first = rank[inverse], first[order].astype(np.int64)
        same = pc.equal(strings, strings.take(pa.array(first[rows])))
        for at in np.flatnonzero(~same.to_numpy(zero_copy_only=False)).tolist():
            one, other = strings[at].as_py(), strings[int(first[rows[at]])].as_py()
            both = f"{one[:SHOWN_LETTERS]!r} and {other[:SHOWN_LETTERS]!r}"
            raise UserError(f"captions: {both} have the same 64-bit hash; change one of them, by a space for instance")
        return cls(hashes[first], first, rows, strings)

    def texts(self, start: int, stop: int) -> list[str]:
        """Return the strings of the text rows start..stop-1."""
        texts: list[str] = self.strings.take(pa.array(self.first[start:stop])).to_pylist()
        return texts

    def index(self, digests: TextHashes) -> TextHashes:
        """Return the content of text_index.npy, uint64 [3, M] by rising hash: hash, text row, digest of the row.

        digests: [M] by text row.
        """
        order = np.argsort(self.hashes)
        return np.stack([self.hashes[order], order.astype(np.uint64), digests[order]])


@dataclass(frozen=True)
class TextFeatures:
    """The text features of a set."""

    path: Path  #: of text.npy, for messages
    array: npt.NDArray[Any]  #: [M, Q], mapped from the disk
    index: TextHashes  #: [3, M], mapped from the disk; see `TextPlan.index`

    def __len__(self) -> int:
        return len(self.array)

    def rows(self, texts: Sequence[str]) -> Ints:
        """Map texts [b] to their text rows, int64 [b]. Raises UserError with a text that has none."""
        rows = self.find(texts)
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            raise self.lacks(texts[int(unknown[0])])
        return rows

    def lacks(self, text: str) -> UserError:
        """The error for a text that has no row."""
        fix = "extract the set again with this text as a caption or a prompt"
        return UserError(f"{self.path}: has no feature of the text {text[:SHOWN_LETTERS]!r}; {fix}")

    def find(self, texts: Sequence[str]) -> Ints:
        """Map texts [b] to their text rows, int64 [b]; -1 for a text that has none."""
        hashes = text_hashes(texts)
        at = np.minimum(np.searchsorted(self.index[0], hashes), len(self) - 1)
        rows: Ints = np.where(self.index[0, at] == hashes, self.index[1, at].astype(np.int64), -1)
        return rows
