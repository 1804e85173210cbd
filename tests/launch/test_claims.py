"""A run that this call has not in hand is failed under its claim alone, and never where it is finished."""

from __future__ import annotations

import errno
import io
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from bench.console.progress import Progress
from bench.errors import UserError
from bench.launch.claimed import Call, mark_failed, work_on_run
from bench.launch.launchers.local import run_all
from bench.launch.ranks import Ranks
from bench.planning import planner
from bench.planning.outcomes import RunOutcomes, is_complete
from bench.planning.planned import Planned
from bench.store import ClaimLost, RunStore, RunWriter, Store, files, writing
from bench.suite.suite import load_suite
from bench.training import checkpoint

SUITE = """\
name: tiny
budget: {samples: 128}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [retrieval]}
methods: [ncu]
"""
HOLDER = """\
import sys
from bench.store import Store, writing

with writing(Store(sys.argv[1]).run(sys.argv[2])) as run:
    run.set_status("running", step=3, steps=8)
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "out")


@pytest.fixture
def runs(tmp_path: Path, store: Store) -> list[Planned]:
    """CLIP, and NCU that starts from it."""
    (tmp_path / "tiny.yaml").write_text(SUITE)
    return planner.plan(load_suite(tmp_path / "tiny.yaml").runs(), store)


@pytest.fixture
def held(runs: list[Planned], store: Store) -> Iterator[subprocess.Popen[str]]:
    """Another process that works on NCU's run."""
    command = [sys.executable, "-c", HOLDER, str(store.root), runs[1].id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        if process.poll() is None:
            process.communicate("\n")


def booked(runs: list[Planned], store: Store) -> tuple[RunOutcomes, str]:
    """What becomes of NCU where the run that it starts from failed."""
    summary, said = RunOutcomes(failed=[runs[0].id]), io.StringIO()
    assert Call(store, Progress(said), summary=summary).cannot_start(runs[1])
    return summary, said.getvalue()


def test_a_run_that_another_process_works_on_is_busy(
    runs: list[Planned], store: Store, held: subprocess.Popen[str]
) -> None:
    summary, said = booked(runs, store)
    assert (summary.busy, summary.failed) == ([runs[1].id], [runs[0].id])
    assert f"held by process {held.pid}" in said
    status = store.run(runs[1].id).status()
    assert (status["state"], status["step"]) == ("running", 3)


def test_a_run_that_was_busy_is_looked_at_again_before_the_call_ends(
    runs: list[Planned], store: Store, held: subprocess.Popen[str]
) -> None:
    class Releasing(Progress):
        def run_finished(self, title: str, state: str, message: str = "") -> None:
            if state == "busy":
                assert held.stdin is not None
                held.stdin.close()
                held.wait()

    summary = run_all(runs, store, Releasing(io.StringIO()))
    assert (summary.done, summary.busy) == ([one.id for one in runs], [])


def test_a_run_that_another_call_finished_stays_done(runs: list[Planned], store: Store) -> None:
    for one in runs:
        assert work_on_run(one, store, Progress(io.StringIO()), lambda: False)[0] == "done"
    summary, said = booked(runs, store)
    assert (summary.done, summary.failed) == ([runs[1].id], [runs[0].id])
    assert "another process finished it" in said
    assert is_complete(runs[1], store)
    # trained, and without an evaluation that this suite asks for: it cannot go on here, and is still finished
    folder, *_ = store.run(runs[1].id).path("evaluations").iterdir()
    folder.rename(store.root / "elsewhere")
    assert mark_failed(runs[1], store, "no", {"type": "Reference", "message": "no"}) == ("failed", "no")
    assert store.run(runs[1].id).status()["state"] == "done"


def test_a_run_that_nobody_works_on_fails_as_what_it_starts_from_did(runs: list[Planned], store: Store) -> None:
    summary, said = booked(runs, store)
    assert summary.failed == [runs[0].id, runs[1].id]
    status = store.run(runs[1].id).status()
    assert (status["state"], status["error"]["type"]) == ("failed", "Reference")
    assert status["error"]["message"] in said
    with store.run(runs[1].id).claim():  # nobody holds it any more
        pass


class Falling(Progress):
    """Takes the run over at its fourth step, as another process does after a long silence of this one."""

    def __init__(self, run: RunStore) -> None:
        super().__init__(io.StringIO())
        self.run, self.seen = run, dict[str, bytes]()

    def step(self, step: int, steps: int, loss: float, samples_per_second: float) -> None:
        assert step <= 4, "it went on for more than a step"
        if step == 4:
            for path in self.run.folder.glob("claim/*/holder.json"):
                os.utime(path, (1, 1))
            with writing(self.run) as out:
                out.set_status("interrupted", step=2)
            self.seen = visible(self.run)


def visible(run: RunStore) -> dict[str, bytes]:
    paths = [path for path in run.folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in paths}


def test_a_training_that_slept_through_its_claim_writes_nothing_more(runs: list[Planned], store: Store) -> None:
    falling = Falling(store.run(runs[0].id))
    state, message = work_on_run(runs[0], store, falling, lambda: False)
    assert (state, "silent for too long" in message) == ("busy", True)
    assert falling.seen.keys() >= {"metrics.jsonl", "train_seconds", "settings.json", "status.json"}
    assert visible(falling.run) == falling.seen
    assert work_on_run(runs[0], store, Progress(io.StringIO()), lambda: False)[0] == "done"


def test_a_further_rank_survives_the_loss_of_the_first_ones_claim(
    runs: list[Planned], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an evaluation all ranks hear of it at the same time, and go on with the next run."""

    def lose(*_: object) -> None:
        raise ClaimLost

    monkeypatch.setattr("bench.launch.claimed.execute_run", lose)
    state, message = work_on_run(runs[0], store, Progress(io.StringIO()), lambda: False, ranks=Ranks(1, 2))
    assert (state, "silent for too long" in message) == ("busy", True)


class Full(Progress):
    """No file may grow from a run's first step until the next run starts, as with `ulimit -f`."""

    def __init__(self, fails: str) -> None:
        super().__init__(io.StringIO())
        self.fails, self.limits = fails, resource.getrlimit(resource.RLIMIT_FSIZE)

    def run_started(self, title: str, number: int, total: int) -> None:
        self.failing = title.startswith(f"{self.fails}, ")

    def step(self, step: int, steps: int, loss: float, samples_per_second: float) -> None:
        if self.failing:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, self.limits[1]))

    def run_finished(self, title: str, state: str, message: str = "") -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)


def test_a_limit_of_bytes_a_file_fails_its_run_alone_though_no_status_says_so(tmp_path: Path, store: Store) -> None:
    (tmp_path / "two.yaml").write_text(SUITE.replace("[ncu]", "[clip, siglip]"))
    planned = planner.plan(load_suite(tmp_path / "two.yaml").runs(), store)
    summary = run_all(planned, store, Full("clip"))
    assert (summary.failed, summary.done) == ([planned[0].id], [planned[1].id])
    out = store.run(planned[0].id)
    assert out.status()["state"] == "interrupted", "the status could not be written"
    assert not list(out.folder.glob(".tmp-*"))
    assert run_all(planned, store, Progress(io.StringIO())).done == [planned[0].id]


def of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says of a full disk names neither the disk nor the file."""
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage._replace(free=0))
    save = torch.save
    monkeypatch.setattr(torch, "save", lambda state, _: save(state, "/dev/full"))


def of_safetensors(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Error while serializing: I/O error: No space left on device (os error 28)"
    monkeypatch.setattr(checkpoint, "save_file", raises(SafetensorError(said)))


def of_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunWriter, "append_metrics", raises(OSError(errno.EDQUOT, "quota", "metrics.jsonl")))


def raises(error: Exception) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise error

    return call


@pytest.mark.promise("a full disk ends the call in one line that says so, and no further run is started")
@pytest.mark.parametrize(("break_disk", "file", "said"), [
    (of_torch, "checkpoint.pt", "the disk is full; free some space"),
    (of_safetensors, "weights-025.safetensors", "the disk is full; free some space"),
    (of_metrics, "metrics.jsonl", "the quota of this disk is used up"),
])  # fmt: skip
def test_a_full_disk_ends_the_call(
    tmp_path: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    break_disk: Callable[[pytest.MonkeyPatch], None],
    file: str,
    said: str,
) -> None:
    changed = SUITE.replace("[ncu]", "[clip, siglip]").replace("threads: 1", "threads: 1, checkpoint_seconds: 0")
    (tmp_path / "two.yaml").write_text(changed)
    planned = planner.plan(load_suite(tmp_path / "two.yaml").runs(), store)
    with monkeypatch.context() as broken:
        break_disk(broken)
        with pytest.raises(UserError) as stop:
            run_all(planned, store, Progress(io.StringIO()))
    (line,) = stop.value.lines
    assert re.match(rf"\S*{file}: {said}", line), line
    assert [store.run(one.id).status()["state"] for one in planned] == ["interrupted", "missing"]
    assert run_all(planned, store, Progress(io.StringIO())).done == [one.id for one in planned]


def test_a_run_that_cannot_be_claimed_fails_alone(runs: list[Planned], store: Store) -> None:
    store.root.mkdir(parents=True, exist_ok=True)
    (store.root / "runs").write_text("a file, where a folder should be")
    assert work_on_run(runs[0], store, Progress(io.StringIO()), lambda: False)[0] == "failed"
    assert mark_failed(runs[0], store, "no", {"type": "Process", "message": "killed"}) == ("failed", "no")
