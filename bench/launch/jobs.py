"""The SLURM jobs that runs were handed to: noted beside each run, looked up with one squeue. Needs no torch."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UserError
from bench.store import RunStore
from bench.store.files import read_json

FILE = "job.json"
_FIELDS = "%i|%T|%r"  #: id, state, reason; an element of an array has a line of its own


@dataclass(frozen=True)
class Job:
    """A run's last job."""

    id: str  #: "17", or "17_3" in an array
    state: str | None  #: as squeue says, "PENDING", "RUNNING"; None where the queue does not have it any more
    reason: str  #: why it waits
    log: str  #: what it prints

    @property
    def shown(self) -> str:
        """For a line of `bench status`."""
        if self.state is None:
            return f"job {self.id} is over, its log is {self.log}"
        return f"job {self.id} {self.state.lower()}{f' ({self.reason})' if self.reason not in ('None', '') else ''}"


def note(run: RunStore, job: str, log: Path) -> None:
    """Remember that a run was handed to this job."""
    run.write_json(FILE, {"job": job, "log": str(log), "submitted": time.time()})


def jobs(runs: Iterable[RunStore]) -> dict[str, Job]:
    """The last job of each of these runs that has one, by the run's id; asks squeue once, and only if one has.

    On a machine without squeue every job's state is "UNKNOWN". Raises UserError where SLURM does not answer.
    """
    noted = {run.id: content for run in runs if (content := read_json(run.path(FILE)))}
    here = shutil.which("squeue") is not None
    queue, absent = _queue() if noted and here else {}, (None, "") if here else ("UNKNOWN", "no squeue here")
    found_jobs = {}
    for identity, found in noted.items():
        state, reason = queue.get(found["job"], absent)
        found_jobs[identity] = Job(found["job"], state, reason, found["log"])
    return found_jobs


def _queue() -> dict[str, tuple[str | None, str]]:
    """(state, reason) of each of this user's jobs that is not over, by its id."""
    command = ["squeue", "--me", "--array", "--noheader", f"--format={_FIELDS}"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (subprocess.SubprocessError, OSError) as error:
        told = getattr(error, "stderr", None) or str(error)
        raise UserError(f"squeue: SLURM does not answer: {told.strip()}") from error
    lines = [line.split("|") for line in said.splitlines() if line.count("|") == 2]
    return {job: (state, reason) for job, state, reason in lines}
