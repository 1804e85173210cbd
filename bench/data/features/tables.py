"""External features: a Parquet file with .npy files next to it, or an output folder of clip-retrieval.

layout: github.com/rom1504/clip-retrieval@07d747b clip_retrieval/clip_inference/writer.py (OutputSink):
img_emb/img_emb_*.npy, text_emb/text_emb_*.npy, metadata/metadata_*.parquet
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import reading
from bench.data.features.stack import Stack, open_array, stacked
from bench.data.strings import TEXT_LISTS
from bench.errors import UserError, nearest, one_line

KEYS = ("key", "image_path")  #: img2dataset's key; of a webdataset, clip-retrieval's image_path is the sample's key


@dataclass(frozen=True)
class ImportRequest:
    """Features to import."""

    source: Path  #: a Parquet file, or a folder of clip-retrieval
    images: str | None = None  #: of a Parquet file: a .npy file with a row for each of its rows
    texts: str | None = None  #: the same, with a row for each caption; None trains a text tower from tokens
    key: str | None = None  #: the column of keys
    caption: str = "caption"  #: the column of captions, texts or lists of texts


@dataclass(frozen=True)
class Imported:
    """Rows of another format, in the order of their files."""

    title: str  #: what it is, in words
    keys: Sequence[str]  #: n
    captions: Any  #: pyarrow Array of n lists of strings
    image: Stack  #: n rows: [width], or [views, width]
    text: Stack | None = None  #: a row [width] for each caption


def read_import(request: ImportRequest) -> Imported:
    """Read keys, captions and features. Raises UserError if a file or a column is missing, damaged or does not fit."""
    if request.source.is_dir():
        return _clip_retrieval(request)
    rows = _table(request.source)
    keys = _keys(request.source, rows, request.key or "key")
    captions = _captions(request.source, rows, request.caption)
    image, text = (Stack(file, (open_array(file),)) if file else None for file in (request.images, request.texts))
    if image is None:
        raise UserError(f"{request.source}: has no image features; name their file with --images")
    return Imported(f"{request.source.name}, a table", keys, captions, image, text)


def _clip_retrieval(request: ImportRequest) -> Imported:
    """Read all parts in the order of their numbers."""
    folder = request.source
    metadata = _numbered(folder, "metadata", "parquet")
    if not metadata:
        raise UserError(f"{folder}: holds no metadata/metadata_*.parquet; clip-retrieval's `inference` writes them")
    tables = {number: _table(path) for number, path in metadata.items()}
    image, text = (_stack(folder, kind, metadata, tables) for kind in ("img_emb", "text_emb"))
    if image is None:
        raise UserError(f"{folder}: holds no img_emb/img_emb_*.npy; copy the features of the images too")
    key = request.key or next((name for name in KEYS if name in tables[min(tables)].column_names), KEYS[0])
    keys = [one for number, path in metadata.items() for one in _keys(path, tables[number], key)]
    captions = [_captions(path, tables[number], request.caption) for number, path in metadata.items()]
    title = f"{folder.name}, embeddings of clip-retrieval"
    return Imported(title, keys, pa.concat_arrays(captions).cast(TEXT_LISTS), image, text)


def _stack(folder: Path, kind: str, metadata: dict[int, Path], tables: dict[int, Any]) -> Stack | None:
    """Return the embeddings of a kind; None if there are none."""
    files = _numbered(folder, kind, "npy")
    if not files:
        return None
    for number in sorted(metadata.keys() ^ files.keys()):
        lacking, there = (kind, metadata[number]) if number in metadata else ("metadata", files[number])
        raise UserError(f"{folder}: there is {there.name}, but no part {number} of {lacking}; copy all parts")
    arrays = {str(path): open_array(str(path)) for path in files.values()}
    for number, path in files.items():
        if len(arrays[str(path)]) != len(tables[number]):
            rows = f"{len(arrays[str(path)]):,} rows, {metadata[number].name} has {len(tables[number]):,}"
            raise UserError(f"{path}: has {rows}; the numbers must be equal")
    return stacked(str(folder / kind), arrays)


def _numbered(folder: Path, kind: str, suffix: str) -> dict[int, Path]:
    """Map the numbers of parts to files, in rising order."""
    pattern = re.compile(rf"{kind}_([0-9]+)\.{suffix}")
    matches = ((pattern.fullmatch(path.name), path) for path in (folder / kind).glob(f"{kind}_*.{suffix}"))
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def _table(path: Path) -> Any:
    try:
        return reading.read_parquet(path)
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or error, 200)
        raise UserError(f"{path}: cannot be read as Parquet: {reason}") from error


def _keys(path: Path, rows: Any, name: str) -> list[str]:
    column = _column(path, rows, name, "--key")
    if not (_text(column.type) or pa.types.is_integer(column.type)):
        raise UserError(f"{path}: {name}: is a column of {column.type}; keys are texts or whole numbers")
    keys: list[str] = column.cast(pa.large_string()).to_pylist()
    return keys


def _captions(path: Path, rows: Any, name: str) -> Any:
    """Return a pyarrow Array of lists."""
    column = _column(path, rows, name, "--caption")
    if _text(column.type):
        return pa.array([[text] for text in column.to_pylist()], TEXT_LISTS)
    lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not lists or not _text(column.type.value_type):
        raise UserError(f"{path}: {name}: is a column of {column.type}; captions are texts or lists of texts")
    texts = pa.array(column.to_pylist(), TEXT_LISTS)
    if texts.flatten().null_count:
        raise UserError(f"{path}: {name}: a caption is null; omit it")
    return texts


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
