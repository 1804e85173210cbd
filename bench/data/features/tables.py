"""A Parquet file with a column of keys and one of captions; its features are columns, .npy or .safetensors files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import reading
from bench.data.features.imports import Imported, Request
from bench.data.features.rows import CAPTIONS
from bench.data.features.stack import Stack, column_array, open_array
from bench.errors import UserError, nearest, one_line

IMAGE, TEXT = "image", "text"  #: columns that hold features if no file is named


def table(request: Request) -> Imported:
    """Read keys, captions and features. An array has a row for each row of the table, texts one for each caption.

    Raises UserError if a file or a column is missing or damaged, or there are no features.
    """
    rows = read_table(request.source)
    keys = key_column(request.source, rows, request.key or "key")
    captions = caption_column(request.source, rows, request.caption)
    image, text = (_stack(request.source, rows, *one) for one in ((request.images, IMAGE), (request.texts, TEXT)))
    if image is None and text is None:
        fix = f"name them with --images and --texts, or call columns {IMAGE} and {TEXT}"
        raise UserError(f"{request.source}: has no features; {fix}")
    return Imported(f"{request.source.name}, a table", keys, captions, image, text)


def read_table(path: Path) -> Any:
    """Read a Parquet file as a pyarrow Table. Raises UserError if it is missing or damaged."""
    try:
        return reading.parquet(path)
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or error, 200)
        raise UserError(f"{path}: cannot be read as Parquet: {reason}") from error


def key_column(path: Path, rows: Any, name: str) -> list[str]:
    """Return the keys of a table as text. Raises UserError if the column is missing, has gaps or other values."""
    column = _column(path, rows, name, "--key")
    if not (_text(column.type) or pa.types.is_integer(column.type)):
        raise UserError(f"{path}: {name}: is a column of {column.type}; keys are texts or whole numbers")
    keys: list[str] = column.cast(pa.large_string()).to_pylist()
    return keys


def caption_column(path: Path, rows: Any, name: str) -> Any:
    """Return the captions of a table as a pyarrow Array of lists. Raises UserError as `key_column` does."""
    column = _column(path, rows, name, "--caption")
    if _text(column.type):
        texts = pa.array(column.to_pylist(), pa.large_string())
        return pa.ListArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), texts).cast(CAPTIONS)
    lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not lists or not _text(column.type.value_type):
        raise UserError(f"{path}: {name}: is a column of {column.type}; captions are texts or lists of texts")
    texts = pa.array(column.to_pylist(), CAPTIONS)
    if texts.flatten().null_count:
        raise UserError(f"{path}: {name}: a caption is null; leave it out")
    return texts


def _stack(path: Path, rows: Any, given: str | None, default: str) -> Stack | None:
    """Return the features in a file or a column."""
    name = given or (default if default in rows.column_names else None)
    if name is None:
        return None
    if name in rows.column_names:
        return Stack(f"{path}: {name}", (column_array(path, name, rows[name]),))
    return Stack(name, (open_array(name),))


def _column(path: Path, rows: Any, name: str, option: str) -> Any:
    if name not in rows.column_names:
        raise UserError(f"{path}: has no column {name}; name one with {option}{nearest(name, rows.column_names)}")
    column = rows[name]
    if column.null_count:
        row = next(number for number, value in enumerate(column.to_pylist()) if value is None)
        raise UserError(f"{path}: {name}: row {row} is null; leave the row out")
    return column


def _text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
