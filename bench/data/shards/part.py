"""The part of one scanned shard: a Parquet file of its rows, with its faults in the metadata."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench import reading
from bench.data.shards.index import SCHEMA, VERSION
from bench.data.shards.scan import RULES_VERSION, ScanFault, ScannedRow, row_hash, scan_tar
from bench.data.shards.sources import Shard
from bench.errors import UserError
from bench.store import files

BUFFER_BYTES = 1 << 20  #: bytes read at a time in a scan


@dataclass(frozen=True)
class ScanJob:
    """One shard to scan."""

    shard: Shard
    part: Path  #: the file to write; its name is a hash of everything that its content depends on
    each_caption: bool  #: whether to make a row for each caption, instead of for each image


def job_of(place: int, shard: Shard, work: Path, each_caption: bool) -> ScanJob:
    """Return the job of the shard at `place` in the list; parts go to `work`. Raises UserError if it is missing."""
    try:
        status = os.stat(shard.path)
    except OSError as error:
        raise UserError(f"shards: {shard.path}: cannot be read: {error.strerror}") from error
    stamp = repr((VERSION, RULES_VERSION, shard, status.st_size, status.st_mtime_ns, each_caption))
    part = work / f"{place:06d}-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.parquet"
    return ScanJob(shard, part, each_caption)


def make_part(job: ScanJob) -> int:
    """Scan the shard, write its part completely or not at all, and return its number of rows.

    Raises UserError if the shard cannot be read.
    """
    try:
        with reading.open_file(job.shard.path, BUFFER_BYTES) as file:
            bytes = os.fstat(file.fileno()).st_size
            rows, faults = scan_tar(file, job.shard.name, job.shard.prefix)
    except OSError as error:
        raise UserError(f"shards: {job.shard.path}: cannot be read: {error.strerror}") from error
    if job.each_caption:
        rows = [one for row in rows for one in _by_caption(row)]
    about = {"faults": json.dumps([asdict(fault) for fault in faults]), "bytes": str(bytes)}
    hashed = [{**vars(row), "hash": row_hash(row.key, row.captions, row.digest)} for row in rows]
    table = pa.Table.from_pylist(hashed, SCHEMA).replace_schema_metadata(about)
    form = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
    files.write_path(job.part, lambda path: pq.write_table(table, path, **form), durable=False)
    return len(rows)


def read_part(part: Path) -> tuple[Any, list[ScanFault], int]:
    """Return the rows of a part as a pyarrow Table, its faults, and the bytes of its shard.

    Raises OSError or ValueError if it is damaged.
    """
    table = reading.read_parquet(part)
    metadata = table.schema.metadata
    faults = [ScanFault(**fault) for fault in json.loads(metadata[b"faults"])]
    return table.replace_schema_metadata(None), faults, int(metadata[b"bytes"])


def is_whole(part: Path) -> bool:
    """Return whether a part exists and can be read."""
    try:
        read_part(part)
    except (OSError, ValueError):
        return False
    return True


def _by_caption(row: ScannedRow) -> list[ScannedRow]:
    """Return a row for each caption, with keys "key#0", "key#1", ... that sort in the order of the captions."""
    width = len(str(len(row.captions) - 1))
    return [
        ScannedRow(f"{row.key}#{i:0{width}}", row.offset, row.size, (caption,), row.digest)
        for i, caption in enumerate(row.captions)
    ]
