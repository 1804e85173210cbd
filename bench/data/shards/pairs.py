"""Pairs whose images stay in their shards; each is read by its offset in the tar on access."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from PIL.Image import Image

from bench import counter, reading
from bench.arrays import Ints, Pixels
from bench.data import photo
from bench.data.order import block_order
from bench.data.shards.index import Index, IndexedShard, content_hash, shard_groups
from bench.data.shards.scan import image_digest, row_hash
from bench.data.strings import Strings
from bench.errors import UserError
from bench.suite.settings import DataSettings

MAX_OPEN_SHARDS = 128  #: number of shards that a process keeps open
MAX_KEPT_IMAGES = 64  #: number of decoded images that are kept for further views
SAMPLED_ROWS = 64  #: rows that are compared with their hashes before anything trains
RENEW_INDEX = "run `bench data index` again"


class ShardPairs:
    """Training pairs of an index. `bench.data.shards.load_shard_pairs` makes them."""

    labels: Mapping[str, Ints] = {}
    classes: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, settings: DataSettings, index: Index, paths: Sequence[str]) -> None:
        """`paths`: the paths of the index's shards, in its order. Raises UserError if data.share leaves no row."""
        self.settings, self.about, self.index_path = settings, index.about, index.path
        self._paths, self._open = tuple(paths), dict[int, _Open]()
        self._last: tuple[bytes, list[Image]] = (b"", [])
        if settings.share < 1:
            index = replace(index, table=index.table.take(pa.array(rows_of_share(index.keys, settings.share))))
        if not len(index.table):
            raise UserError(f"data.share={settings.share:g} selects 0 of {index.about.rows} pairs")
        self.keys, self._captions = index.keys, index.captions
        self._digests, self._hashes = index.hashes("digest"), index.hashes("hash")
        self._offsets, self._sizes, self._shards = map(index.ints, ("offset", "size", "shard"))
        self.name = f"{settings.name}/pairs"  #: "cc3m/train" would be a split of an evaluation set of that name
        self.description = f"{len(self):,} pairs in {len(paths):,} shards, indexed in {index.path}."
        for row in evenly_spaced(len(self)):
            self._refuse_other_texts(row)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def image_keys(self) -> Strings | None:
        """The key of each row's image in its shard; None if the index has a row for each image."""
        if not self.about.each_caption:
            return None
        return Strings(pc.replace_substring_regex(self.keys.array, "#[0-9]+$", ""))

    def captions(self, row: int) -> tuple[str, ...]:
        """Return the texts of a row, at least one."""
        return tuple(self._captions[row].as_py())

    def caption_lists(self, rows: Ints) -> Any:
        """Map rows [m] to a pyarrow Array of m lists of texts."""
        return self._captions.take(pa.array(rows))

    def encoded(self, rows: npt.NDArray[np.integer[Any]]) -> list[bytes]:
        """Read the bytes of the image files of `rows` [b], in the order in which they lie on disk.

        Raises a UserError with shard and key if they are not the indexed ones or cannot be read.
        """
        contents: list[bytes] = [b""] * len(rows)
        for i in np.lexsort((self._offsets[rows], self._shards[rows])).tolist():
            contents[i] = self._read(int(rows[i]))
        return contents

    def decoded(self, rows: npt.NDArray[np.integer[Any]]) -> list[Image]:
        """Return RGB images of `rows` [b]; a small batch is kept, because its further views are read next.

        Raises UserError as `encoded` does.
        """
        requested = rows.tobytes()
        if self._last[0] == requested:
            return self._last[1]
        images = []
        for row, data in zip(rows.tolist(), self.encoded(rows), strict=True):
            try:
                images.append(photo.decode_image(data))
            except photo.Undecodable as error:
                where = f"{self._paths[int(self._shards[row])]}: the image of {self.keys[row]!r} cannot be decoded"
                raise UserError(f"{where} ({error}); {RENEW_INDEX}") from error
        if len(images) <= MAX_KEPT_IMAGES:
            self._last = (requested, images)
        return images

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> Pixels:
        """Map rows [b] to uint8 [b, size, size, 3] as evaluation sees them. Raises UserError as `encoded` does."""
        return np.stack([photo.evaluation_pixels(image, self.settings.size) for image in self.decoded(rows)])

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> Pixels:
        """Map rows [b] to uint8 [b, size, size, 3], augmented, keyed by (seed, row, epoch, view).

        Raises UserError as `encoded` does, and if `recipe` is not one of photographs.
        """
        images = zip(rows.tolist(), self.decoded(rows), strict=True)
        size = self.settings.size
        return np.stack([photo.training_pixels(image, row, epoch, seed, view, recipe, size) for row, image in images])

    def order(self, epoch: int, seed: int) -> Ints:
        """Return int64 [n]: rows by blocks of `settings.block` shards, the rows of each block shuffled."""
        return block_order(self._groups, self.settings.block, epoch, seed)

    @cached_property
    def content_hash(self) -> str:
        """`bench.data.shards.index.content_hash` of these rows."""
        return content_hash(self._hashes, self._shards) if self.settings.share < 1 else self.about.content_hash

    @cached_property
    def _groups(self) -> Ints:
        return shard_groups(self._shards)

    def _read(self, row: int) -> bytes:
        shard, size = int(self._shards[row]), int(self._sizes[row])
        file = self._open.get(shard)
        if file is None:
            for oldest in list(self._open)[: len(self._open) - MAX_OPEN_SHARDS + 1]:
                self._open.pop(oldest, None)
            file = self._open[shard] = _Open(self._paths[shard], self.about.shards[shard])
        self._refuse_other_texts(row)
        data = os.pread(file.descriptor, size, int(self._offsets[row]))
        if len(data) != size or image_digest(data) != self._digests[row].tobytes():
            where = f"{self._paths[shard]}: the image of {self.keys[row]!r} is not the one that was indexed"
            raise UserError(f"{where} in {self.index_path}; the shard has changed, {RENEW_INDEX}")
        return data

    def _refuse_other_texts(self, row: int) -> None:
        """Raise UserError if a row's key and captions are not those whose hash enters the ids of runs."""
        hashed = row_hash(self.keys[row], self.captions(row), self._digests[row].tobytes())
        if hashed != self._hashes[row].tobytes():
            what = f"key or captions of row {row} ({self.keys[row]!r}) are not those that were indexed"
            raise UserError(f"{self.index_path}: {what}; {RENEW_INDEX}")


class _Open:
    """An open shard. Reads pass their offset (pread), so that forked processes and threads can share it."""

    def __init__(self, path: str, entry: IndexedShard) -> None:
        try:
            with reading.open_file(path) as file:
                self.descriptor = os.dup(file.fileno())
        except OSError as error:
            raise UserError(f"shards: {path}: cannot be read: {error.strerror}") from error
        size = os.fstat(self.descriptor).st_size
        if size != entry.bytes:
            fault = f"has {size} bytes, {entry.bytes} when it was indexed"
            raise UserError(f"{path}: {fault}; it was replaced, {RENEW_INDEX}")

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


def rows_of_share(keys: Strings, share: float) -> Ints:
    """Return the rising rows of the round(share * n) keys with the smallest keyed hash.

    So the rows of a smaller share are among those of a larger one.
    """
    chosen = counter.hash_order(keys, b"share")[: round(share * len(keys))]
    return np.sort(chosen)


def evenly_spaced(n: int) -> list[int]:
    """Return at most SAMPLED_ROWS of the numbers 0..n-1, evenly spaced, the first and the last among them."""
    return sorted(set(np.linspace(0, n - 1, SAMPLED_ROWS).astype(np.int64).tolist())) if n else []
