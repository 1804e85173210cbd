"""Writes a feature set: whole or not at all, and the same bytes from the same content."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.arrays import Ints
from bench.data.features import about as description
from bench.data.features.about import IMAGE, INDEX, MAPPED, PROMPTS, ROWS, TEXT, VERSION, Encoder, File, SetDescription
from bench.data.features.rows import rows_hash, rows_table
from bench.data.features.texts import TextHashes, TextPlan, hash_prefixes, row_digests
from bench.data.strings import TEXT_LISTS, Strings
from bench.errors import UserError, one_line
from bench.hashing import file_hash
from bench.store import files

WRITE_BYTES = 1 << 22  #: of an array that are written at a time
GROUP_ROWS = 1 << 16  #: rows of a Parquet row group


@dataclass(frozen=True)
class Array:
    """Source of the rows of an array."""

    encoder: Encoder
    read: Callable[[int, int], npt.NDArray[Any]]  #: maps start, stop to rows [stop - start, views, width]; texts [., Q]


@dataclass(frozen=True)
class Content:
    """Everything that a feature set is made from. Rows are in byte order of their keys."""

    name: str
    description: str
    keys: Strings
    captions: Any  #: pyarrow Array of N lists of strings
    image: Array
    text: Array | None = None  #: in the order of `plan`
    plan: TextPlan | None = None  #: of the captions and prompts, if there is `text`
    labels: Mapping[str, Ints] = field(default_factory=dict)
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    templates: tuple[str, ...] = ()
    prompts: Sequence[str] = ()
    command: str = "bench.data.features.writing.write_feature_set"  #: what makes the set


def write_feature_set(out: Path, content: Content) -> SetDescription:
    """Write a feature set to the folder `out`, which appears when it is complete.

    Raises UserError if `out` already exists, keys repeat or are out of order, a row has no caption, a label lies
    outside its classes, an array has another shape or type than its encoder says, or holds a number that is not finite.
    """
    refuse_occupied(out)
    _check(content)
    try:
        with files.scratch(out) as fresh:
            fresh.mkdir()
            about = _write(fresh, content)
            if not files.publish(fresh, out):
                raise UserError(f"{out}: another process made it meanwhile")
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {one_line(error)}") from error
    return about


def refuse_occupied(out: Path) -> None:
    """Raise UserError if there is something at `out`."""
    if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out}: already exists; give a folder that does not exist, or remove it")


def _check(content: Content) -> None:
    keys, captions = content.keys, content.captions
    if not len(keys):
        raise UserError(f"{content.name}: there is no row")
    if len(captions) != len(keys) or captions.type != TEXT_LISTS:
        raise UserError(f"{content.name}: {len(keys):,} keys, but {len(captions):,} lists of captions")
    array = keys.array.combine_chunks() if hasattr(keys.array, "chunks") else keys.array
    rising = pc.less(array[:-1], array[1:]).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(~rising).tolist():
        before, after = keys[row], keys[row + 1]
        fault = "is a duplicate; keys must be unique" if before == after else f"follows {before!r}; sort rows by key"
        raise UserError(f"{content.name}: key {after!r} {fault}")
    counts = pc.list_value_length(captions).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(counts == 0).tolist():
        raise UserError(f"{content.name}: key {keys[row]!r} has no caption; every pair needs at least one")
    for label, values in content.labels.items():
        if len(values) != len(keys) or values.min() < 0 or values.max() >= len(content.classes[label]):
            raise UserError(f"{content.name}: labels {label!r}: should be {len(keys):,} indices of classes")


def _write(folder: Path, content: Content) -> SetDescription:
    """Write all files to `folder`."""
    keys, plan, text = content.keys, content.plan if content.text else None, content.text
    source, encoder = content.image, content.image.encoder
    bound = lambda start, stop: [key.encode() for key in keys[start:stop]]  # noqa: E731
    digests = _write_array(folder / IMAGE, source, (len(keys), encoder.views, encoder.width), bound)
    if text and plan:
        hashes, flat = plan.hashes, (len(plan.hashes), text.encoder.width)
        text_digests = _write_array(folder / TEXT, text, flat, lambda start, stop: hash_prefixes(hashes[start:stop]))
        np.save(folder / INDEX, plan.index(text_digests))
    total = len(content.captions.flatten())
    rows = rows_table(keys, content.captions, plan.rows[:total] if plan else None, digests, content.labels)
    form: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True, "row_group_size": GROUP_ROWS}
    pq.write_table(rows, folder / ROWS, use_dictionary=False, **form)
    with pa.OSFile(str(folder / MAPPED), "wb") as file, pa.ipc.new_file(file, rows.schema) as arrow:
        (batch,) = rows.to_batches()  # a single one, so that a row is found by its number
        arrow.write_batch(batch)
    if content.prompts:
        prompts = pa.table({"text": Strings.of(content.prompts).array})
        pq.write_table(prompts, folder / PROMPTS, use_dictionary=False, **form)
    about = SetDescription(
        version=VERSION,
        name=content.name,
        description=content.description,
        made_by=f"{content.command}, bench {version('robust-cl-bench')}",
        rows=len(keys),
        captions=total,
        prompts=len(content.prompts),
        texts=len(plan.hashes) if plan else 0,
        rows_hash=rows_hash(keys, content.captions, content.labels),
        image=encoder,
        text=text.encoder if text else None,
        classes={name: tuple(content.classes[name]) for name in content.labels},
        templates=tuple(content.templates),
        files={path.name: File(path.stat().st_size, file_hash(path)) for path in sorted(folder.iterdir())},
    )
    for name in about.files:
        files.sync(folder / name)
    files.write_bytes(folder / description.NAME, about.to_json())
    return about


def _write_array(
    path: Path, source: Array, shape: tuple[int, ...], prefixes_of: Callable[[int, int], list[bytes]]
) -> TextHashes:
    """Write an array by blocks of rows; return the digest of each row. Raises UserError for a wrong block."""
    dtype = np.dtype(source.encoder.dtype).newbyteorder("<")
    step = max(1, WRITE_BYTES // max(1, dtype.itemsize * int(np.prod(shape[1:]))))
    digests = np.empty(shape[0], np.uint64)
    with open(path, "wb") as file:
        form = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, form)  # type: ignore[no-untyped-call]
        for start in range(0, shape[0], step):
            stop = min(start + step, shape[0])
            block = _checked(source.read(start, stop), (stop - start, *shape[1:]), dtype, source.encoder.name, start)
            digests[start:stop] = row_digests(prefixes_of(start, stop), block)
            file.write(block.data.cast("B") if block.size else b"")
    return digests


def _checked(
    block: npt.NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any], name: str, start: int
) -> npt.NDArray[Any]:
    if block.shape != shape or block.dtype != dtype:
        raise UserError(f"{name}: gives {block.dtype} {list(block.shape)}, not {dtype.name} {list(shape)}")
    finite = np.isfinite(block).reshape(len(block), -1).all(1)
    if not finite.all():
        row = start + int(np.flatnonzero(~finite)[0])
        raise UserError(f"{name}: row {row}: a feature is NaN or infinite; 65,504 is the largest number of float16")
    return np.ascontiguousarray(block)
