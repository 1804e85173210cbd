"""Joins scanned shards into an index: sorts rows by key, drops repeated keys, counts faults against the limit."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.arrays import Ints
from bench.console.text import csv_text
from bench.data.shards.index import INDEX_SCHEMA, VERSION, IndexedShard, IndexMetadata, content_hash, fixed, ids_hash
from bench.data.shards.part import ScanJob, read_part
from bench.data.shards.scan import ScanFault
from bench.data.strings import Strings
from bench.errors import UserError, one_line
from bench.store import files

GROUP_ROWS = 1 << 16  #: rows of a Parquet row group
SHOWN_FAULTS = 3  #: number of faults of each reason that a message names


@dataclass(frozen=True)
class Report:
    """The result of indexing."""

    out: Path
    about: IndexMetadata
    faults: Path  #: the CSV that lists the faults
    seconds: float  #: time that it took

    def lines(self) -> list[str]:
        """Return the lines that the command prints."""
        about, lost = self.about, sum(self.about.faults.values())
        rate = f"{about.rows / max(self.seconds, 1e-9):,.0f} rows/s"
        return [
            f"{self.out}: {about.rows:,} rows in {len(about.shards):,} shards, {self.seconds:.1f} s ({rate})",
            f"omitted: {lost:,} samples ({lost / (lost + about.rows):.2%})",
            *(f"  {count:,} {reason}" for reason, count in about.faults.items()),
            *([f"  each one in {self.faults}"] if lost else []),
            f"ids {about.ids[:16]}, content {about.content_hash[:16]}",
        ]


def write_index(jobs: Sequence[ScanJob], out: Path, limit: float, each_caption: bool, began: float) -> Report:
    """Write the index `out` and the list of faults next to it, from the complete parts of all `jobs`.

    began: when the work began, by `time.monotonic`. Raises UserError, without an index, if more than the share `limit`
    of samples is faulty or no row is left.
    """
    table, faults, sizes = _joined(jobs)
    keys = table["key"]
    order = pc.sort_indices(keys).to_numpy().astype(np.int64)  # stable: the first shard wins
    ordered = keys.take(pa.array(order))
    first = np.ones(len(order), bool)
    first[1:] = pc.not_equal(ordered[1:], ordered[:-1]).to_numpy()
    for row in table.select(["key", "offset", "shard"]).take(pa.array(order[~first])).to_pylist():
        name, detail = jobs[row["shard"]].shard.name, "another shard has this key; its sample is kept"
        faults.append(ScanFault(name, row["key"], row["offset"], "duplicate key", detail))
    order = order[first]
    shard = table["shard"].to_numpy()
    rows = np.bincount(shard[order], minlength=len(jobs))
    faults = _weighed(faults, jobs, rows)
    faults_file = out.with_name(f"{out.name.removesuffix('.parquet')}.faults.csv")
    heads = tuple(field.name for field in fields(ScanFault))
    files.write_bytes(faults_file, csv_text([heads, *map(astuple, faults)]).encode(), durable=False)
    samples = Counter[str]()
    for fault in faults:
        samples[fault.reason] += fault.samples
    counts = dict(sorted(samples.items(), key=lambda item: (-item[1], item[0])))  # the most frequent reason first
    _check(out, len(order), faults, counts, limit, faults_file)
    about = IndexMetadata(
        VERSION,
        len(order),
        content_hash(fixed(table["hash"])[order], shard[order].astype(np.int64)),
        ids_hash(Strings(keys).take(order)),
        each_caption,
        counts,
        tuple(IndexedShard(job.shard.name, _relative(job, out), sizes[i], int(rows[i])) for i, job in enumerate(jobs)),
    )
    table = table.take(pa.array(order)).append_column("row", pa.array(np.arange(len(order))))
    table = table.select(INDEX_SCHEMA.names).replace_schema_metadata({"index": json.dumps(asdict(about))})
    form = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True, "row_group_size": GROUP_ROWS}
    files.write_path(out, lambda path: pq.write_table(table, path, **form), durable=False)
    return Report(out, about, faults_file, time.monotonic() - began)


def _joined(jobs: Sequence[ScanJob]) -> tuple[Any, list[ScanFault], list[int]]:
    """Return the rows of all parts in a table, with the number of their shard, all faults, and the shards' bytes."""
    tables, faults, sizes = [], list[ScanFault](), list[int]()
    for number, job in enumerate(jobs):
        part, own, size = read_part(job.part)
        tables.append(part.append_column("shard", pa.array(np.full(len(part), number, np.int32))))
        faults += own
        sizes.append(size)
    return pa.concat_tables(tables).combine_chunks(), faults, sizes


def _weighed(faults: Sequence[ScanFault], jobs: Sequence[ScanJob], rows: Ints) -> list[ScanFault]:
    """Estimate how many samples each broken tar lost: the mean of the intact shards minus its own.

    rows: int64 [shards], the rows of each job's shard.
    """
    shard_rows = {job.shard.name: int(count) for job, count in zip(jobs, rows, strict=True)}
    broken = {fault.shard for fault in faults if fault.reason == "broken tar"}
    whole = [count for name, count in shard_rows.items() if name not in broken]
    mean = round(sum(whole) / len(whole)) if whole else 0
    return [
        replace(fault, samples=max(1, mean - shard_rows[fault.shard])) if fault.reason == "broken tar" else fault
        for fault in faults
    ]


def _check(
    out: Path, rows: int, faults: Sequence[ScanFault], counts: dict[str, int], limit: float, listed: Path
) -> None:
    """Raise a UserError with examples if there is no row, or more than the share `limit` of samples is lost."""
    lost = sum(counts.values())
    if rows and lost <= limit * (rows + lost):
        return
    lines = [f"{out}: not written: {lost:,} of {rows + lost:,} samples are faulty, more than --limit {limit:g}"]
    if not rows:
        lines = [f"{out}: not written: there is no sample to train on"]
    for reason, count in counts.items():
        which = [one_line(f"{f.shard} {f.key}: {f.detail}", 300) for f in faults if f.reason == reason][:SHOWN_FAULTS]
        lines.append(f"  {count:,} {reason}, such as " + "; ".join(which))
    lines.append(f"each one is in {listed}; repair the shards, or raise --limit (what is scanned is kept)")
    raise UserError(*lines)


def _relative(job: ScanJob, out: Path) -> str:
    """Return a shard's path as the index stores it: relative if it lies below the index's folder."""
    path, folder = Path(job.shard.path), out.parent.absolute()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
