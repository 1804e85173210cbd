"""What is known of one scanned shard: a Parquet file of its rows, its faults in the metadata."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.data.shards import cache
from bench.data.shards.index import SCHEMA, VERSION
from bench.data.shards.scan import RULES, Fault, Row, row_hash, scan
from bench.data.shards.sources import Shard, remote
from bench.errors import UserError


@dataclass(frozen=True)
class Job:
    """One shard to scan."""

    shard: Shard
    bytes: int
    part: Path  #: where the result goes; named by all that it depends on
    full: bool
    each_caption: bool


def job_of(place: int, shard: Shard, work: Path, decode: str, each_caption: bool) -> Job:
    """UserError where the shard is not there."""
    if remote(shard.path):
        size, changed = cache.size(shard.path), 0
    else:
        try:
            status = os.stat(shard.path)
        except OSError as error:
            raise UserError(f"shards: {shard.path}: cannot be read: {error.strerror}") from error
        size, changed = status.st_size, status.st_mtime_ns
    stamp = repr((VERSION, RULES, shard, size, changed, decode, each_caption))
    part = work / f"{place:06d}-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.parquet"
    return Job(shard, size, part, decode == "full", each_caption)


def make_part(job: Job) -> int:
    """Scan the shard and write its part, complete or not at all. Returns its rows; UserError where it is unreadable."""
    try:
        with cache.opened(job.shard.path, job.bytes) as file:
            rows, faults = scan(file, job.shard.name, job.shard.prefix, job.full)
    except OSError as error:
        raise UserError(f"shards: {job.shard.path}: cannot be read: {error.strerror}") from error
    if job.each_caption:
        rows = [one for row in rows for one in _by_caption(row)]
    about = {"faults": json.dumps([asdict(fault) for fault in faults])}
    half = job.part.with_name(f"{job.part.name}.{os.getpid()}")
    pq.write_table(_table(rows).replace_schema_metadata(about), half, compression="zstd", use_dictionary=False)
    half.replace(job.part)
    return len(rows)


def faults_of(part: Path) -> list[Fault]:
    """The faults of a part."""
    return [Fault(**one) for one in json.loads(pq.read_schema(part).metadata[b"faults"])]


def _by_caption(row: Row) -> list[Row]:
    """A row for each caption, with keys that sort as the captions do."""
    width = len(str(len(row.captions) - 1))
    return [
        Row(f"{row.key}#{i:0{width}}", row.offset, row.size, (caption,), row.digest)
        for i, caption in enumerate(row.captions)
    ]


def _table(rows: Sequence[Row]) -> Any:
    columns = {
        "key": [row.key for row in rows],
        "offset": [row.offset for row in rows],
        "size": [row.size for row in rows],
        "captions": [row.captions for row in rows],
        "digest": [row.digest for row in rows],
        "hash": [row_hash(row.key, row.captions, row.digest) for row in rows],
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
