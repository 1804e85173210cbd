"""Pairs whose images stay in their shards: each is read by its place in the tar when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL.Image import Image

from bench import counter
from bench.arrays import Ints, Pixels
from bench.data import photo
from bench.data.order import block_order
from bench.data.shards import cache
from bench.data.shards.index import Entry, Index, content_hash, groups
from bench.data.shards.scan import digest
from bench.data.strings import Strings
from bench.errors import UserError
from bench.suite.settings import DataSettings

OPEN = 128  #: shards that a process keeps open
KEPT = 64  #: pictures that are kept for further views
AGAIN = "run `bench data index` again"


class ShardPairs:
    """Training pairs of an index. `bench.data.shards.load` makes them."""

    labels: Mapping[str, Ints] = {}
    classes: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, settings: DataSettings, index: Index, paths: Sequence[str]) -> None:
        """`paths`: of the index's shards, in its order."""
        self.settings, self.about, self.index_path = settings, index.about, index.path
        self._paths, self._open = tuple(paths), dict[int, _Open]()
        self._last: tuple[bytes, list[Image]] = (b"", [])
        keys, captions = index.keys, index.captions
        columns = {name: index.ints(name) for name in ("offset", "size", "shard")}
        digests, hashes = index.hashes("digest"), index.hashes("hash")
        if settings.share < 1:
            rows = smallest(keys, settings.share)
            keys, captions = keys.take(rows), captions.take(pa.array(rows))
            columns = {name: values[rows] for name, values in columns.items()}
            digests, hashes = digests[rows], hashes[rows]
        if not len(keys):
            raise UserError(f"data.share: {settings.share:g} of {index.about.rows} pairs is none")
        self._keys, self._captions, self._digests, self._hashes = keys, captions, digests, hashes
        self._offsets, self._sizes, self._shards = (columns[name] for name in ("offset", "size", "shard"))

    def __len__(self) -> int:
        return len(self._keys)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process the index is read again: it takes a second, and the file is shared."""
        return reopened, (self.settings, self.content_hash)

    @property
    def name(self) -> str:
        """ "cc3m/pairs"; "cc3m/train" would be a part of an evaluation set of that name."""
        return f"{self.settings.name}/pairs"

    @property
    def description(self) -> str:
        """One line."""
        return f"{len(self):,} pairs in {len(self._paths):,} shards, indexed in {self.index_path}."

    @property
    def keys(self) -> Sequence[str]:
        """In byte order."""
        return self._keys

    def captions(self, row: int) -> tuple[str, ...]:
        """At least one."""
        return tuple(self._captions[row].as_py())

    def caption_lists(self, rows: Ints) -> Any:
        """[m] rows -> pyarrow Array of lists of texts."""
        return self._captions.take(pa.array(rows))

    def encoded(self, rows: npt.NDArray[np.integer[Any]]) -> list[bytes]:
        """The image files' bytes, read in the order they lie on disk.

        UserError, with shard and key, where they are not what was indexed.
        """
        found: list[bytes] = [b""] * len(rows)
        for i in np.lexsort((self._offsets[rows], self._shards[rows])).tolist():
            found[i] = self._read(int(rows[i]))
        return found

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> Pixels:
        """[b] rows -> uint8 [b, size, size, 3], as evaluation sees them."""
        return np.stack([photo.evaluation(image, self.settings.size) for image in self._decoded(rows)])

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> Pixels:
        """[b] rows -> uint8 [b, size, size, 3], augmented, keyed by (seed, row, epoch, view)."""
        images = zip(rows.tolist(), self._decoded(rows), strict=True)
        size = self.settings.size
        return np.stack([photo.sampled(image, row, epoch, seed, view, recipe, size) for row, image in images])

    def order(self, epoch: int, seed: int) -> Ints:
        """int64 [n]: shards in a drawn order, `block` of them at a time, rows shuffled inside each block."""
        return block_order(self._groups, self.settings.block, epoch, seed)

    @cached_property
    def content_hash(self) -> str:
        """See `bench.data.shards.index.content_hash`; of these rows, where they are a share."""
        return content_hash(self._hashes, self._shards) if self.settings.share < 1 else self.about.content_hash

    @cached_property
    def _groups(self) -> Ints:
        return groups(self._shards)

    def _decoded(self, rows: npt.NDArray[np.integer[Any]]) -> list[Image]:
        """RGB pictures. The last few are kept: further views of the same rows are asked for next."""
        asked = rows.tobytes()
        if self._last[0] == asked:
            return self._last[1]
        images = []
        for row, data in zip(rows.tolist(), self.encoded(rows), strict=True):
            try:
                images.append(photo.decode(data))
            except photo.Undecodable as error:
                where = f"{self._paths[int(self._shards[row])]}: the image of {self._keys[row]!r} cannot be decoded"
                raise UserError(f"{where} ({error}); {AGAIN}, with --decode full") from error
        if len(images) <= KEPT:
            self._last = (asked, images)
        return images

    def _read(self, row: int) -> bytes:
        shard, size = int(self._shards[row]), int(self._sizes[row])
        file = self._open.get(shard)
        if file is None:
            for oldest in list(self._open)[: len(self._open) - OPEN + 1]:
                self._open.pop(oldest, None)
            file = self._open[shard] = _Open(self._paths[shard], self.about.shards[shard])
        data = os.pread(file.descriptor, size, int(self._offsets[row]))
        if len(data) != size or digest(data) != self._digests[row].tobytes():
            where = f"{self._paths[shard]}: the image of {self._keys[row]!r} is not the one that was indexed"
            raise UserError(f"{where} in {self.index_path}; the shard has changed, {AGAIN}")
        return data


class _Open:
    """An open shard. Reads name their place, so that forked processes and threads can share it."""

    def __init__(self, path: str, entry: Entry) -> None:
        try:
            with cache.opened(path, entry.bytes) as file:
                self.descriptor = os.dup(file.fileno())
        except OSError as error:
            raise UserError(f"shards: {path}: cannot be read: {error.strerror}") from error
        held = os.fstat(self.descriptor).st_size
        if held != entry.bytes:
            raise UserError(f"{path}: has {held} bytes, {entry.bytes} when it was indexed; it was replaced, {AGAIN}")

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


def smallest(keys: Strings, share: float) -> Ints:
    """Rising rows of the round(share * n) keys with the smallest keyed hash: a smaller share lies in a larger one."""
    chosen = counter.hash_order(keys, b"share")[: round(share * len(keys))]
    return np.sort(chosen)


def reopened(settings: DataSettings, expected: str) -> ShardPairs:
    """The same pairs in another process. UserError where the index was changed in between."""
    from bench.data.shards import load

    pairs = load(settings)
    if pairs.content_hash != expected:
        raise UserError(f"{pairs.index_path}: was changed while it is used; start the command again")
    return pairs
