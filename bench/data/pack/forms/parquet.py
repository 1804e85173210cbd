"""Parquet as Hugging Face datasets write it: a column of images {bytes, path} and one of texts or lists of texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.data.pack.sample import Options, Sample
from bench.errors import UserError, nearest

TEXTS = ("caption", "captions", "text", "texts", "title")  #: columns that hold captions, the first that is there


def fits(path: Path) -> bool:
    """See `bench.data.pack.forms.Form`."""
    return bool(_files(path))


def read(path: Path, options: Options) -> Iterator[Sample]:
    """See `bench.data.pack.forms.Form`. Raises UserError for a column that is missing or of another type."""
    for file in _files(path):
        with pq.ParquetFile(file) as table:
            schema = table.schema_arrow
            image = options.image_column or "image"
            text = options.caption_column or next((name for name in TEXTS if name in schema.names), TEXTS[0])
            wanted = [text, *filter(None, [options.key_column])]
            for column in (image, *wanted):
                if column not in schema.names:
                    raise UserError(f"{file}: has no column {column!r}{nearest(column, schema.names)}")
            kind = schema.field(image).type
            if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
                raise UserError(f"{file}: column {image!r} is {kind}; it should be a struct with the field bytes")
            row = 0
            for batch in table.iter_batches(columns=wanted):
                for entry in batch.to_pylist():
                    key = str(entry[options.key_column]).replace(".", "_") if options.key_column else ""
                    yield Sample(key, _captions(entry[text]), str(file), row, image)
                    row += 1


def _captions(value: Any) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    return tuple("" if text is None else str(text) for text in texts)


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
