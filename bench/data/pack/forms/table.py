"""A CSV or TSV with a path and a caption in each line. Lines of the same image are captions of one pair."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench import reading
from bench.data.pack.sample import Options, Sample
from bench.errors import UserError, nearest


def fits(_: Path) -> bool:
    """See `bench.data.pack.forms.Form`."""
    return True


def read(path: Path, options: Options) -> Iterator[Sample]:
    """See `bench.data.pack.forms.Form`. Raises UserError for a column that is missing."""
    image, caption = options.image_column or "filepath", options.caption_column or "title"
    base = Path(options.images or path.parent)
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline(reading.TEXT_BYTES)
        file.seek(0)
        lines = iter(partial(file.readline, reading.TEXT_BYTES), "")  # csv refuses a piece of a longer one
        rows = csv.DictReader(lines, delimiter=options.separator or ("\t" if "\t" in first else ","))
        for column in filter(None, (image, caption, options.key_column)):
            if column not in (rows.fieldnames or ()):
                raise UserError(f"{path}:1: has no column {column!r}{nearest(column, rows.fieldnames or ())}")
        grouped: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            key = row[options.key_column] or "" if options.key_column else ""
            grouped.setdefault((key.replace(".", "_"), row[image] or ""), []).append(row[caption] or "")
    for (key, name), captions in grouped.items():
        yield Sample(key, tuple(captions), str(base / name))
