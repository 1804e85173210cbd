"""Lists the pairs of an input of `bench data shard`: a table, COCO's or Karpathy's JSON, Parquet, or a folder."""

from __future__ import annotations

import csv
import errno
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench import reading
from bench.data.pack.writing import ListedSample, PackOptions, key_of
from bench.data.shards.scan import IMAGES
from bench.errors import UserError, nearest, one_line

#: of lists, by their endings: CC12M's table has 2.7 GB, and is read by lines; Karpathy's JSON of COCO has 144 MB
LIST_BYTES = {".csv": 1 << 32, ".tsv": 1 << 32, ".json": 1 << 29}
TEXTS = ("caption", "captions", "text", "texts", "title")  #: columns of Parquet with captions, the first that is there
#: what a reader raises for a file that is something else
READ_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, csv.Error)


def list_samples(path: Path, options: PackOptions) -> list[ListedSample]:
    """Return all samples of an input, in its order. Raises UserError if it cannot be read or has none."""
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    known = {".csv": _table, ".tsv": _table, ".json": _json, ".parquet": _parquet, "/": _folder}
    ending = path.suffix.lower()
    if path.is_dir():  # img2dataset writes Parquet of metadata beside its images
        ending = ".parquet" if any(path.rglob("*.parquet")) and not any(_images(path)) else "/"
    if (read := known.get(ending)) is None:
        raise UserError(f"{path}: should be a .csv, .tsv, .json or .parquet, or a folder of images or Parquet")
    if ending != ".json":
        _refuse_splits(path, options)
    try:
        _refuse_endless(path)
        listed = list(read(path, options))
    except READ_ERRORS as error:
        raise UserError(f"{path}: cannot be read: {type(error).__name__}: {one_line(error, 200)}") from error
    if not listed:
        raise UserError(f"{path}: holds no pairs{' of these splits' if options.splits else ''}")
    return listed


def _refuse_splits(path: Path, options: PackOptions) -> None:
    if options.splits:
        raise UserError(f"--split {options.splits[0]}: {path} has no splits; only Karpathy's JSON has")


def _refuse_endless(path: Path) -> None:
    """Raise OSError for what would block or be read without end: a FIFO, a device, a list of gigabytes."""
    if path.is_dir():
        return
    with reading.open_file(path) as file:
        most = LIST_BYTES.get(path.suffix.lower())
        if most is not None and os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes; cut it into several", str(path))


def _table(path: Path, options: PackOptions) -> Iterator[ListedSample]:
    """Read a path and a caption in each line, by tabs or commas. Lines of the same image are captions of one pair."""
    image, caption = options.image_column or "filepath", options.caption_column or "title"
    base = Path(options.images or path.parent)
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline(reading.TEXT_BYTES)
        file.seek(0)
        lines = iter(partial(file.readline, reading.TEXT_BYTES), "")  # csv refuses a piece of a longer one
        rows = csv.DictReader(lines, delimiter="\t" if "\t" in first else ",", strict=True)
        for column in filter(None, (image, caption, options.key_column)):
            _need(f"{path}:1", column, rows.fieldnames or ())
        grouped: dict[tuple[str, str], list[str]] = {}
        for row in _whole_rows(path, rows):
            key = row[options.key_column] or "" if options.key_column else ""
            grouped.setdefault((key.replace(".", "_"), row[image] or ""), []).append(row[caption] or "")
    for (key, name), captions in grouped.items():
        yield ListedSample(key, tuple(captions), str(base / name))


def _whole_rows(path: Path, rows: csv.DictReader[str]) -> Iterator[dict[str, str | None]]:
    """Yield the rows. Raises UserError for one that has more fields than columns, or whose quotes do not match."""
    fix = "put a caption that has the delimiter or a double quote in double quotes, and double those that are in it"
    try:
        for row in rows:
            if None in row:
                raise UserError(f"{path}:{rows.reader.line_num}: has more fields than there are columns; {fix}")
            yield row
    except csv.Error as error:
        raise UserError(f"{path}:{rows.reader.line_num}: {error}; {fix}") from error


def _json(path: Path, options: PackOptions) -> Iterator[ListedSample]:
    """Read COCO's captions (images, annotations), or Karpathy's (images with sentences, of the chosen splits)."""
    with path.open(encoding="utf-8") as file:
        content = json.load(file)
    images, base = content["images"], Path(options.images or path.parent)
    if "annotations" in content:
        _refuse_splits(path, options)
        captions = defaultdict[int, list[str]](list)
        for annotation in content["annotations"]:
            captions[annotation["image_id"]].append(_text(annotation["caption"]))
        for image in images:
            name = str(image["file_name"])
            yield ListedSample(key_of(name), tuple(captions[image["id"]]), str(base / name))
        return
    known = {str(image["split"]) for image in images}
    for split in options.splits:
        if split not in known:
            raise UserError(f"--split {split}: no image of {path} has it{nearest(split, known)}")
    for image in images:
        if not options.splits or image["split"] in options.splits:
            name = "/".join(filter(None, (image.get("filepath", ""), image["filename"])))
            yield ListedSample(key_of(name), tuple(_text(one["raw"]) for one in image["sentences"]), str(base / name))


def _parquet(path: Path, options: PackOptions) -> Iterator[ListedSample]:
    """Read a column of images {bytes, path} and one of texts or lists of texts, as Hugging Face datasets write them."""
    for file in sorted(path.rglob("*.parquet")) if path.is_dir() else [path]:
        with pq.ParquetFile(file) as table:
            schema = table.schema_arrow
            image = options.image_column or "image"
            text = options.caption_column or next((name for name in TEXTS if name in schema.names), TEXTS[0])
            wanted = [text, *filter(None, [options.key_column])]
            for column in (image, *wanted):
                _need(str(file), column, schema.names)
            kind = schema.field(image).type
            if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
                raise UserError(f"{file}: column {image!r} is {kind}; it should be a struct with the field bytes")
            row = 0
            for batch in table.iter_batches(columns=wanted):
                for entry in batch.to_pylist():
                    key = str(entry[options.key_column]).replace(".", "_") if options.key_column else ""
                    texts = entry[text] if isinstance(entry[text], list) else [entry[text]]
                    yield ListedSample(key, tuple(map(_text, texts)), str(file), row, image)
                    row += 1


def _text(caption: Any) -> str:
    """Return a caption of JSON or Parquet, "" for null. Raises ValueError for another type."""
    if not isinstance(caption, str | None):
        raise ValueError(f"a caption is {one_line(repr(caption), 60)}; it should be a text")
    return caption or ""


def _folder(path: Path, _: PackOptions) -> Iterator[ListedSample]:
    """Read images, at any depth, in the order of their names, each with a .txt of the same name: one caption a line.

    An image has no captions without a .txt, or with a pipe or megabytes there.
    """
    for image in _images(path):
        try:
            text = reading.read_file(image.with_suffix(".txt"), reading.TEXT_BYTES)
        except (FileNotFoundError, reading.Unfit):
            text = b""
        lines = text.decode("utf-8-sig", "replace").split("\n")
        yield ListedSample(key_of(str(image.relative_to(path))), tuple(filter(str.strip, lines)), str(image))


def _images(path: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(path):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names) if name.rpartition(".")[2].lower() in IMAGES)


def _need(where: str, column: str, columns: Any) -> None:
    if column not in columns:
        raise UserError(f"{where}: has no column {column!r}{nearest(column, columns)}")
