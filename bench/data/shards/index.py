"""The index file: one Parquet row for each pair, in key order; the metadata describes the shards."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from bench import reading
from bench.arrays import Ints
from bench.data.strings import TEXT_LISTS, Strings
from bench.errors import UserError, one_line

VERSION = 1
NAME = "index.parquet"
FIELDS: dict[str, Any] = {
    "key": pa.large_string(),
    "offset": pa.int64(),  #: of the image file in the shard, in bytes
    "size": pa.int64(),  #: of the image file, in bytes
    "captions": TEXT_LISTS,
    "digest": pa.binary(16),  #: of the image file's bytes
    "hash": pa.binary(16),  #: of key, captions and digest
}
SCHEMA = pa.schema(FIELDS)
INDEX_SCHEMA = pa.schema([("row", pa.int64()), *FIELDS.items(), ("shard", pa.int32())])

RowHashes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class IndexedShard:
    """A shard at the time of indexing."""

    name: str
    path: str  #: relative to the index's folder if it lies below it, else absolute
    bytes: int
    rows: int


@dataclass(frozen=True)
class IndexMetadata:
    """An index's metadata, which is stored as JSON in that of the Parquet schema."""

    version: int
    rows: int
    content_hash: str  #: of all rows; see `content_hash`
    ids: str  #: sha256 of the keys in order, a newline after each
    each_caption: bool  #: whether there is a row for each caption, instead of for each image
    faults: Mapping[str, int]  #: reason -> number of samples left out
    shards: tuple[IndexedShard, ...]


@dataclass(frozen=True)
class Index:
    """An index in memory. Columns have one entry for each of the n rows."""

    path: Path
    about: IndexMetadata
    table: Any  #: pyarrow Table

    @classmethod
    def read(cls, path: Path) -> Index:
        """Read an index file. Raises UserError if it is missing, damaged, not an index, or of another version."""
        about = read_about(path)
        try:
            index = cls(path, about, reading.read_parquet(path, (*FIELDS, "shard")))
            if content_hash(index.hashes("hash"), index.ints("shard")) != about.content_hash:
                raise ValueError("its rows are not those that were indexed")
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({one_line(error)}); run `bench data index` again") from error
        return index

    @property
    def keys(self) -> Strings:
        """The n keys in byte order."""
        return Strings(self.table["key"])

    @property
    def captions(self) -> Any:
        """pyarrow Array of n lists of strings."""
        return self.table["captions"].combine_chunks()

    def ints(self, column: str) -> Ints:
        """Return the column "offset", "size" or "shard" as int64 [n]."""
        values: Ints = self.table[column].to_numpy().astype(np.int64, copy=False)
        return values

    def hashes(self, column: str) -> RowHashes:
        """Return the column "digest" or "hash" as uint8 [n, 16]."""
        return fixed(self.table[column])


def read_about(path: Path) -> IndexMetadata:
    """Read the metadata alone. Raises UserError if the file is missing, not an index, or of another version."""
    try:
        with reading.open_file(path) as file:
            metadata = pq.read_schema(file).metadata or {}
        about = TypeAdapter(IndexMetadata).validate_json(metadata[b"index"], strict=True)
    except (OSError, KeyError, TypeError, ValueError, MemoryError, pa.ArrowException) as error:
        fault = f"not an index of shards ({one_line(error, 200)})"
        raise UserError(f"{path}: {fault}; `bench data index` writes them") from error
    if about.version != VERSION:
        raise UserError(f"{path}: is of version {about.version}, this is {VERSION}; run `bench data index` again")
    return about


def fixed(column: Any) -> RowHashes:
    """Return a pyarrow ChunkedArray of n values of 16 bytes, without nulls, as uint8 [n, 16]."""
    parts = [np.frombuffer(c.buffers()[1], np.uint8, 16 * len(c), 16 * c.offset) for c in column.chunks if len(c)]
    joined: RowHashes = np.concatenate(parts) if parts else np.empty(0, np.uint8)
    return joined.reshape(-1, 16)


def shard_groups(shard: Ints) -> Ints:
    """Renumber shards [n] in the order of their lowest rows, so that names and order of files do not matter."""
    _, first, inverse = np.unique(shard, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def content_hash(hashes: RowHashes, shard: Ints) -> str:
    """Return a sha256 over keys, captions, image files, and which rows share a shard.

    Shards are included because the sample order depends on them; their names, sizes and bytes are not.
    hashes: uint8 [n, 16], the rows' own; shard: int64 [n].
    """
    digest = hashlib.sha256(f"shards {len(hashes)}".encode())
    digest.update(np.ascontiguousarray(hashes).data)
    digest.update(shard_groups(shard).astype("<i4").data)
    return digest.hexdigest()


def ids_hash(keys: Strings) -> str:
    """Return the sha256 of the keys in order, with a newline after each."""
    digest = hashlib.sha256()
    for piece in keys.joined("\n"):
        digest.update(piece)
    digest.update(b"\n" if len(keys) else b"")
    return digest.hexdigest()
