"""Whole runs of a few steps on a disk that fails, in processes that are killed or sleep: the end is always the same.

Each life of a run is a forked process that gives `bench run`'s call. Before one of its file operations, of those that
the store issues, something happens to it:

- error: the operation fails (no space left, input/output error);
- full: from then on no file grows beyond some size, so that a write of any library is cut short and fails;
- kill: SIGKILL; burst: SIGXFSZ in the middle of the first write beyond some size;
- sleep: the process stops, its claim is made old, further lives go by, then it goes on;
- beside: the process stops, another call is made, then it goes on.

After one to four such lives the same call gives the bytes of an undisturbed run; `bench store verify` finds nothing.
BENCH_HOSTILE_EXAMPLES is the number of stores (seconds by default, thousands by hand), BENCH_HOSTILE_SEED chooses
others, BENCH_HOSTILE_FAULTS="kill sleep" draws these alone:

    BENCH_HOSTILE_EXAMPLES=1000 BENCH_HOSTILE_SEED=1 pytest -n0 -s tests/hostile/test_faults.py
"""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import mmap
import os
import random
import resource
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import bench
from bench.cli.guard import UNEXPECTED, explain
from bench.console.progress import Progress
from bench.errors import EXIT_UNFINISHED, UserError
from bench.launch.launchers.local import run_all
from bench.planning import planner
from bench.planning.planned import Planned
from bench.store import Store
from bench.store.reading import SET_ASIDE
from bench.store.verify import verify_store
from bench.suite.suite import load_suite
from bench.training.checkpoint import THREAD_PREFIX

EXAMPLES = int(os.environ.get("BENCH_HOSTILE_EXAMPLES", "4"))
SEED = int(os.environ.get("BENCH_HOSTILE_SEED", "0"))
SUITE = """\
name: faults
noise: {rates: [0.4]}
budget: {samples: 48}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1, checkpoint_seconds: 0.000001}
evaluate: {tasks: [zero_shot], curve: [0.5]}
methods: [clip]
"""
#: functions of `os` by which a process changes the disk, or reads what it holds
OPERATIONS = (
    *("open", "read", "pread", "write", "pwrite", "fsync", "fstat", "stat", "lstat", "listdir", "scandir"),
    *("link", "rename", "replace", "mkdir", "unlink", "rmdir", "chmod", "utime"),
)
OURS = tuple(str(Path(bench.__file__).parent / part) for part in ("store/", "training/checkpoint"))
LIMITS = (0, 1, 100, 1_000, 5_000, 20_000, 100_000)  #: bytes that a file has on a full disk
KINDS = tuple(os.environ.get("BENCH_HOSTILE_FAULTS", "error error full kill kill burst sleep sleep beside").split())
UNEXPECTED_CODE = 99  #: of a life that ended in an error that no person is meant to see
Fault = Callable[[], None]


def ours(frame: FrameType | None) -> bool:
    """Whether a call is made on behalf of the store."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(OURS):
            return True
        frame = frame.f_back
    return False


@contextmanager
def watch(number: int = 0, fault: Fault = lambda: None) -> Iterator[Callable[[], int]]:
    """Call `fault` before the store's operation of this number; yield what counts them."""
    counter, last, main = itertools.count(1), 0, threading.get_ident()

    def watched_thread() -> bool:
        return threading.get_ident() == main or threading.current_thread().name.startswith(THREAD_PREFIX)

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            nonlocal last
            if watched_thread() and ours(sys._getframe(1)):
                last = next(counter)
                if last == number:
                    fault()
            return function(*arguments, **keywords)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, watched(getattr(os, name)))
        patch.setattr(io, "open", watched(io.open))
        yield lambda: last


def full(limit: int, action: signal.Handlers) -> None:
    """No file of this process grows beyond `limit` bytes any more."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, action)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def failing(number: int) -> None:
    raise OSError(number, os.strerror(number))


def fault_of(kind: str, draw: random.Random) -> Fault:
    if kind == "error":
        number = draw.choice((errno.ENOSPC, errno.EIO))
        return lambda: failing(number)
    if kind in ("full", "burst"):
        limit = draw.choice(LIMITS)
        return lambda: full(limit, signal.SIG_IGN if kind == "full" else signal.SIG_DFL)
    stop = signal.SIGKILL if kind == "kill" else signal.SIGSTOP
    return lambda: os.kill(os.getpid(), stop)


def make(planned: list[Planned], root: Path) -> int:
    """`bench run` after its planning, without its report; return its exit code."""
    try:
        summary = run_all(planned, Store(root), Progress())
    except Exception as error:
        known = isinstance(error, UserError | OSError)
        return explain(error)[0] if known and explain(error)[0] != UNEXPECTED else UNEXPECTED_CODE
    return EXIT_UNFINISHED if summary.busy or summary.interrupted else 1 if summary.failed else 0


def started(planned: list[Planned], root: Path, number: int = 0, fault: Fault = lambda: None) -> tuple[int, mmap.mmap]:
    """Fork a life; return its process number, and a byte that becomes 1 when the fault happens."""
    happened = mmap.mmap(-1, 1)
    pid = os.fork()
    if pid:
        return pid, happened
    code = UNEXPECTED_CODE
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)

        def noted() -> None:
            happened[0] = 1
            fault()

        with watch(number, noted):
            code = make(planned, root)
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    """Exit code of a life, minus the signal that ended it; the signal that stopped it plus 1,000."""
    _, status = os.waitpid(pid, os.WUNTRACED)
    return 1000 + os.WSTOPSIG(status) if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)


class World:
    """One store and what happened to it."""

    def __init__(self, planned: list[Planned], root: Path, operations: int, draw: random.Random) -> None:
        self.planned, self.root, self.operations, self.draw = planned, root, operations, draw
        self.counts: Counter[str] = Counter()
        self.story: list[str] = []

    def life(self, depth: int = 0) -> None:
        """A process that calls `bench run` and to which one thing happens, if it gets that far."""
        kind, number = self.draw.choice(KINDS), self.draw.randint(1, self.operations)
        self.story.append(f"{'  ' * depth}{kind} before operation {number}")
        pid, happened = started(self.planned, self.root, number, fault_of(kind, self.draw))
        code = wait(pid)
        if code >= 1000:
            try:
                if kind == "sleep":
                    for path in self.root.glob("runs/*/claim/*/holder.json"):
                        os.utime(path, (1, 1))
                for _ in range(self.draw.choice((1, 1, 2)) if depth < 2 else 0):
                    self.life(depth + 1) if self.draw.random() < 0.5 else self.clean()
            finally:
                os.kill(pid, signal.SIGCONT)
                code = wait(pid)
        self.counts[kind] += happened[0]
        self.story[-1] += f"; ended with {code}"
        killed = {"kill": [-signal.SIGKILL], "burst": [-signal.SIGXFSZ]}.get(kind, [])
        assert code in (0, 1, 2, EXIT_UNFINISHED, *killed), self.story

    def clean(self) -> int:
        pid, _ = started(self.planned, self.root)
        code = wait(pid)
        self.story.append(f"undisturbed; ended with {code}")
        return code


def promised(root: Path) -> dict[str, str]:
    """sha256 of all that is the same however often a run was disturbed, by path.

    What a failing disk kept from being read was moved aside and made again; what lies aside is left out.
    """
    names = ("weights-*", "metrics.jsonl", "settings.json", "diagnostics.json", "noise.parquet", "hashes.json")
    paths = [path for name in (*names, "evaluations/*/*") for path in sorted(root.glob(f"runs/*/{name}"))]
    paths = [path for path in paths if not any(SET_ASIDE.search(part) for part in path.parts)]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def undisturbed(folder: Path) -> tuple[list[Planned], dict[str, str], int]:
    """The plan, what it promises, and the number of its file operations."""
    folder.joinpath("faults.yaml").write_text(SUITE)
    root = folder / "undisturbed"
    planned = planner.plan(load_suite(folder / "faults.yaml").runs(), Store(root))
    with watch() as last:
        assert make(planned, root) == 0
    return planned, promised(root), last()


def tried(planned: list[Planned], root: Path, number: int, expected: dict[str, str], operations: int) -> Counter[str]:
    """Disturb a new store one to four times, then make its run; return what happened."""
    draw = random.Random(number)
    world = World(planned, root, operations, draw)
    for _ in range(draw.choice((1, 2, 3, 4))):
        world.life()
    last = world.clean()
    story = "\n".join([f"example {number}", *world.story])
    assert last == 0, story
    (run,) = Store(root).runs()
    assert run.status()["state"] == "done", story
    assert promised(root) == expected, story
    assert verify_store(Store(root)) == ([], []), story
    return world.counts


def test_after_any_faults_the_same_call_gives_the_same_bytes(tmp_path: Path) -> None:
    planned, expected, operations = undisturbed(tmp_path)
    assert operations > 100
    counts: Counter[str] = Counter()
    for number in range(SEED * EXAMPLES, (SEED + 1) * EXAMPLES):
        counts += tried(planned, tmp_path / "results", number, expected, operations)
        shutil.rmtree(tmp_path / "results")
    print(f"{EXAMPLES} stores: {dict(counts)}")
    assert counts
