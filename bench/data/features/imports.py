"""`bench features convert`: external feature arrays, sorted by key and bound to their keys and texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench.arrays import Ints, ragged
from bench.data.features import writing
from bench.data.features.about import Encoder, SetDescription
from bench.data.features.stack import Stack
from bench.data.features.tables import Imported
from bench.data.features.texts import SHOWN_LETTERS, TextPlan
from bench.data.features.writing import Array, Content
from bench.data.strings import Strings
from bench.errors import UserError

MIN_COSINE = 0.99  #: least cosine between features of equal captions; rounding of a model is far smaller
BLOCK_ROWS = 1 << 12  #: rows that are compared at a time
Dtype = Literal["float16", "float32"]


def save(out: Path, imported: Imported, name: str, dtype: Dtype | None = None, command: str = "") -> SetDescription:
    """Write imported rows as the feature set `out`, in byte order of their keys.

    dtype: of the stored arrays; by default theirs, and float32 for 64 bits. Raises UserError if counts do not fit, keys
    repeat, or equal captions have different features, which is how a shifted text array shows.
    """
    writing.refuse_occupied(out)
    n, total = len(imported.keys), len(imported.captions.flatten())
    for stack, count, rows in ((imported.image, n, "keys"), (imported.text, total, "captions")):
        if stack is not None and len(stack) != count:
            raise UserError(f"{stack.name}: has {len(stack):,} rows for {count:,} {rows}; the numbers must be equal")
    keys = pa.array(imported.keys, pa.large_string())
    order = pc.sort_indices(keys).to_numpy().astype(np.int64)
    captions = imported.captions.take(pa.array(order))
    ordered = Strings(keys.take(pa.array(order)))
    image = _images(imported.image, order, dtype)
    content = Content(name, f"{imported.title}.", ordered, captions, image, command=command or "bench features")
    if imported.text is not None:
        counts = pc.list_value_length(imported.captions).to_numpy(zero_copy_only=False).astype(np.int64)
        places, _ = ragged((np.cumsum(counts) - counts)[order], counts[order])  # of each caption in the files
        plan = TextPlan.of(captions)
        _refuse_different(imported.text, plan, places)
        content = replace(content, plan=plan, text=_texts(imported.text, plan, places, dtype))
    return writing.write_feature_set(out, content)


def _images(stack: Stack, order: Ints, dtype: Dtype | None) -> Array:
    views, width, kind = stack.shape[0] if len(stack.shape) == 2 else 1, stack.shape[-1], _stored(stack, dtype)

    def rows(start: int, stop: int) -> npt.NDArray[Any]:
        return _cast(stack.take(order[start:stop]).reshape(stop - start, views, width), kind)

    return Array(Encoder(stack.name, "", "as imported", kind, width, views), rows)


def _texts(stack: Stack, plan: TextPlan, places: Ints, dtype: Dtype | None) -> Array:
    if len(stack.shape) != 1:
        raise UserError(f"{stack.name}: has {list(stack.shape)} numbers per row; a text's features are one vector")
    kind, first = _stored(stack, dtype), places[plan.first]
    encoder = Encoder(stack.name, "", "as imported", kind, stack.shape[0])
    return Array(encoder, lambda start, stop: _cast(stack.take(first[start:stop]), kind))


def _stored(stack: Stack, dtype: Dtype | None) -> Dtype:
    return dtype or ("float16" if stack.dtype == np.float16 else "float32")


def _cast(values: npt.NDArray[Any], kind: Dtype) -> npt.NDArray[Any]:
    with np.errstate(over="ignore"):  # what becomes infinite is refused when it is written
        return values.astype(kind)


def _refuse_different(stack: Stack, plan: TextPlan, places: Ints) -> None:
    """Raise UserError if equal captions have features that point elsewhere."""
    first = plan.first[plan.rows]
    again = np.flatnonzero(first != np.arange(len(first)))
    for start in range(0, len(again), BLOCK_ROWS):
        at = again[start : start + BLOCK_ROWS]
        one, other = (stack.take(places[where]).astype(np.float64) for where in (at, first[at]))
        norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        cosine = np.where((one == other).all(1), 1.0, (one * other).sum(1) / np.maximum(norms, 1e-30))
        for wrong in np.flatnonzero(~(cosine >= MIN_COSINE)).tolist():
            text, rows = plan.strings[int(at[wrong])].as_py(), sorted((places[at[wrong]], places[first[at[wrong]]]))
            fault = f"rows {rows[0]} and {rows[1]} belong to the same caption {text[:SHOWN_LETTERS]!r}"
            raise UserError(
                f"{stack.name}: {fault}, but their features have cosine {cosine[wrong]:.2f}; "
                "the array is shifted against the captions, or made of other texts"
            )
