"""The rows of a feature set: keys, captions, text rows, digests and labels, mapped from the disk.

rows.parquet is the file for other programs; rows.arrow holds the same table uncompressed, so that a row is read without
reading the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.arrays import Ints
from bench.data.features.about import AGAIN, About
from bench.data.features.texts import Hashes
from bench.data.strings import Strings
from bench.errors import UserError, one_line

LABEL = "label."  #: before a label's name in the name of its column
CAPTIONS = pa.list_(pa.large_string())
SCHEMA = pa.schema(
    [
        ("key", pa.large_string()),
        ("captions", CAPTIONS),
        ("text_rows", pa.list_(pa.int64())),  #: the row of text.npy of each caption; empty without text.npy
        ("image_digest", pa.uint64()),  #: of key and features; null without image.npy
    ]
)


def schema(labels: Sequence[str]) -> Any:
    """Return the schema of a set with these labels."""
    return pa.schema([*SCHEMA, *((LABEL + name, pa.int64()) for name in labels)])


def table(
    keys: Strings, captions: Any, text_rows: Ints | None, digests: Hashes | None, labels: Mapping[str, Ints]
) -> Any:
    """Return the pyarrow Table of N rows.

    captions: pyarrow Array of N lists; text_rows: [T] by caption, None without text features; digests: [N], None
    without image features.
    """
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(pc.list_value_length(captions))])
    none = pa.array(np.zeros(len(keys) + 1, np.int32))
    flat = np.empty(0, np.int64) if text_rows is None else text_rows
    columns = [
        keys.array,
        captions,
        pa.ListArray.from_arrays(none if text_rows is None else ends, pa.array(flat, pa.int64())),
        pa.nulls(len(keys), pa.uint64()) if digests is None else pa.array(digests, pa.uint64()),
        *(pa.array(values, pa.int64()) for values in labels.values()),
    ]
    return pa.table(columns, schema=schema(list(labels))).combine_chunks()


def rows_hash(keys: Strings, captions: Any, labels: Mapping[str, Ints]) -> str:
    """Return a sha256 over keys, captions and labels. It does not depend on how Arrow holds them."""
    total = hashlib.sha256(repr((len(keys), sorted(labels))).encode())
    texts = captions.flatten()
    for strings in (keys, Strings(texts)):
        total.update(pc.binary_length(strings.array).to_numpy(zero_copy_only=False).astype("<i8").tobytes())
        for piece in strings.joined(""):
            total.update(piece)
    total.update(pc.list_value_length(captions).to_numpy(zero_copy_only=False).astype("<i8").tobytes())
    for name in sorted(labels):
        total.update(labels[name].astype("<i8").tobytes())
    return total.hexdigest()


class Rows:
    """The table of a set. Nothing is read before it is needed."""

    def __init__(self, path: Path, about: About) -> None:
        """Map rows.arrow. Raises UserError unless columns, counts, offsets and the order of keys are right."""
        self.path, self.about = path, about
        try:
            batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
            _check(batch, about)
        except (OSError, ValueError, IndexError, pa.ArrowException) as error:
            raise UserError(f"{path}: cannot be read ({one_line(error, 200)}); {AGAIN}") from error
        self.batch = batch

    @cached_property
    def keys(self) -> Strings:
        """The N keys in byte order."""
        return Strings(self.batch["key"])

    @cached_property
    def captions(self) -> Any:
        """pyarrow Array of N lists of strings."""
        return self.batch["captions"]

    @cached_property
    def text_rows(self) -> Any:
        """pyarrow Array of N lists of text rows."""
        return self.batch["text_rows"]

    @property
    def image_digests(self) -> Hashes:
        """`bench.data.features.texts.row_digest` of each row, uint64 [N]."""
        digests: Hashes = self.batch["image_digest"].to_numpy(zero_copy_only=False)
        return digests

    @cached_property
    def labels(self) -> dict[str, Ints]:
        """Label name -> int64 [N]."""
        names = self.about.classes
        return {name: self.batch[LABEL + name].to_numpy(zero_copy_only=False).astype(np.int64) for name in names}


def _check(batch: Any, about: About) -> None:
    """Raise ValueError unless the batch has the columns and counts of `about`, and all strings lie in their buffers."""
    if not batch.schema.equals(schema(list(about.classes))):
        raise ValueError(f"its columns are {', '.join(batch.schema.names)}, or have other types")
    if len(batch) != about.rows:
        raise ValueError(f"it has {len(batch):,} rows and features.json says {about.rows:,}")
    batch.validate(full=True)  # offsets, and UTF-8
    if batch["key"].null_count or batch["captions"].null_count or batch["captions"].values.null_count:
        raise ValueError("a key, a list of captions or a caption is null")
    counts = pc.list_value_length(batch["captions"])
    total = pc.sum(counts).as_py()
    if pc.min(counts).as_py() < 1 or total != about.captions:
        raise ValueError(f"it has {total:,} captions and features.json says {about.captions:,}, one a row at least")
    if about.text and not counts.equals(pc.list_value_length(batch["text_rows"])):
        raise ValueError("text_rows: a row has another number of text rows than of captions")
    keys = batch["key"]
    if not pc.all(pc.less(keys[:-1], keys[1:]), min_count=0).as_py():
        raise ValueError("key: keys are not in byte order, or one stands twice")
    for label, names in about.classes.items():
        values = batch[LABEL + label]
        if values.null_count or pc.min(values).as_py() < 0 or pc.max(values).as_py() >= len(names):
            raise ValueError(f"{LABEL}{label}: a label lies outside 0 to {len(names) - 1}")
