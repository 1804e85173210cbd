"""Pairs whose images, texts or both are stored features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench import counter, reading
from bench.arrays import Ints
from bench.data.features import about as description
from bench.data.features.about import AGAIN, EVALUATION, IMAGE, INDEX, MAPPED, PROMPTS, TEXT, About
from bench.data.features.rows import Rows
from bench.data.features.texts import Hashes, TextFeatures, prefixes, row_digest
from bench.data.order import epoch_order
from bench.data.shards.pairs import smallest
from bench.data.strings import Strings
from bench.errors import UserError, one_line
from bench.hashing import digest

SAMPLED = 64  #: rows whose digests are compared when a set is opened


class FeaturePairs:
    """A feature set as `bench.data.pairs.Pairs`: what is asked for images are features, float [b, P].

    A set without image features still has keys and captions, and one without text features has `texts` None.
    """

    def __init__(self, folder: Path | str, share: float = 1.0) -> None:
        """Open the set in `folder`; keep the share of rows with the smallest hash of their key, as shards do.

        Raises UserError if the set is damaged, or if `share` leaves no row. Only a sample of the features is read:
        `bench features verify` reads all.
        """
        self.folder, self.share = Path(folder), share
        self.about = description.read(self.folder)
        self._table = Rows(self.folder / MAPPED, self.about)
        image, text = self.about.image, self.about.text
        self.image_array: npt.NDArray[Any] | None = None  #: [N, V, P] of the whole set, mapped from the disk
        if image is not None:
            self.image_array = mapped(self.folder / IMAGE, (self.about.rows, image.views, image.width), image.dtype)
        self.texts: TextFeatures | None = None
        if text is not None:
            path, n = self.folder / TEXT, self.about.texts
            index = mapped(self.folder / INDEX, (3, n), "uint64")
            if index[1].max() >= n or not (index[0, :-1] < index[0, 1:]).all():
                raise UserError(f"{self.folder / INDEX}: its hashes do not rise, or name rows beyond {n - 1}; {AGAIN}")
            self.texts = TextFeatures(path, mapped(path, (n, text.width), text.dtype), index)
        for row in spread(self.about.rows):
            self.check_image(row)
        for place in spread(self.about.texts):
            self.check_text(place)
        #: [n] rows of the whole set, rising, if there is a share
        self.chosen: Ints | None = smallest(self._table.keys, share) if share < 1 else None
        if self.chosen is not None and not len(self.chosen):
            raise UserError(f"data.share: {share:g} of {self.about.rows} pairs is none")

    def __len__(self) -> int:
        return self.about.rows if self.chosen is None else len(self.chosen)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the place alone: another process maps the same files."""
        return reopened, (self.folder, self.share, self.content_hash)

    @property
    def name(self) -> str:
        """The set's name, such as "cc3m/pairs"."""
        return self.about.name

    @property
    def description(self) -> str:
        """One line that describes the data."""
        return f"{self.about.description} {len(self):,} rows of features in {self.folder}."

    @cached_property
    def keys(self) -> Sequence[str]:
        """The n keys in byte order."""
        return self._table.keys if self.chosen is None else self._table.keys.take(self.chosen)

    @cached_property
    def labels(self) -> Mapping[str, Ints]:
        """Label name -> int64 [n], indices into `classes`."""
        labels = self._table.labels
        return labels if self.chosen is None else {name: values[self.chosen] for name, values in labels.items()}

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """Label name -> class names."""
        return self.about.classes

    @property
    def templates(self) -> tuple[str, ...]:
        """Prompts for a class name, which stands for "{}"; their features are in the set."""
        return self.about.templates

    @cached_property
    def prompts(self) -> Sequence[str]:
        """Texts beyond the captions whose features are in the set. Raises UserError if their file is damaged."""
        return read_prompts(self.folder, self.about)

    def captions(self, row: int) -> tuple[str, ...]:
        """Return the texts of a row, at least one."""
        return tuple(self._table.captions[int(self.whole_rows(np.array([row]))[0])].as_py())

    def caption_lists(self, rows: Ints) -> Any:
        """Map rows [m] to a pyarrow Array of m lists of texts."""
        return self._table.captions.take(pa.array(self.whole_rows(rows)))

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        """Map rows [b] to features [b, P] of the stored type: the first view. Raises UserError without image.npy."""
        return self._views(rows, np.zeros(len(rows), np.int64))

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> npt.NDArray[Any]:
        """Map rows [b] to features [b, P]: the stored view that `view_of` draws. Raises UserError as `images` does.

        `recipe`, which names an augmentation of pixels, is not used.
        """
        return self._views(rows, self.view_of(rows, epoch, seed, view))

    def view_of(self, rows: Ints, epoch: int, seed: int, view: int) -> Ints:
        """Return int64 [b]: the stored view of each row, drawn by (seed, row, epoch) and moved on by `view`.

        So the views of a row in one step differ, as far as there are stored ones.
        """
        views = self.about.image.views if self.about.image else 1
        drawn = counter.words(counter.word(seed, "stored view", epoch), rows)[:, 0]
        return (counter.below(np.full(len(rows), views), drawn) + view) % views

    def order(self, epoch: int, seed: int) -> Ints:
        """Return int64 [n]: the permutation of rows that one epoch follows."""
        return epoch_order(len(self), epoch, seed)

    @cached_property
    def content_hash(self) -> str:
        """`About.content_hash`; with a share, also of the share."""
        own = self.about.content_hash
        return own if self.chosen is None else digest({"features": own, "rows": self.chosen.tolist()})

    def evaluation(self, name: str) -> FeaturePairs:
        """Open an evaluation set that lies with this one. Raises UserError if it is missing or damaged."""
        return FeaturePairs(self.folder / EVALUATION / name)

    @property
    def image_digests(self) -> Hashes:
        """The stored `row_digest` of each row of image.npy, uint64 [N]."""
        return self._table.image_digests

    def whole_rows(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
        """Map rows of these pairs to rows of the arrays."""
        return rows if self.chosen is None else self.chosen[rows]

    def _views(self, rows: npt.NDArray[np.integer[Any]], views: Ints) -> npt.NDArray[Any]:
        if self.image_array is None:
            raise UserError(f"{self.folder}: has no {IMAGE}; extract the set again with --images MODEL")
        features: npt.NDArray[Any] = np.asarray(self.image_array[self.whole_rows(rows), views])
        return features

    def check_image(self, row: int) -> None:
        """Compare the features of a row of image.npy with the digest of key and features. Raises UserError."""
        key = self._table.keys[row]
        if self.image_array is None:
            return
        if row_digest(key.encode(), self.image_array[row]) != self._table.batch["image_digest"][row].as_py():
            fault = f"row {row}, key {key!r}: the features are not those that were stored for this key"
            raise UserError(f"{self.folder / IMAGE}: {fault}; the array was changed, shifted or swapped, {AGAIN}")

    def check_text(self, place: int) -> None:
        """Compare the text features at a place of the index with their digest. Raises UserError."""
        assert self.texts is not None
        text_hash, row, expected = (int(value) for value in self.texts.index[:, place])
        (prefix,) = prefixes(np.array([text_hash], np.uint64))
        if row_digest(prefix, self.texts.array[row]) != expected:
            fault = f"row {row}: the features are not those that were stored for this text"
            raise UserError(f"{self.folder / TEXT}: {fault}; the array was changed, shifted or swapped, {AGAIN}")


def spread(n: int) -> list[int]:
    """Return at most SAMPLED of the numbers 0..n-1, evenly spaced, the first and the last among them."""
    return sorted(set(np.linspace(0, n - 1, SAMPLED).astype(np.int64).tolist())) if n else []


def mapped(path: Path, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """Map a .npy file from the disk. Raises UserError if it has another shape or type, or is damaged."""
    try:
        array = np.lib.format.open_memmap(path, mode="r")  # type: ignore[no-untyped-call]
    except Exception as error:  # a malformed header raises anything from SyntaxError to MemoryError
        raise UserError(f"{path}: is not a .npy file of NumPy ({one_line(error, 200)}); {AGAIN}") from error
    if array.shape != shape or array.dtype != np.dtype(dtype).newbyteorder("<") or not array.flags.c_contiguous:
        fault = f"holds {array.dtype.name} {list(array.shape)}, features.json says {dtype} {list(shape)}"
        raise UserError(f"{path}: {fault}; {AGAIN}")
    return np.asarray(array)


def read_prompts(folder: Path, about: About) -> Strings:
    """Read the prompts of a set. Raises UserError if their file is damaged or has another number of them."""
    if not about.prompts:
        return Strings.of(())
    path = folder / PROMPTS
    try:
        column = reading.parquet(path, ("text",))["text"]
        if column.type != pa.large_string() or column.null_count or len(column) != about.prompts:
            raise ValueError(f"it should have {about.prompts:,} texts")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error, 200)}); {AGAIN}") from error
    return Strings(column)


def reopened(folder: Path, share: float, expected: str) -> FeaturePairs:
    """Open pickled pairs in another process. Raises UserError if the set was changed since."""
    pairs = FeaturePairs(folder, share)
    if pairs.content_hash != expected:
        raise UserError(f"{folder}: was changed while it is used; start the command again")
    return pairs
