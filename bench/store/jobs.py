"""Jobs of runs, of SLURM and of Ray: each is noted in a file next to its run. No torch.

One call of squeue gives the states of all SLURM jobs. Ray's end with the process that submitted them, so it is noted.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.store.claim import live_holder
from bench.store.files import write_json
from bench.store.process import holder_is_dead
from bench.store.reading import Damaged, read_json
from bench.store.run import RunStore

JOB_FILE = "job.json"


@dataclass(frozen=True)
class SubmittedJob:
    """The job that a run was last submitted as."""

    id: str  #: "17", or "17_3" in an array; "ray-" and a task's id
    state: str | None  #: squeue's word, such as "PENDING" or "RUNNING"; None if the job left the queue
    reason: str  #: squeue's reason why it waits; of a task, the process that works on it or submitted it
    log: str  #: path of the file with its output

    @property
    def shown(self) -> str:
        """The job in the words of `bench status`."""
        if self.state is None:
            return f"job {self.id} is over, its log is {self.log}"
        return f"job {self.id} {self.state.lower()}{f' ({self.reason})' if self.reason not in ('None', '') else ''}"


def note_job(run: RunStore, job: str, log: Path, by: Mapping[str, Any] | None = None) -> None:
    """Store next to a run that it was submitted as this job. Any process may, without the run's claim.

    by: the process with whose end the job ends, as `bench.store.process.process_identity` gives it; None: no process.
    """
    content = {"job": job, "log": str(log), "submitted": time.time()}
    write_json(run.path(JOB_FILE), content if by is None else {**content, "by": dict(by)})


def submitted_jobs(runs: Iterable[RunStore]) -> dict[str, SubmittedJob]:
    """Return the last job of each run that was ever submitted, by the run's id.

    Calls squeue once, or never if no run was submitted to SLURM. On a machine without squeue every such job's state is
    "UNKNOWN". Raises UserError if SLURM does not answer.
    """
    noted: dict[RunStore, dict[str, Any]] = {}
    for run in runs:
        with contextlib.suppress(Damaged):  # the run itself is shown as damaged; the jobs of the others are known
            if job := read_job_note(run):
                noted[run] = job
    here = shutil.which("squeue") is not None
    of_slurm = any("by" not in entry for entry in noted.values())
    queue, absent = _queue() if of_slurm and here else {}, (None, "") if here else ("UNKNOWN", "no squeue here")
    by_run = {}
    for run, entry in noted.items():
        state, reason = _of_process(run, entry["by"]) if "by" in entry else queue.get(entry["job"], absent)
        by_run[run.id] = SubmittedJob(entry["job"], state, reason, entry["log"])
    return by_run


def _of_process(run: RunStore, by: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return (state, reason) of a job that ends with the process that submitted it.

    Whether a process of another host has ended is not known: its job then counts as pending.
    """
    if (worker := live_holder(run.folder)) is not None:
        return "RUNNING", f"process {worker['pid']} on {worker['host']}"
    return (None, "") if holder_is_dead(by) else ("PENDING", f"submitted by process {by['pid']} on {by['host']}")


def read_job_note(run: RunStore) -> dict[str, Any] | None:
    """Return what `note_job` stored next to a run, or None if it was never submitted. Raises Damaged."""
    job: dict[str, Any] | None = read_json(run.path(JOB_FILE), "job")
    return job


def _queue() -> dict[str, tuple[str | None, str]]:
    """Return (state, reason) of every job that this user has in the queue, by the job's id."""
    # id, state and reason; an element of an array has a line of its own
    command = ["squeue", "--me", "--array", "--noheader", "--format=%i|%T|%r"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (subprocess.SubprocessError, OSError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        raise UserError(f"squeue: SLURM does not answer: {reason.strip()}") from error
    lines = [line.split("|") for line in output.splitlines() if line.count("|") == 2]
    return {job: (state, reason) for job, state, reason in lines}
