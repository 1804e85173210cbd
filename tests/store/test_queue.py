"""The SLURM jobs of runs, as a queue answers that is a program of our own on PATH."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bench.errors import UserError
from bench.store import Store, jobs, process

QUEUE = """\
#!/bin/sh
echo "$@" >> "{log}"
printf '17|RUNNING|None\\n18_3|PENDING|Dependency\\nslurm is busy today\\n'
exit {code}
"""


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a `squeue` that lists two jobs; the file `calls` in it says how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write(folder, 0)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def write(folder: Path, code: int) -> None:
    program = folder / "squeue"
    program.write_text(QUEUE.format(log=folder / "calls", code=code))
    program.chmod(0o755)


def noted(store: Store, **of_runs: str) -> list:
    for identity, job in of_runs.items():
        jobs.note_job(store.run(identity), job, Path("logs") / f"{job}.out")
    return [store.run(identity) for identity in sorted(of_runs)]


@pytest.mark.usefixtures("queue")
def test_each_run_has_its_last_job_as_the_queue_says(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    runs = [*noted(store, a="16", b="18_3", c="99"), store.run("never handed over")]
    noted(store, a="17")
    found = jobs.submitted_jobs(runs)
    assert found == {
        "a": jobs.SubmittedJob("17", "RUNNING", "None", "logs/17.out"),
        "b": jobs.SubmittedJob("18_3", "PENDING", "Dependency", "logs/18_3.out"),
        "c": jobs.SubmittedJob("99", None, "", "logs/99.out"),
    }
    assert [found[name].shown for name in "abc"] == [
        "job 17 running",
        "job 18_3 pending (Dependency)",
        "job 99 is over, its log is logs/99.out",
    ]


def test_the_queue_is_asked_once_for_all_and_only_if_a_run_has_a_job(tmp_path: Path, queue: Path) -> None:
    store = Store(tmp_path / "out")
    assert jobs.submitted_jobs([store.run("a"), store.run("b")]) == {}
    assert not (queue / "calls").exists()
    jobs.submitted_jobs(noted(store, a="17", b="18", c="19"))
    (call,) = (queue / "calls").read_text().splitlines()
    assert "--me" in call
    assert "--array" in call, "an element of an array has a line of its own"


def test_a_queue_that_does_not_answer_is_no_queue_without_jobs(tmp_path: Path, queue: Path) -> None:
    write(queue, 1)
    with pytest.raises(UserError, match="squeue: SLURM does not answer"):
        jobs.submitted_jobs(noted(Store(tmp_path / "out"), a="17"))


def test_a_job_that_ends_with_its_process_is_shown_without_a_queue(tmp_path: Path, queue: Path) -> None:
    """Of this process, of one that is dead, of another host, and one that a process works on."""
    store, here = Store(tmp_path / "out"), process.process_identity()
    with subprocess.Popen(["true"]) as over:
        dead = {**here, "pid": over.pid}
    for name, by in (("a", here), ("b", dead), ("c", {**here, "host": "far"}), ("d", dead)):
        jobs.note_job(store.run(name), f"ray-{name}", Path("x.log"), by)
    with store.run("d").claim():
        found = jobs.submitted_jobs(map(store.run, "abcd"))
    me = f"process {here['pid']} on {here['host']}"
    assert [found[name].shown for name in "abcd"] == [
        f"job ray-a pending (submitted by {me})",
        "job ray-b is over, its log is x.log",
        f"job ray-c pending (submitted by process {here['pid']} on far)",
        f"job ray-d running ({me})",
    ]
    assert not (queue / "calls").exists()


def test_elsewhere_a_jobs_state_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = jobs.submitted_jobs(noted(Store(tmp_path / "out"), a="17"))
    assert found["a"].shown == "job 17 unknown (no squeue here)"
