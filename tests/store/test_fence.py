"""A process that slept through its claim, at any point, writes nothing: it is put to sleep before every system call."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from bench.store import Busy, Claim, ClaimLost, Finished, Record, RunWriter, Store

RECORD = Record("a1", 1.0, "emoji/iid", "zero_shot/concept", "top1", "cosine", 0.25, 9, None, None, True, "1", "c")
OUTCOMES = {"rank": np.arange(6)}
#: functions in C by which a process changes the disk, or begins to
CHANGING = {"open", "write", "pwrite", "link", "rename", "replace", "mkdir", "unlink", "rmdir", "chmod", "__exit__"}

WRITES: dict[str, Callable[[RunWriter], object]] = {
    "status": lambda out: out.set_status("running", step=9, steps=9),
    "done": lambda out: out.set_status("done"),
    "settings": lambda out: out.write_settings({"method": "clip"}),
    "metrics": lambda out: out.append_metrics({"step": 3}),
    "truncate": lambda out: out.truncate_metrics(1),
    "seconds": lambda out: out.note_train_seconds(9.5),
    "checkpoint": lambda out: out.write_path("checkpoint.pt", lambda path: path.write_bytes(b"later" * 999)),
    "ledger": lambda out: out.write_json("ledger.json", {"samples": 9}),
    "charge": lambda out: out.charge_evaluation(2.0),
    "environment": lambda out: out.write_json("environment.json", {"commit": "b"}),
    "diagnostics": lambda out: out.write_diagnostics([], [{"source": "training", "name": "x"}]),
    "records": lambda out: out.write_records("new", [RECORD], OUTCOMES),
    "features": lambda out: out.write_bytes("features/new/x.safetensors", b"features"),
    "first evaluation": lambda out: out.own_claim.fence.publish_folder("elsewhere/deep/k", {"a": b"1"}),
    "link": lambda out: out.own_claim.fence.link("checkpoint.pt", "weights-025.safetensors"),
    "discard": lambda out: out.own_claim.fence.discard("checkpoint.pt"),
    "delete": lambda out: out.own_claim.delete_folder(),
    "release": lambda out: out.own_claim.__exit__(None, None, None),
}


def fill(out: RunWriter, step: int = 2) -> None:
    """Write a bit of everything."""
    out.set_status("running", step=step, steps=9)
    for step in range(3):
        out.append_metrics({"step": step})
    out.note_train_seconds(1.5)
    out.write_json("ledger.json", {"samples": 5, "evaluate_seconds": 1.0})
    out.write_json("environment.json", {"commit": "a"})
    out.write_bytes("checkpoint.pt", b"earlier" * 999)
    out.write_bytes("features/old/x.safetensors", b"features")
    out.write_records("old", [RECORD], OUTCOMES)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run."""
    folder = tmp_path_factory.mktemp("template")
    with Store(folder / "store").run("a1").claim() as own:
        fill(RunWriter(own))
    return folder


@pytest.fixture
def copies(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The run's folder in one copy of the store after the other. Writes do not wait for the disk: no power is cut."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    stores = (Path(shutil.copytree(template / "store", tmp_path / str(number))) for number in itertools.count())
    return (store / "runs" / "a1" for store in stores)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder that a reader sees, and the newest claim."""
    paths = [path for path in sorted(folder.rglob("*")) if ".tmp-" not in str(path.relative_to(folder))]
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


def taken_over(held: Claim) -> Claim:
    """A further claim, entered after the heartbeats of all others are made old."""
    for path in held.folder.glob("claim/*/holder.json"):
        os.utime(path, (1, 1))
    return Claim(held.folder, heartbeat=1000).__enter__()


@contextmanager
def asleep_before(call: int, meanwhile: Callable[[], None]) -> Iterator[None]:
    """Call `meanwhile` before the block's system call of this number; calls that only read are not counted."""
    counted = itertools.count(1)

    def watch(_: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ in CHANGING:
            of_file = isinstance(getattr(function, "__self__", None), io.IOBase)
            if (of_file or function.__module__ in ("posix", "_io", "io")) and next(counted) == call:
                sys.setprofile(None)
                meanwhile()

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.promise("a process that slept through its claim changes no byte")
@pytest.mark.parametrize("write", WRITES)
def test_a_sleeper_changes_nothing_wherever_it_slept(copies: Iterator[Path], write: str) -> None:
    calls = itertools.chain(range(1, 16), itertools.count(17, 3))  # a long write is left out in part
    for call, folder in zip(calls, copies, strict=False):
        sleeper = Claim(folder, heartbeat=1000).__enter__()
        out, others, seen = RunWriter(sleeper), [], {}

        def take_over(sleeper: Claim = sleeper, others: list[Claim] = others, seen: dict[str, Any] = seen) -> None:
            others.append(taken_over(sleeper))
            RunWriter(others[0]).write_bytes("features/theirs", b"theirs")
            seen.update(contents(sleeper.folder))

        with asleep_before(call, take_over), suppress(ClaimLost):
            WRITES[write](out)
        if not others:  # the write has fewer calls than this
            sleeper.__exit__(None, None, None)
            assert call > 2, "no call was seen"
            return
        assert contents(folder) == seen, f"it slept before call {call}"
        for later in (WRITES[write], fill, sleeper.__exit__):
            with suppress(ClaimLost, Finished):
                later(*(None,) * 3) if later == sleeper.__exit__ else later(out)
        assert contents(folder) == seen, f"it slept before call {call} and went on"
        assert not others[0].fence.lost
        others[0].__exit__(None, None, None)


@pytest.mark.parametrize("delete", [False, True])
def test_a_process_that_slept_while_it_claimed_is_never_a_second_holder(copies: Iterator[Path], delete: bool) -> None:
    """With `delete` the run is deleted meanwhile and made again, so that claims are counted anew."""
    for call, folder in enumerate(copies, start=1):
        sleeper, others, seen = Claim(folder, heartbeat=1000), [], {}

        def meanwhile(sleeper: Claim = sleeper, others: list[Claim] = others, seen: dict[str, Any] = seen) -> None:
            if delete:
                first = taken_over(sleeper)
                first.delete_folder()
                first.__exit__(None, None, None)
            others.append(taken_over(sleeper))
            fill(RunWriter(others[0]))
            seen.update(contents(sleeper.folder))

        with ExitStack() as stack:
            with suppress(Busy), asleep_before(call, meanwhile):
                stack.enter_context(sleeper)
            if not others:
                assert call > 5, "no call was seen"
                return
            stack.push(others[0])
            with suppress(Busy):
                fill(RunWriter(sleeper), 7)
            assert not others[0].fence.lost
            assert contents(folder) == seen, f"it slept before call {call}"


ASLEEP = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_fence import WRITES, Claim, ClaimLost, RunWriter, asleep_before
for name, call in (("metrics", 1), ("seconds", 1), ("checkpoint", 6), ("records", 9), ("status", 5), ("delete", 9)):
    own = Claim(Path(sys.argv[1]), heartbeat=0.01).__enter__()
    out = RunWriter(own)
    try:
        with asleep_before(call, lambda: os.kill(os.getpid(), signal.SIGSTOP)):
            WRITES[name](out)
        print(name, "written", flush=True)
    except ClaimLost:
        print(name, "lost", flush=True)
    own.__exit__(None, None, None)
    sys.stdin.readline()
"""


def test_a_stopped_process_that_goes_on_changes_nothing(copies: Iterator[Path]) -> None:
    """A real one, whose heartbeat goes on with it."""
    folder = next(copies)
    command = [sys.executable, "-c", ASLEEP, str(folder), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for name in ("metrics", "seconds", "checkpoint", "records", "status", "delete"):
                assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1]), name
                (newest,) = folder.glob("claim/*/holder.json")
                os.utime(newest, (1, 1))
                with Claim(folder, heartbeat=1000) as own:
                    RunWriter(own).write_bytes("features/theirs", os.urandom(8))
                    before = contents(folder)
                    process.send_signal(signal.SIGCONT)
                    assert process.stdout.readline() == f"{name} lost\n"
                    assert contents(folder) == before
                    assert not own.fence.lost
                process.stdin.write("\n")
                process.stdin.flush()
        finally:
            process.kill()


def test_a_descriptor_that_a_sleeper_has_open_writes_to_a_file_without_a_name(copies: Iterator[Path]) -> None:
    folder = next(copies)
    with Claim(folder, heartbeat=1000) as sleeper:
        out = RunWriter(sleeper)
        out.append_metrics({"step": 3})
        out.note_train_seconds(2.0)
        descriptors = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in sleeper.fence.path.glob("grows-*")]
        assert len(descriptors) == 2
        with ExitStack() as stack:
            own = taken_over(sleeper)
            stack.push(own)
            theirs = RunWriter(own)
            before = contents(folder)
            for descriptor in descriptors:
                os.write(descriptor, b"from a dream")
                os.close(descriptor)
            assert contents(folder) == before
            assert [line["step"] for line in theirs.metrics()] == [0, 1, 2, 3]
            theirs.append_metrics({"step": 4})
    assert [line["step"] for line in theirs.metrics()] == [0, 1, 2, 3, 4]
    assert theirs.train_seconds() == 2.0
    assert not list(folder.glob(".tmp-*"))


@pytest.mark.parametrize(
    "name", ["status", "done", "metrics", "truncate", "seconds", "checkpoint", "ledger", "environment"]
)
def test_a_finished_run_does_not_change(copies: Iterator[Path], name: str) -> None:
    folder = next(copies)
    with Claim(folder) as own:
        out = RunWriter(own)
        out.set_status("done")
        before = contents(folder)
        with pytest.raises(Finished, match="is finished"):
            WRITES[name](out)
        with pytest.raises(Finished, match="is finished"):
            WRITES[name](RunWriter(own))
        assert contents(folder) == before


@pytest.mark.parametrize("name", ["settings.json", "noise.parquet"])
def test_a_finished_run_gets_back_what_follows_from_its_plan_if_it_lacks_it(copies: Iterator[Path], name: str) -> None:
    folder = next(copies)
    with Claim(folder) as own:
        out = RunWriter(own)
        out.set_status("done")
        (folder / name).unlink(missing_ok=True)
        out.write_bytes(name, b"{}")
        with pytest.raises(Finished, match="is finished"):
            out.write_bytes(name, b"[]")
        assert (folder / name).read_bytes() == b"{}"


def histogram(protocol: str, count: int) -> dict[str, Any]:
    series = {"all": {"n": count, "dropped": 0, "counts": [count]}}
    texts = {"source": "evaluation", "protocol": protocol, "name": "x", "title": "x", "axis": "x"}
    return {**texts, "log": False, "edges": [0.0, 1.0], "series": series}


def test_a_later_suite_adds_to_a_finished_run(copies: Iterator[Path]) -> None:
    folder = next(copies)
    with Claim(folder, heartbeat=1000) as own:
        out = RunWriter(own)
        out.write_diagnostics([], [histogram("1", 1)])
        out.set_status("done")
        before = {name: content for name, content in contents(folder).items() if not name.startswith("claim")}
        assert out.write_records("new", [RECORD], OUTCOMES)
        out.charge_evaluation(2.5)
        out.write_diagnostics([histogram("1", 1)], [histogram("2", 2)])
    after = contents(folder)
    grown = {name for name in before if after[name] != before[name]}
    assert grown == {"hashes.json", "ledger.json", "diagnostics.json"}
    run = Store(folder.parents[1]).run("a1")
    assert run.ledger() == {"samples": 5, "evaluate_seconds": 3.5}
    assert run.diagnostics() == [histogram("1", 1), histogram("2", 2)]
    assert len(run.records()) == 2
