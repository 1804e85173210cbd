"""Makes an index: scans every shard once in several processes, keeps finished parts, joins them."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from bench.console.progress import LINE_INTERVAL, duration
from bench.console.text import echo
from bench.data.shards import assemble
from bench.data.shards.assemble import Report
from bench.data.shards.index import NAME
from bench.data.shards.part import ScanJob, is_whole, job_of, make_part
from bench.data.shards.sources import Shard
from bench.errors import UserError, one_line
from bench.machine.capacity import cores

J = TypeVar("J")
R = TypeVar("R")


def build_index(
    shards: Sequence[Shard],
    out: Path | None = None,
    *,
    workers: int | None = None,
    limit: float = 0.01,
    each_caption: bool = False,
    progress: bool = False,
) -> Report:
    """Index `shards` into the Parquet file `out` (default: index.parquet beside the first), and its faults into a CSV.

    Scanned parts are kept in the folder OUT.work until the index is written, so that the same command continues after
    a stop or a failure; a folder without a part is removed. Raises UserError if a shard cannot be read, if more than
    the share `limit` of samples is faulty or no row is left (then no index is written), or if another process writes
    the same index.
    """
    began = time.monotonic()
    out = out or Path(shards[0].path).parent / NAME
    if out.name in ("", "..") or os.path.isdir(out):
        raise UserError(f"--out {out}: is a folder; give the path of a file, such as {out / NAME}")
    work = out.with_name(f"{out.name}.work")
    try:
        work.mkdir(parents=True, exist_ok=True)
        with _alone(work):
            jobs = _scanned(shards, work, each_caption, workers or cores(), progress)
            report = assemble.write_index(jobs, out, limit, each_caption, began)
        shutil.rmtree(work)
    except OSError as error:  # reading a shard raises UserError
        raise UserError(f"--out {out}: cannot be written: {one_line(error)}") from error
    return report


def _scanned(shards: Sequence[Shard], work: Path, each_caption: bool, workers: int, progress: bool) -> list[ScanJob]:
    """Scan all shards and return their jobs; the parts lie in `work`.

    If a shard fails, raises a UserError that says how many scanned parts are kept.
    """
    try:
        jobs = [job_of(i, shard, work, each_caption) for i, shard in enumerate(shards)]
        _scan([job for job in jobs if not is_whole(job.part)], len(jobs), workers, progress)
    except UserError as error:
        done = len(list(work.glob("*.parquet")))
        if not done:
            shutil.rmtree(work)
            raise
        kept = f"{done} of {len(shards)} scanned shards are kept in {work}; the same command continues from there"
        raise UserError(*error.lines, kept) from error
    return jobs


def _scan(jobs: Sequence[ScanJob], total: int, workers: int, progress: bool) -> None:
    """Scan the shards of which no part is kept; if `progress`, print a line on stderr every few seconds."""
    before, rows, began = total - len(jobs), 0, time.monotonic()
    if before and progress:
        echo(f"{before} of {total} shards were scanned before", err=True)
    spoken = began
    for done, own in enumerate(in_processes(make_part, jobs, workers), 1):
        rows, now = rows + own, time.monotonic()
        if progress and (now - spoken >= LINE_INTERVAL or done == len(jobs)):
            spoken, spent = now, max(now - began, 1e-9)
            left = duration(spent / done * (len(jobs) - done))
            rate = f"{rows / spent:,.0f} rows/s"
            echo(f"{before + done} of {total} shards, {rows:,} rows, {rate}, {left} left", err=True)


def in_processes(make: Callable[[J], R], jobs: Sequence[J], workers: int) -> Iterator[R]:
    """Yield what `make` returns for each job, in the order in which they end; by `workers` processes, or in this one.

    Raises UserError if a process dies, and whatever `make` raises.
    """
    if workers == 1 or len(jobs) < 2:
        yield from map(make, jobs)
        return
    most = min(workers, len(jobs))
    with ProcessPoolExecutor(most, get_context("spawn"), initializer=_end_with, initargs=(os.getpid(),)) as pool:
        try:
            for future in as_completed([pool.submit(make, job) for job in jobs]):
                yield future.result()
        except BrokenProcessPool as error:
            fix = "the same command with fewer --workers continues"
            raise UserError(f"a worker died, perhaps out of memory; {fix}") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _end_with(parent: int) -> None:
    """Exit when the parent process is gone; otherwise a worker of a killed parent would wait forever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    with open(work / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{work}: another process makes this index; wait for it") from None
        yield
