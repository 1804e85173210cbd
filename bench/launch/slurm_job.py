"""Work of a SLURM job: execute its runs, and requeue the job where they can continue.

A job does what the same command does on one machine: it claims a run, continues from its checkpoint, and publishes. Two
minutes before its time is up, SLURM sends SIGUSR2 to all tasks: the job then stops at a checkpoint and asks to be
queued again. A preempted job is queued again by SLURM itself.

A job over several nodes has a task for each rank (bench/launch/torchrun.py). When a rank is lost with its process or
node, the ranks that are left ask SLURM to queue the job again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from bench.adapters import registry
from bench.console.progress import Progress
from bench.launch.claimed import run_progress
from bench.launch.launchers import LaunchOptions
from bench.launch.launchers.local import ranks_of_a_run, run_all
from bench.launch.torchrun import launcher_place, meet_ranks, on_all_ranks
from bench.planning.outcomes import RunOutcomes
from bench.planning.planned import Planned
from bench.store import Store
from bench.store.claim import STALE_AFTER

NOTICE_SECONDS = 120  #: seconds between SIGUSR2 and the end of a job's time
MAX_RESTARTS = 50  #: a job is not queued again more often than this; the same command submits it again
MAX_LOSSES = 5  #: after as many restarts, a job that loses a rank without progress is not queued again
CLAIM_SECONDS = 10.0  #: seconds between attempts to claim a run that a dead node still seems to hold
POLL_SECONDS = 0.2  #: seconds between checks for a signal
PORTS = range(10000, 30000)  #: where the ranks of a job meet; Linux gives connections ports above them


@dataclass
class _JobProgress:
    """Events of a job as this process saw them."""

    summary: RunOutcomes = field(default_factory=RunOutcomes)
    time_is_up: bool = False
    lost: bool = False  #: whether ranks of the job are gone


@dataclass(frozen=True)
class SlurmJob:
    """The function that every task of a job calls; submitit pickles it."""

    runs: tuple[Planned, ...]
    root: Path
    plugins: list[str]
    gpus: int  #: of a node
    options: LaunchOptions  #: `ranks` are those of a node

    def __call__(self) -> str:
        """Make the runs. Raises RuntimeError if one is not done in the end, so that dependent jobs do not start."""
        from submitit import JobEnvironment
        from submitit.helpers import TorchDistributedEnvironment

        course = _JobProgress()

        def stop(_number: int, _frame: FrameType | None) -> None:
            course.time_is_up = True
            os.kill(os.getpid(), signal.SIGTERM)

        signal.signal(signal.SIGUSR2, stop)
        for plugin in self.plugins:
            registry.add_plugin(plugin)
        if JobEnvironment().num_tasks > 1:
            number = int(os.environ["SLURM_JOB_ID"])
            os.environ["MASTER_PORT"] = str(PORTS[number % len(PORTS)])  # its own, whatever the submitter's says
            TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
        here, before = launcher_place(), self._reached()
        if here is None:
            alone = ranks_of_a_run(self.gpus, None, 1) if self.gpus else self.options.ranks
            self._make(course, replace(self.options, ranks=alone))
        else:
            ranks = meet_ranks(here)
            on_all_ranks(ranks, self.root, lambda: self._make(course, replace(self.options, ranks=here.world)))
            course.lost = bool(ranks.lost)
            if here.rank:
                if 0 in ranks.lost:
                    self._requeue(before)
                return "trained along"
        return self._conclude(course, before)

    def _make(self, course: _JobProgress, options: LaunchOptions) -> int:
        """Make the runs; repeat while one is busy, for as long as a dead node may still seem to hold it. Return 0."""
        store, deadline = Store(self.root), time.monotonic() + STALE_AFTER + 6 * CLAIM_SECONDS
        while True:
            if course.time_is_up:  # the signal came before a run began
                course.summary = RunOutcomes(interrupted=[one.id for one in self.runs])
                return 0
            course.summary = run_all(list(self.runs), store, Progress(sys.stdout), options)
            if not course.summary.busy or course.summary.interrupted or time.monotonic() > deadline:
                return 0
            time.sleep(CLAIM_SECONDS)

    def _conclude(self, course: _JobProgress, before: list[tuple[int, int]]) -> str:
        """Return what became of the runs, after asking SLURM to queue the job again if that helps; or raise."""
        summary = course.summary
        left = [one.id for one in self.runs if one.id not in {*summary.done, *summary.skipped}]
        if not left:
            return "done"
        if summary.interrupted and not (course.time_is_up or course.lost):
            end = time.monotonic() + NOTICE_SECONDS
            while not course.time_is_up and time.monotonic() < end:
                time.sleep(POLL_SECONDS)
        if set(left) - set(summary.failed) and (
            (course.time_is_up and _restarts() < MAX_RESTARTS and _requeued())
            or (course.lost and self._requeue(before))
        ):
            return "queued again"
        raise RuntimeError(f"{left[0][:16]}: {'failed' if left[0] in summary.failed else 'not finished'}; see above")

    def _reached(self) -> list[tuple[int, int]]:
        store = Store(self.root)
        return [run_progress(store.run(one.id)) for one in self.runs]

    def _requeue(self, before: list[tuple[int, int]]) -> bool:
        """Have SLURM queue a job again that lost a rank; return whether it did.

        It does not after many restarts, if the runs are where they were before this one: the rank is then lost again,
        as by too little memory.
        """
        most = MAX_RESTARTS if self._reached() != before else MAX_LOSSES
        return _restarts() < most and _requeued()


def _restarts() -> int:
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def _requeued() -> bool:
    """Have SLURM queue this job again; return whether it did.

    A job that somebody cancelled, or that another rank queued again, is not running by SLURM's account, and stays so.
    """
    from submitit import JobEnvironment

    job = JobEnvironment().job_id  # of an array's job "36_2": its number alone means all of them
    shown = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, timeout=60, check=True)
    if re.search(r"\bJobState=RUNNING\b", shown.stdout) is None:
        return False
    return subprocess.run(["scontrol", "requeue", job], timeout=60, check=False).returncode == 0
