"""The table of a feature set: keys, captions, text rows, digests and labels.

rows.parquet is the file for other programs; rows.arrow holds the same table uncompressed, so that a row is read without
reading the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.arrays import Ints
from bench.data.features.texts import TextHashes
from bench.data.strings import TEXT_LISTS, Strings

LABEL_PREFIX = "label."  #: before a label's name in the name of its column
SCHEMA = pa.schema(
    [
        ("key", pa.large_string()),
        ("captions", TEXT_LISTS),
        ("text_rows", pa.list_(pa.int64())),  #: the row of text.npy of each caption; empty without text.npy
        ("image_digest", pa.uint64()),  #: of key and features
    ]
)


def rows_table(
    keys: Strings, captions: Any, text_rows: Ints | None, digests: TextHashes, labels: Mapping[str, Ints]
) -> Any:
    """Return the pyarrow Table of N rows.

    captions: pyarrow Array of N lists; text_rows: [T] by caption, None without text features; digests: [N].
    """
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(pc.list_value_length(captions))])
    none = pa.array(np.zeros(len(keys) + 1, np.int32))
    flat = np.empty(0, np.int64) if text_rows is None else text_rows
    columns = [
        keys.array,
        captions,
        pa.ListArray.from_arrays(none if text_rows is None else ends, pa.array(flat, pa.int64())),
        pa.array(digests, pa.uint64()),
        *(pa.array(values, pa.int64()) for values in labels.values()),
    ]
    schema = pa.schema([*SCHEMA, *((LABEL_PREFIX + name, pa.int64()) for name in labels)])
    return pa.table(columns, schema=schema).combine_chunks()


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
