"""Put scanned shards together: rows in key order, repeated keys out, faults counted against the limit."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.arrays import Ints
from bench.data.shards.index import INDEX_SCHEMA, VERSION, About, Entry, content_hash, fixed, ids_hash
from bench.data.shards.part import Job, faults_of
from bench.data.shards.scan import Fault
from bench.data.shards.sources import remote
from bench.data.strings import Strings
from bench.errors import UserError

GROUP = 1 << 16  #: rows of a Parquet row group
EXAMPLES = 3  #: of each reason in messages


@dataclass(frozen=True)
class Report:
    """What an index came to."""

    out: Path
    about: About
    faults: Path  #: the list of what was left out
    seconds: float = 0.0

    def timed(self, seconds: float) -> Report:
        """The same, with the time it took."""
        return replace(self, seconds=seconds)

    def lines(self) -> list[str]:
        """For people."""
        about, lost = self.about, sum(self.about.faults.values())
        rate = f"{about.rows / max(self.seconds, 1e-9):,.0f} rows/s"
        return [
            f"{self.out}: {about.rows:,} rows in {len(about.shards):,} shards, {self.seconds:.1f} s ({rate})",
            f"left out: {lost:,} samples ({lost / (lost + about.rows):.2%})",
            *(f"  {count:,} {reason}" for reason, count in about.faults.items()),
            *([f"  each one in {self.faults}"] if lost else []),
            f"ids {about.ids[:16]}, content {about.content_hash[:16]}",
        ]


def write(jobs: Sequence[Job], out: Path, limit: float, decode: str, each_caption: bool) -> Report:
    """Write index and list of faults from complete parts. UserError over the limit, or without a row."""
    table = _joined(jobs)
    keys = table["key"]
    order = pc.sort_indices(keys).to_numpy().astype(np.int64)  # stable: of equal keys the first shard's comes first
    first = _first(keys.take(pa.array(order)))
    faults = [fault for job in jobs for fault in faults_of(job.part)]
    faults += _repeated(table, order[~first], jobs)
    order = order[first]
    shard = table["shard"].to_numpy()
    rows = np.bincount(shard[order], minlength=len(jobs))
    faults = _weighed(faults, jobs, rows)
    listed = out.with_name(f"{out.name.removesuffix('.parquet')}.faults.csv")
    _list(faults, listed)
    counts = _counted(faults)
    _check(out, len(order), faults, counts, limit, listed)
    about = About(
        VERSION,
        len(order),
        content_hash(fixed(table["hash"])[order], shard[order].astype(np.int64)),
        ids_hash(Strings(keys).take(order)),
        decode,
        each_caption,
        counts,
        tuple(Entry(job.shard.name, _relative(job, out), job.bytes, int(rows[i])) for i, job in enumerate(jobs)),
    )
    _write(table, order, about, out)
    return Report(out, about, listed)


def _joined(jobs: Sequence[Job]) -> Any:
    """All rows of all parts, in one piece, with the number of their shard."""
    tables = []
    for place, job in enumerate(jobs):
        part = pq.read_table(job.part).replace_schema_metadata(None)
        tables.append(part.append_column("shard", pa.array(np.full(len(part), place, np.int32))))
    return pa.concat_tables(tables).combine_chunks()


def _first(keys: Any) -> Any:
    """bool [n]: true where a key of this sorted column differs from the one before it."""
    first = np.ones(len(keys), bool)
    if len(keys) > 1:
        first[1:] = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy()
    return first


def _repeated(table: Any, places: Ints, jobs: Sequence[Job]) -> list[Fault]:
    found = table.select(["key", "offset", "shard"]).take(pa.array(places)).to_pylist()
    why = "another shard has this key; its sample stands"
    return [Fault(jobs[f["shard"]].shard.name, f["key"], f["offset"], "duplicate key", why) for f in found]


def _weighed(faults: Sequence[Fault], jobs: Sequence[Job], rows: Ints) -> list[Fault]:
    """A broken tar counts for the samples it lacks beside the mean of those that are whole."""
    held = {job.shard.name: int(count) for job, count in zip(jobs, rows, strict=True)}
    broken = {fault.shard for fault in faults if fault.reason == "broken tar"}
    whole = [count for name, count in held.items() if name not in broken]
    mean = round(sum(whole) / len(whole)) if whole else 0
    return [
        replace(fault, samples=max(1, mean - held[fault.shard])) if fault.reason == "broken tar" else fault
        for fault in faults
    ]


def _counted(faults: Sequence[Fault]) -> dict[str, int]:
    """Reason -> samples, the most frequent first."""
    counts: Counter[str] = Counter()
    for fault in faults:
        counts[fault.reason] += fault.samples
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _check(out: Path, rows: int, faults: Sequence[Fault], counts: dict[str, int], limit: float, listed: Path) -> None:
    lost = sum(counts.values())
    if rows and lost <= limit * (rows + lost):
        return
    lines = [f"{out}: not written: {lost:,} of {rows + lost:,} samples are faulty, more than --limit {limit:g}"]
    if not rows:
        lines = [f"{out}: not written: there is no sample to train on"]
    for reason, count in counts.items():
        which = [f"{f.shard} {f.key}: {f.detail}" for f in faults if f.reason == reason][:EXAMPLES]
        lines.append(f"  {count:,} {reason}, such as " + "; ".join(which))
    lines.append(f"each one is in {listed}; mend the shards, or raise --limit (what is scanned is kept)")
    raise UserError("\n".join(lines))


def _list(faults: Sequence[Fault], path: Path) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([field.name for field in fields(Fault)])
    writer.writerows(astuple(fault) for fault in faults)
    path.write_text(text.getvalue(), encoding="utf-8")


def _relative(job: Job, out: Path) -> str:
    """A shard's path as the index keeps it."""
    path, folder = job.shard.path, out.parent.absolute()
    below = not remote(path) and Path(path).is_relative_to(folder)
    return str(Path(path).relative_to(folder)) if below else path


def _write(table: Any, order: Ints, about: About, out: Path) -> None:
    schema = INDEX_SCHEMA.with_metadata({"index": about.to_json()})
    half = out.with_name(f"{out.name}.{os.getpid()}")
    with pq.ParquetWriter(half, schema, compression="zstd", use_dictionary=False) as writer:
        for start in range(0, len(order), GROUP):
            rows = np.arange(start, min(start + GROUP, len(order)))
            group = table.take(pa.array(order[rows]))
            columns = {**{name: group[name] for name in group.column_names}, "row": pa.array(rows)}
            writer.write_table(pa.table([columns[field.name] for field in schema], schema=schema))
    half.replace(out)
