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

from bench.console.progress import PATIENCE, duration
from bench.console.text import echo
from bench.data.shards import assemble
from bench.data.shards.assemble import Report
from bench.data.shards.index import NAME
from bench.data.shards.part import Job, is_whole, job_of, make_part
from bench.data.shards.sources import Shard
from bench.data.shards.streams import remote
from bench.errors import UserError, one_line
from bench.machine.capacity import cores

J = TypeVar("J")
R = TypeVar("R")


def default_out(shards: Sequence[Shard]) -> Path:
    """Return the path of index.parquet beside the first shard. Raises UserError if that shard is remote."""
    if remote(shards[0].path):
        where = "suites look for index.parquet in the data folder's folder of that name"
        raise UserError(f"--out: say where the index of {shards[0].path} goes; {where}")
    return Path(shards[0].path).parent / NAME


def build(
    shards: Sequence[Shard],
    out: Path,
    *,
    workers: int | None = None,
    limit: float = 0.01,
    decode: str = "full",
    each_caption: bool = False,
    progress: bool = False,
) -> Report:
    """Index `shards` into the Parquet file `out`, and list the faults in a CSV beside it.

    Scanned parts are kept in the folder OUT.work until the index is written, so that the same command continues after
    a stop or a failure; a folder without a part is removed. Raises UserError if a shard cannot be read, if more than
    the share `limit` of samples is faulty or no row is left (then no index is written), or if another process writes
    the same index.
    """
    began = time.monotonic()
    if out.name in ("", "..") or os.path.isdir(out):
        raise UserError(f"--out {out}: is a folder; give the path of a file, such as {out / NAME}")
    work = out.with_name(f"{out.name}.work")
    try:
        work.mkdir(parents=True, exist_ok=True)
        with _alone(work):
            jobs = _scanned(shards, work, decode, each_caption, workers or cores(), _Lines(progress))
            report = assemble.write(jobs, out, limit, decode, each_caption)
        shutil.rmtree(work)
    except OSError as error:  # reading a shard raises UserError
        raise UserError(f"--out {out}: cannot be written: {one_line(error)}") from error
    return report.timed(time.monotonic() - began)


def _scanned(
    shards: Sequence[Shard], work: Path, decode: str, each_caption: bool, workers: int, lines: _Lines
) -> list[Job]:
    """Scan all shards and return their jobs; the parts lie in `work`.

    If a shard fails, raises a UserError that says how many scanned parts are kept.
    """
    try:
        jobs = [job_of(i, shard, work, decode, each_caption) for i, shard in enumerate(shards)]
        _scan([job for job in jobs if not is_whole(job.part)], len(jobs), workers, lines)
    except UserError as error:
        done = len(list(work.glob("*.parquet")))
        if not done:
            shutil.rmtree(work)
            raise
        progress = f"{done} of {len(shards)} scanned shards are kept in {work}; the same command goes on from there"
        raise UserError(*error.lines, progress) from error
    return jobs


def _scan(jobs: Sequence[Job], total: int, workers: int, lines: _Lines) -> None:
    lines.start(total - len(jobs), total)
    for rows in in_processes(make_part, jobs, workers):
        lines.done(rows)


def in_processes(make: Callable[[J], R], jobs: Sequence[J], workers: int) -> Iterator[R]:
    """Yield what `make` returns for each job, in the order in which they end; by `workers` processes, or in this one.

    Raises UserError if a process dies, and whatever `make` raises.
    """
    if workers == 1 or len(jobs) < 2:
        yield from map(make, jobs)
        return
    pool = ProcessPoolExecutor(
        min(workers, len(jobs)), get_context("spawn"), initializer=_end_with, initargs=(os.getpid(),)
    )
    with pool:
        try:
            for future in as_completed([pool.submit(make, job) for job in jobs]):
                yield future.result()
        except BrokenProcessPool as error:
            raise UserError(
                "a worker died, perhaps for want of memory; the same command with fewer --workers goes on"
            ) from error
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


class _Lines:
    """Prints progress on stderr, a line every few seconds."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._began = self._spoken = time.monotonic()
        self._total = self._before = self._done = self._rows = 0

    def start(self, before: int, total: int) -> None:
        """Begin; `before` of `total` shards were scanned by an earlier command."""
        self._total, self._before = total, before
        if before:
            self._say(f"{before} of {total} shards were scanned before")

    def done(self, rows: int) -> None:
        """Count one more shard, with so many rows."""
        self._done, self._rows = self._done + 1, self._rows + rows
        now, ready = time.monotonic(), self._before + self._done
        if now - self._spoken >= PATIENCE or ready == self._total:
            self._spoken, spent = now, max(now - self._began, 1e-9)
            left = duration(spent / self._done * (self._total - ready))
            rate = f"{self._rows / spent:,.0f} rows/s"
            self._say(f"{ready} of {self._total} shards, {self._rows:,} rows, {rate}, {left} left")

    def _say(self, text: str) -> None:
        if self._shown:
            echo(text, err=True)
