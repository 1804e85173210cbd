"""Pairs whose images, texts or both are stored features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench import counter, reading
from bench.arrays import Ints
from bench.data.features import about as description
from bench.data.features.about import EVALUATION_FOLDER, IMAGE, INDEX, MAPPED, RENEW_SET, TEXT
from bench.data.features.rows import LABEL_PREFIX
from bench.data.features.texts import TextFeatures, hash_prefixes, row_digest
from bench.data.order import RandomOrder
from bench.data.shards.pairs import evenly_spaced, rows_of_share
from bench.data.strings import Strings
from bench.errors import UserError
from bench.hashing import digest

if TYPE_CHECKING:  # importing torch takes seconds, and processes that only index data do not need it
    from torch import Tensor


class FeaturePairs(RandomOrder):
    """A feature set as `bench.data.pairs.Pairs`: what is asked for images are features, float [b, P].

    One without text features has `texts` None.
    """

    def __init__(self, folder: Path | str, share: float = 1.0, dropout: float = 0.0) -> None:
        """Open the set in `folder`; keep the share of rows with the smallest hash of their key, as shards do.

        dropout: share of an image's numbers that training zeroes; the others are divided by 1 - dropout. Raises
        UserError if the set is damaged, or if `share` leaves no row. Only a sample of the features is read:
        `bench features verify` reads all.
        """
        self.folder, self.share, self.dropout = Path(folder), share, dropout
        self.about = description.read_description(self.folder)
        self._rows = pa.ipc.open_file(pa.memory_map(str(self.folder / MAPPED))).get_batch(0)
        self._keys = Strings(self._rows["key"])
        image, text = self.about.image, self.about.text
        self.name, self.classes = self.about.name, self.about.classes
        self.templates = self.about.templates  #: prompts for a class name "{}"; their features are in the set
        self.width = image.width  #: P
        #: [N, V, P] of the whole set, mapped from the disk
        self.image_array = map_features(self.folder / IMAGE, (self.about.rows, image.views, image.width), image.dtype)
        self.texts: TextFeatures | None = None
        if text is not None:
            path, n = self.folder / TEXT, self.about.texts
            index = map_features(self.folder / INDEX, (3, n), "uint64")
            self.texts = TextFeatures(path, map_features(path, (n, text.width), text.dtype), index)
        self._refuse_shifted()
        #: [n] rows of the whole set, rising, if there is a share
        self.chosen: Ints | None = rows_of_share(self._keys, share) if share < 1 else None
        if self.chosen is not None and not len(self.chosen):
            raise UserError(f"data.share={share:g} selects 0 of {self.about.rows} pairs")
        self.description = f"{self.about.description} {len(self):,} rows of features in {self.folder}."

    def __len__(self) -> int:
        return self.about.rows if self.chosen is None else len(self.chosen)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the place alone: another process maps the same files."""
        return reopen_feature_set, (self.folder, self.share, self.dropout, self.content_hash)

    @cached_property
    def keys(self) -> Sequence[str]:
        """The n keys in byte order."""
        return self._keys if self.chosen is None else self._keys.take(self.chosen)

    @cached_property
    def labels(self) -> Mapping[str, Ints]:
        """Label name -> int64 [n], indices into `classes`."""
        names, rows = self.about.classes, slice(None) if self.chosen is None else self.chosen
        return {name: self._rows[LABEL_PREFIX + name].to_numpy().astype(np.int64)[rows] for name in names}

    def captions(self, row: int) -> tuple[str, ...]:
        """Return the texts of a row, at least one."""
        return tuple(self._rows["captions"][int(self.whole_rows(np.array([row]))[0])].as_py())

    def caption_lists(self, rows: Ints) -> Any:
        """Map rows [m] to a pyarrow Array of m lists of texts."""
        return self._rows["captions"].take(pa.array(self.whole_rows(rows)))

    def images(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        """Map rows [b] to features [b, P] of the stored type: the first view."""
        return self._views(rows, np.zeros(len(rows), np.int64))

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> npt.NDArray[Any]:
        """Map rows [b] to features [b, P]: the stored view that `view_of` draws, or float32 with numbers dropped.

        `recipe`, which names an augmentation of pixels, is not used.
        """
        return self.dropped(self._views(rows, self.view_of(rows, epoch, seed, view)), rows, epoch, seed, view)

    def dropped(self, stored: npt.NDArray[Any], rows: Ints, epoch: int, seed: int, view: int) -> npt.NDArray[Any]:
        """Return features [b, P] of rows [b] with the numbers dropped that `sampled` drops, if there is dropout."""
        if not self.dropout:
            return stored
        drawn = counter.uniforms(counter.word(seed, "feature dropout", epoch, view), rows, self.width)
        scale = np.float32(1 / (1 - self.dropout))
        dropped: npt.NDArray[Any] = stored.astype(np.float32) * np.where(drawn < self.dropout, np.float32(0), scale)
        return dropped

    def view_of(self, rows: Ints, epoch: int, seed: int, view: int) -> Ints:
        """Return int64 [b]: the stored view of each row, drawn by (seed, row, epoch) and moved on by `view`.

        So the views of a row in one step differ, as long as enough are stored.
        """
        views = self.about.image.views
        drawn = counter.random_words(counter.word(seed, "stored view", epoch), rows)[:, 0]
        return (counter.integers_below(np.full(len(rows), views), drawn) + view) % views

    @cached_property
    def content_hash(self) -> str:
        """`SetDescription.content_hash`; with a share, also of the share."""
        own = self.about.content_hash
        return own if self.chosen is None else digest({"features": own, "rows": self.chosen.tolist()})

    def evaluation(self, name: str) -> FeaturePairs:
        """Open an evaluation set that lies with this one. Raises UserError if it is missing or damaged."""
        return open_feature_set(self.folder / EVALUATION_FOLDER / name)

    def refuse_fewer_views(self, wanted: int) -> None:
        """Raise UserError if fewer views of an image than `wanted` are stored, and no numbers are dropped."""
        if self.about.image.views < wanted and not self.dropout:
            fault = f"{self.about.image.views} stored views of an image, and the method reads {wanted}"
            raise UserError(f"data.features: {fault}; store as many, or set data.feature_dropout")

    def lookup(self) -> TextLookup:
        """Return what finds the features of texts. Raises UserError if there are none."""
        return TextLookup(self)

    def whole_rows(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
        """Map rows of these pairs to rows of the arrays."""
        return rows if self.chosen is None else self.chosen[rows]

    def _views(self, rows: npt.NDArray[np.integer[Any]], views: Ints) -> npt.NDArray[Any]:
        features: npt.NDArray[Any] = np.asarray(self.image_array[self.whole_rows(rows), views])
        return features

    def _refuse_shifted(self) -> None:
        """Compare a sample of both arrays with the digests that bind each row to its key or text. Raises UserError."""
        for row in evenly_spaced(self.about.rows):
            key, expected = self._keys[row], self._rows["image_digest"][row].as_py()
            if row_digest(key.encode(), self.image_array[row]) != expected:
                raise _shifted(self.folder / IMAGE, f"row {row}, key {key!r}: the features are not of this key")
        if self.texts is not None:
            for hashed, row, expected in self.texts.index[:, evenly_spaced(self.about.texts)].T:
                if row_digest(hash_prefixes([hashed])[0], self.texts.array[row]) != expected:
                    raise _shifted(self.folder / TEXT, f"row {row}: the features are not of this text")


def _shifted(path: Path, fault: str) -> UserError:
    return UserError(f"{path}: {fault}; the array was changed, shifted or swapped, {RENEW_SET}")


class TextLookup:
    """Captions and prompts -> their stored features: those of a training set, then those of its evaluation sets.

    It takes the place of a tokenizer.
    """

    def __init__(self, pairs: FeaturePairs) -> None:
        """Raises UserError if the set has no text features."""
        if pairs.texts is None:
            raise UserError(f"{pairs.folder}: has no text features; extract the set again with --texts MODEL")
        self._pairs, self.texts = pairs, pairs.texts
        self.size = self.context_length = int(pairs.texts.array.shape[1])  #: Q

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the place alone: another process maps the same files."""
        return TextLookup, (self._pairs,)

    def __call__(self, texts: list[str]) -> Tensor:
        """n strings -> [n, Q] of the stored type. Raises UserError with a text that no set has."""
        import torch

        features = np.empty((len(texts), self.size), self.texts.array.dtype)
        left = np.arange(len(texts))  # those that no table had so far
        for table in self._tables():
            rows = table.find([texts[place] for place in left.tolist()])
            features[left[rows >= 0]] = table.array[rows[rows >= 0]]
            left = left[rows < 0]
            if not len(left):
                return torch.from_numpy(features)
        raise self.texts.lacks(texts[int(left[0])])

    def check_training(self, texts: list[str]) -> None:
        """Raise UserError for a text that the set lacks: a run's id holds its texts, not those of evaluation sets."""
        self.texts.rows(texts)

    def _tables(self) -> Iterator[TextFeatures]:
        """Yield the set's texts, then those of its evaluation sets. UserError if an encoder of other width made one."""
        yield self.texts
        for folder in self._others:
            table = open_feature_set(folder).texts
            if table is not None and table.array.shape[1] != self.size:
                wide = f"its texts have {table.array.shape[1]} numbers, those of {self._pairs.folder} {self.size}"
                raise UserError(f"{folder}: {wide}; extract both with the same --texts MODEL")
            if table is not None:
                yield table

    @cached_property
    def _others(self) -> list[Path]:
        return description.evaluation_folders(self._pairs.folder)


def map_features(path: Path, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """Map a .npy file from the disk. Raises UserError if it has another shape or type, or is damaged."""
    try:
        array = reading.map_array(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}; {RENEW_SET}") from error
    if array.shape != shape or array.dtype != np.dtype(dtype).newbyteorder("<") or not array.flags.c_contiguous:
        fault = f"holds {array.dtype.name} {list(array.shape)}, {description.NAME} says {dtype} {list(shape)}"
        raise UserError(f"{path}: {fault}; {RENEW_SET}")
    return array


def open_feature_set(folder: Path | str, share: float = 1.0, dropout: float = 0.0) -> FeaturePairs:
    """Open a feature set as `FeaturePairs` does, once a process for each time of change; errors as there."""
    path = Path(folder).absolute()
    about = path / description.NAME
    return _load(path, share, dropout, about.stat().st_mtime_ns if about.is_file() else 0)


@lru_cache(maxsize=64)
def _load(folder: Path, share: float, dropout: float, _changed: int) -> FeaturePairs:
    return FeaturePairs(folder, share, dropout)


def reopen_feature_set(folder: Path, share: float, dropout: float, expected: str) -> FeaturePairs:
    """Open pickled pairs in another process. Raises UserError if the set was changed since."""
    pairs = FeaturePairs(folder, share, dropout)
    if pairs.content_hash != expected:
        raise UserError(f"{folder}: was changed while in use; start the command again")
    return pairs
