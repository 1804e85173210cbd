"""Processes forked from one that has imported everything: their ends, what they share, and the death of the one."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import bench
from bench.launch import nursery as nursery_module
from bench.launch.nursery import Child, Flag, Nursery  # and no more: processes of these tests import this file

WAIT = 1200.0  #: seconds for what is due within a few


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nursery]:
    """One that has imported nothing that runs need: that takes seconds, and its end is the same."""
    place = nursery_module.__name__
    start = nursery_module._START.replace(f"from {place} import _serve;", f"from {place} import _serve; EMPTY")
    empty = f"import {place}; {place}.MODULES = ();"
    assert "EMPTY" in start
    monkeypatch.setattr(nursery_module, "_START", start.replace("EMPTY", empty))
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def connection() -> Iterator[tuple[Connection, Connection]]:
    ours, theirs = Pipe()
    with ours, theirs:
        yield ours, theirs


def started(nursery: Nursery, action: str, theirs: Connection, flag: Flag | None = None) -> Child:
    """A process that answers on the connection, and then ends as `action` says."""
    descriptors = [theirs.fileno(), *(flag.descriptors if flag else ())]
    return nursery.start(acting, (action,), descriptors)


def acting(descriptor: int, *rest: object) -> object:
    """Run in the other process."""
    *flag, action = rest
    assert len(os.listdir("/proc/self/task")) == 1, "the process that it was forked from has threads"
    connection = Connection(descriptor)
    collecting = gc.isenabled() and gc.get_freeze_count() > 0  # garbage of its own, not what it shares
    connection.send((os.getpid(), os.getppid(), "torch" in sys.modules, collecting))
    if action == "raise":
        raise RuntimeError("on purpose")
    if action == "wait":
        connection.recv()
    if action == "flag":
        Flag((int(str(flag[0])), int(str(flag[1])))).set()
    return 7 if action == "seven" else None


def test_each_ends_with_its_own_code(nursery: Nursery, connection: tuple[Connection, Connection]) -> None:
    ours, theirs = connection
    parents = set()
    for action, code in (("nothing", 0), ("seven", 7), ("raise", 1)):
        child = started(nursery, action, theirs)
        pid, parent, warm, collecting = ours.recv()
        parents.add(parent)
        child.join(WAIT)
        assert (pid, child.exitcode, child.is_alive(), warm, collecting) == (child.pid, code, False, True, True)
        child.close()
    assert len(parents) == 1, "one process started all"
    assert os.getpid() not in parents


def test_a_killed_one_says_so_and_others_go_on(nursery: Nursery) -> None:
    pairs = [Pipe() for _ in range(2)]
    one, other = (started(nursery, "wait", theirs) for _, theirs in pairs)
    for ours, theirs in pairs:
        ours.recv()
        theirs.close()
    assert one.is_alive()
    one.kill()
    one.join(WAIT)
    assert one.exitcode == -signal.SIGKILL
    assert other.is_alive(), "no other process has the descriptors of the first"
    with pytest.raises(EOFError):
        pairs[0][0].recv()
    pairs[1][0].send("go")
    other.join(WAIT)
    assert other.exitcode == 0
    for child in (one, other):
        child.close()
    for ours, _ in pairs:
        ours.close()


def test_a_flag_is_seen_by_all(nursery: Nursery, connection: tuple[Connection, Connection]) -> None:
    ours, theirs = connection
    flag = Flag()
    assert not flag.is_set()
    child = started(nursery, "flag", theirs, flag)
    ours.recv()
    child.join(WAIT)
    assert flag.is_set()
    assert flag.is_set(), "it stays set"
    child.close()
    flag.close()


def test_without_its_nursery_a_process_is_ended_and_the_next_one_gets_another(
    light: Nursery, connection: tuple[Connection, Connection]
) -> None:
    ours, theirs = connection
    child = started(light, "wait", theirs)
    pid, parent, *_ = ours.recv()
    os.kill(parent, signal.SIGKILL)
    child.join(WAIT)
    assert child.exitcode == 255, "nobody knows"
    child.close()
    second = started(light, "nothing", theirs)
    assert ours.recv()[1] != parent
    second.join(WAIT)
    assert second.exitcode == 0
    second.close()
    assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_blocked_signals_stay_blocked(light: Nursery, connection: tuple[Connection, Connection]) -> None:
    """What a terminal sends to all of a job ends neither the nursery nor, before it has handlers, a process of it."""
    ours, theirs = connection
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        child = started(light, "wait", theirs)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _, parent, *_ = ours.recv()
    for pid in (parent, child.pid):
        os.kill(pid, signal.SIGTERM)
    ours.send("go")
    child.join(WAIT)
    assert child.exitcode == 0
    child.close()


DATA = """
name: shared
noise: {rates: [0.4]}
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16}
evaluate: {tasks: [zero_shot]}
methods: [clip]
"""


def looking(descriptor: int) -> None:
    """Run in the other process: say what it has already read, and which threads the one has that it is forked from."""
    from bench import data
    from bench.launch import rank

    inputs = rank._reader
    read = (data.load.cache_info().currsize > 0, len(inputs._noise), len(inputs._vocabularies))
    threads = [path.read_text().strip() for path in Path(f"/proc/{os.getppid()}/task").glob("*/comm")]
    Connection(descriptor).send((read, sorted(threads)))


def test_what_it_has_read_before_is_there_in_each_process(
    nursery: Nursery, connection: tuple[Connection, Connection], tmp_path: Path
) -> None:
    from bench.launch import rank

    (tmp_path / "shared.yaml").write_text(DATA)
    nursery.call(rank.read_data, (bench.load_suite(tmp_path / "shared.yaml").runs(),))
    ours, theirs = connection
    for _ in range(2):
        child = nursery.start(looking, (), [theirs.fileno()])
        read, threads = ours.recv()
        assert read == (True, 1, 1)
        assert len({*threads} - {"jemalloc_bg_thd"}) == 1, "pyarrow's allocator minds its own thread; others would hang"
        child.close()


def failing() -> None:
    """Run in the nursery."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  for the traceback
    raise RuntimeError("on purpose")


def test_a_call_that_raises_costs_the_nursery_alone(light: Nursery, connection: tuple[Connection, Connection]) -> None:
    ours, theirs = connection
    child = started(light, "nothing", theirs)
    before = ours.recv()[1]
    child.close()
    light.call(failing, ())
    child = started(light, "seven", theirs)
    assert ours.recv()[1] != before
    child.join(WAIT)
    assert child.exitcode == 7
    child.close()
