"""Real processes race, die and hang."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from bench.store import Busy, Claim, Store, writing
from bench.store.claim import live_holder
from bench.store.files import file_system_time

RACER = """
import os, sys
from bench.store import Busy, Store
run = Store(sys.argv[1]).run("a1")
print("ready", flush=True)
os.read(int(sys.argv[2]), 1)
try:
    with run.claim():
        print("won", flush=True)
        sys.stdin.read()
except Busy:
    print("busy", flush=True)
"""
WRITER = """
import sys
from pathlib import Path
from bench.store.files import publish_folder, write_bytes
folder = Path(sys.argv[1])
print("ready", flush=True)
for turn in range(10**9):
    size = 200_000
    write_bytes(folder / "file", bytes([turn % 251]) * size)
    publish_folder(folder / f"result-{turn}", {"a": b"x" * size, "b": b"y" * size}, inside=folder)
"""


PATIENCE = 1200.0  #: seconds to wait for an event that is due within a few
Race = Callable[[Path, int], list[subprocess.Popen[str]]]


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python code as a process of its own, which ends with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object, descriptors: Sequence[int] = ()) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=descriptors
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with process:
            process.kill()


@pytest.fixture
def race(spawn: Callable[..., subprocess.Popen[str]]) -> Race:
    """Start processes that claim a run at the same moment; who won holds it until its input ends."""

    def start(root: Path, racers: int) -> list[subprocess.Popen[str]]:
        gate, opener = os.pipe()
        processes = [spawn(RACER, root, gate, descriptors=[gate]) for _ in range(racers)]
        os.close(gate)
        assert [line(process) for process in processes] == ["ready"] * racers
        os.close(opener)  # every reader of the pipe wakes at once
        return processes

    return start


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def results(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What became of each process, once all have said it; then they end."""
    answers = sorted(map(line, processes))
    for process in processes:
        process.communicate()
    return answers


def test_one_of_two_processes_gets_the_run(race: Race, tmp_path: Path) -> None:
    for turn in range(2):
        assert results(race(tmp_path / str(turn), 2)) == ["busy", "won"]


def test_exactly_one_takes_over_from_a_killed_process(race: Race, tmp_path: Path) -> None:
    for turn in range(2):
        root = tmp_path / str(turn)
        (process,) = race(root, 1)
        assert line(process) == "won"
        with pytest.raises(Busy, match=str(process.pid)), Store(root).run("a1").claim():
            pass
        process.kill()
        process.communicate()
        assert results(race(root, 4)) == ["busy", "busy", "busy", "won"]


def test_a_killed_process_nobody_waited_for_does_not_hold_the_run(race: Race, tmp_path: Path) -> None:
    (process,) = race(tmp_path, 1)
    assert line(process) == "won"
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, but still in the process table
    with Store(tmp_path).run("a1").claim() as claim:
        assert not claim.fence.lost


def test_a_silent_holder_is_followed_and_learns_of_it(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with Claim(run.folder, heartbeat=100) as hung:
        past = time.time() - 700
        os.utime(hung.path, (past, past))
        assert live_holder(run.folder) is None
        with run.claim() as next_one:
            assert hung.fence.lost
            assert not next_one.fence.lost
    assert not list(run.folder.iterdir())


def test_a_heartbeat_keeps_the_run(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with Claim(run.folder, heartbeat=0.05) as claim:
        os.utime(claim.path, (0, 0))
        end = time.monotonic() + PATIENCE
        while claim.path.stat().st_mtime == 0 and time.monotonic() < end:
            time.sleep(0.02)
        with pytest.raises(Busy), run.claim():
            pass


def test_a_holder_on_another_host_counts_until_it_is_silent(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with Claim(run.folder, heartbeat=100) as claim:
        held = json.loads(claim.path.read_text())
        claim.path.write_text(json.dumps({**held, "host": "elsewhere", "pid": 1, "started": "0"}))
        with pytest.raises(Busy, match="elsewhere"), run.claim():
            pass


def test_a_later_process_with_the_same_number_is_not_the_holder(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with Claim(run.folder, heartbeat=100) as claim:
        held = json.loads(claim.path.read_text())
        claim.path.write_text(json.dumps({**held, "started": "1"}))
        assert live_holder(run.folder) is None


def test_a_kill_between_two_writes_leaves_whole_files(
    spawn: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    for turn in range(12):
        folder = tmp_path / str(turn)
        folder.mkdir()
        process = spawn(WRITER, folder)
        assert line(process) == "ready"
        end = time.monotonic() + PATIENCE
        while len(list(folder.iterdir())) < turn and time.monotonic() < end:
            assert process.poll() is None, "the writer ends by the kill alone"
            time.sleep(0.001)
        process.kill()
        process.communicate()
        if (folder / "file").exists():
            content = (folder / "file").read_bytes()
            assert len(content) == 200_000
            assert len(set(content)) == 1
        for result in folder.glob("result-*"):
            assert (result / "a").read_bytes() == b"x" * 200_000
            assert (result / "b").read_bytes() == b"y" * 200_000


def test_a_writer_that_raises_leaves_nothing(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")

    def broken(path: Path) -> None:
        path.write_bytes(b"ha")
        raise RuntimeError("disk full")

    with writing(run) as out, pytest.raises(RuntimeError, match="disk full"):
        out.write_path("checkpoint.pt", broken)
    assert [path.name for path in run.folder.iterdir()] == []


@pytest.mark.parametrize("years", [-1, 1])
def test_a_machine_whose_clock_is_wrong_by_a_year_sees_who_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    """Heartbeats and the present time are both of the file system's clock. The holder is on another host."""
    run, right = Store(tmp_path).run("a1"), time.time()
    with writing(run) as out:
        out.set_status("running", step=1)
        held = json.loads(out.own_claim.path.read_text())
        out.own_claim.path.write_text(json.dumps({**held, "host": "elsewhere"}))
        monkeypatch.setattr(time, "time", lambda: right + years * 365 * 86400)
        assert run.status()["state"] == "running"
        with pytest.raises(Busy, match="elsewhere"), run.claim():
            pass
        os.utime(out.own_claim.path, (right + 700, right + 700))  # no heartbeat of this clock
        assert live_holder(run.folder) is None


def test_a_folder_that_cannot_be_written_is_read_by_this_machines_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def read_only(path: object, flags: int, *more: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "read-only")
        return real(path, flags, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", read_only)  # root may write wherever the mode forbids it
    assert file_system_time(tmp_path) == pytest.approx(time.time(), abs=1200)
    assert not list(tmp_path.iterdir())


def test_a_damaged_claim_ends_by_silence(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    said = "an unknown host, as its claim is damaged; the run is free ten minutes after the last heartbeat"
    for content in (b"", b"[1]", b'{"host": 3}', b"\xff", b'{"host": "x", "pid": -5}', b"[" * 20_000):
        with Claim(run.folder, heartbeat=100) as damaged:
            damaged.path.write_bytes(content)
            with pytest.raises(Busy, match=said), run.claim():
                pass
            os.utime(damaged.path, (1, 1))
            assert live_holder(run.folder) is None
            with run.claim() as following:
                assert damaged.fence.lost
                assert not following.fence.lost
