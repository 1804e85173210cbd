"""Output folders of clip-retrieval: img_emb/img_emb_*.npy, text_emb/text_emb_*.npy, metadata/metadata_*.parquet.

layout: github.com/rom1504/clip-retrieval@07d747b clip_retrieval/clip_inference/writer.py (OutputSink)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from bench.data.features.imports import Imported, Request
from bench.data.features.rows import CAPTIONS
from bench.data.features.stack import Stack, open_array, stacked
from bench.data.features.tables import caption_column, key_column, read_table
from bench.errors import UserError

KEYS = ("key", "image_path")  #: img2dataset's key; of a webdataset, image_path is the sample's key


def clip_retrieval(request: Request) -> Imported:
    """Read all parts in the order of their numbers. Keys are img2dataset's, or another column that is asked for.

    Raises UserError if a part lacks one of its files, or has another number of rows in one of them.
    """
    folder = request.source
    metadata = _numbered(folder, "metadata", "parquet")
    if not metadata:
        raise UserError(f"{folder}: holds no metadata/metadata_*.parquet; clip-retrieval's `inference` writes them")
    stacks: dict[str, Stack | None] = {}
    tables = {number: read_table(path) for number, path in metadata.items()}
    for kind in ("img_emb", "text_emb"):
        stacks[kind] = _stack(folder, kind, metadata, tables)
    key = request.key or next((name for name in KEYS if name in tables[min(tables)].column_names), KEYS[0])
    keys, captions = [], []
    for number, path in metadata.items():
        keys += key_column(path, tables[number], key)
        captions.append(caption_column(path, tables[number], request.caption))
    title = f"{folder.name}, embeddings of clip-retrieval"
    return Imported(title, keys, pa.concat_arrays(captions).cast(CAPTIONS), stacks["img_emb"], stacks["text_emb"])


def _stack(folder: Path, kind: str, metadata: dict[int, Path], tables: dict[int, Any]) -> Stack | None:
    """Return the embeddings of a kind; None if there are none."""
    files = _numbered(folder, kind, "npy")
    if not files:
        return None
    for number in sorted(metadata.keys() ^ files.keys()):
        lacking, there = (kind, metadata[number]) if number in metadata else ("metadata", files[number])
        raise UserError(f"{folder}: there is {there.name}, but no part {number} of {lacking}; copy all parts")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for number, path in files.items():
        array = arrays[str(path)] = open_array(str(path))
        if len(array) != len(tables[number]):
            rows = f"{len(array):,} rows, {metadata[number].name} has {len(tables[number]):,}"
            raise UserError(f"{path}: has {rows}; they must be equally many")
    return stacked(str(folder / kind), arrays)


def _numbered(folder: Path, kind: str, suffix: str) -> dict[int, Path]:
    """Map the numbers of parts to files, in rising order."""
    pattern = re.compile(rf"{kind}_([0-9]+)\.{suffix}")
    matches = ((pattern.fullmatch(path.name), path) for path in (folder / kind).glob(f"{kind}_*.{suffix}"))
    return dict(sorted((int(match[1]), path) for match, path in matches if match))
