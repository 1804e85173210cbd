"""Submit SLURM jobs through submitit, by default one for each run.

Runs that can start at once form an array; a run that starts from another one depends on that one's job. A job does
what the same command does on one machine: it claims the run, continues from its checkpoint, and publishes. Two minutes
before its time is up, SLURM sends SIGUSR2: the job then stops at a checkpoint and asks to be queued again. A preempted
job is queued again by SLURM itself.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from bench.adapters import registry
from bench.console.progress import Progress
from bench.errors import UserError
from bench.launch.claimed import Options, cannot_start
from bench.launch.launchers import Request
from bench.launch.launchers.local import run_all
from bench.launch.world_size import ranks, refuse_odd_shares
from bench.planning.outcomes import Summary, ready
from bench.planning.planned import Planned
from bench.store import Store
from bench.store.claim import STALE_AFTER, holder
from bench.store.jobs import jobs, note
from bench.suite.slurm_settings import SlurmSettings
from bench.suite.suite import Suite

NOTICE = 120  #: seconds between SIGUSR2 and the end of a job's time
RESTARTS = 50  #: a job is not queued again more often than this; the same command submits it again
ARRAY = 1000  #: jobs of an array
PAUSE = 10.0  #: seconds between attempts to claim a run that a dead node still seems to hold


def prepare(suite: Suite, store: Store, request: Request) -> Callable[[list[Planned], Progress], Summary]:
    """See `bench.launch.launchers.Launcher`. `request.gpus` overrides the suite's own number."""
    slurm = suite.slurm if request.gpus is None else suite.slurm.model_copy(update={"gpus": request.gpus})
    if request.processes is not None and slurm.gpus:
        raise UserError(
            f"--processes {request.processes}: is for jobs without GPUs; say slurm.gpus: 0 in the suite, or --gpus"
        )
    options = Options(request.jobs or 1, slurm.gpus or request.processes or 1, request.track)
    refuse(suite.budget.timed, options)
    return lambda planned, progress: submit_all(planned, store, slurm, options, suite.name, progress)


def refuse(timed: bool, options: Options) -> None:
    """Raise UserError if SLURM or submitit is not here, or if the runs cannot be submitted.

    `timed` says that budgets are in device seconds.
    """
    for command in ("sbatch", "squeue", "srun"):
        if shutil.which(command) is None:
            raise UserError(f"--launcher slurm: {command} is not on this machine; submit where SLURM's commands are")
    if find_spec("submitit") is None:
        raise UserError("--launcher slurm: needs submitit; pip install 'robust-cl-bench[slurm]'")
    if options.jobs > 1:
        raise UserError(f"--jobs {options.jobs}: SLURM decides how many runs go at a time; leave it away")
    if timed:
        raise UserError("budget.device_seconds: is calibrated on the machine that trains; use --launcher local there")


def submit_all(
    planned: Sequence[Planned], store: Store, settings: SlurmSettings, options: Options, suite: str, progress: Progress
) -> Summary:
    """Submit every run that is neither complete nor in the queue; return at once, with the submitted ones as `queued`.

    Logs lie below the suite's folder. Raises UserError if SLURM refuses, or if a batch does not divide among ranks.
    """
    refuse_odd_shares(planned, options.ranks)
    planned, complete = ready(planned, store)
    summary, known = Summary(), _in_queue(planned, store)
    left: list[Planned] = []
    for one in planned:
        if one.id in complete:
            summary.skipped.append(one.id)
        elif one.id in known:
            summary.queued.append(one.id)
        elif holder(store.run(one.id).folder) is not None:
            summary.busy.append(one.id)
        else:
            left.append(one)
    executor = _executor(store.suite(suite) / "slurm", settings, options, suite)
    awaited = {one.reference for one in left}
    for dependency, group in _waves(left, known, summary, store, progress):
        executor.update_parameters(additional_parameters=settings.extra | _dependent(dependency))
        works = [
            _Job(part, store.root.resolve(), registry.plugins(), settings.gpus, options)
            for part in parcels(group, awaited, settings.runs_per_job)
        ]
        for work, job in zip(works, _submitted(executor, works), strict=True):
            for one in work.runs:
                known[one.id] = job.job_id
                note(store.run(one.id), job.job_id, job.paths.stdout)
                summary.queued.append(one.id)
                progress.run_finished(one.run, f"job {job.job_id}", f"after job {dependency}" if dependency else "")
    return summary


def parcels(group: Sequence[Planned], awaited: Collection[str | None], most: int) -> list[tuple[Planned, ...]]:
    """Part runs into jobs of at most `most`, in their order; those that others wait for have jobs of their own."""
    alone = [(one,) for one in group if one.id in awaited]
    others = [one for one in group if one.id not in awaited]
    return alone + [tuple(others[start : start + most]) for start in range(0, len(others), most)]


def _in_queue(planned: Sequence[Planned], store: Store) -> dict[str, str]:
    """Return the jobs of runs that are in the queue, by the run's id."""
    by_run = jobs(store.run(one.id) for one in planned)
    return {identity: job.id for identity, job in by_run.items() if job.state is not None}


def _waves(
    left: list[Planned], known: dict[str, str], summary: Summary, store: Store, progress: Progress
) -> Iterator[tuple[str | None, list[Planned]]]:
    """Yield runs that can be submitted together, with the job they depend on; reference runs come first."""
    while left:
        waiting = {one.id for one in left}
        groups: dict[str | None, list[Planned]] = {}
        for one in [one for one in left if one.reference not in waiting]:
            left.remove(one)
            if not cannot_start(one, summary, store, progress):
                groups.setdefault(known.get(one.reference or ""), []).append(one)
        yield from groups.items()


def _executor(folder: Path, settings: SlurmSettings, options: Options, suite: str) -> Any:
    import submitit

    executor = submitit.SlurmExecutor(folder=folder.resolve())
    cpus = settings.cpus_per_gpu * max(1, settings.gpus, options.ranks)
    asked = {
        "partition": settings.partition,
        "account": settings.account,
        "constraint": settings.constraint,
        "mem": f"{settings.memory_gb}GB" if settings.memory_gb else None,
        "gpus_per_node": settings.gpus or None,
    }
    executor.update_parameters(
        setup=list(settings.setup) or None,
        job_name=f"bench-{suite}",
        time=minutes(settings.time),
        cpus_per_task=cpus,
        srun_args=["--cpus-per-task", str(cpus)],  # since 22.05 a step does not inherit it
        signal_delay_s=NOTICE,
        stderr_to_stdout=True,
        **{name: value for name, value in asked.items() if value is not None},
    )
    return executor


def _dependent(job: str | None) -> dict[str, Any]:
    """Return sbatch's options for a job that can be queued again, and waits for another one if any."""
    if job is None:
        return {"requeue": True}
    return {"requeue": True, "dependency": f"afterok:{job}", "kill-on-invalid-dep": "yes"}


def _submitted(executor: Any, works: Sequence[_Job]) -> list[Any]:
    """Submit jobs as arrays, a single one alone; return submitit's jobs. Raises UserError if sbatch refuses."""
    from submitit.core.utils import FailedJobError

    submitted: list[Any] = []
    longest = _longest_array() if len(works) > 1 else 1
    try:
        for start in range(0, len(works), longest):
            part = works[start : start + longest]
            if len(part) == 1:
                submitted.append(executor.submit(part[0]))
                continue
            with executor.batch():
                jobs_of_part = [executor.submit(work) for work in part]
            submitted += jobs_of_part
    except FailedJobError as error:
        raise UserError(f"--launcher slurm: sbatch says: {error}") from error
    return submitted


def _longest_array() -> int:
    """Return how many jobs the cluster allows in an array; SLURM's default if it does not say."""
    command = ["scontrol", "show", "config"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    limit = re.search(r"^MaxArraySize\s*=\s*(\d+)", shown, re.MULTILINE)
    return max(1, int(limit[1])) if limit else ARRAY


def minutes(time_limit: str) -> int:
    """Convert a time limit of sbatch ("90", "90:00", "1:30:00", "2-12", "2-12:30") to minutes, rounded up.

    >>> minutes("2-12:30")
    3630
    """
    days, dash, rest = time_limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash or len(parts) == 3:
        hours, mins, seconds = (*parts, 0, 0)[:3]
    else:
        hours, mins, seconds = (0, *parts, 0)[:3]
    return int(days or 0) * 1440 + hours * 60 + mins + (seconds > 0)


@dataclass(frozen=True)
class _Job:
    """The function that a job calls; submitit pickles it."""

    runs: tuple[Planned, ...]
    root: Path
    plugins: list[str]
    gpus: int
    options: Options

    def __call__(self) -> str:
        """Make the runs. Raises RuntimeError if one is not done in the end, so that dependent jobs do not start."""
        time_is_up: list[int] = []

        def stop(number: int, _frame: FrameType | None) -> None:
            time_is_up.append(number)
            os.kill(os.getpid(), signal.SIGTERM)

        signal.signal(signal.SIGUSR2, stop)
        for plugin in self.plugins:
            registry.add_plugin(plugin)
        options = replace(self.options, ranks=ranks(self.gpus, None, 1)) if self.gpus else self.options
        summary = self._made(options, time_is_up)
        left = [one.id for one in self.runs if one.id not in {*summary.done, *summary.skipped}]
        if not left:
            return "done"
        if (
            time_is_up
            and set(left) - set(summary.failed)
            and int(os.environ.get("SLURM_RESTART_COUNT", "0")) < RESTARTS
        ):
            subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True, timeout=60)
            return "queued again"
        if summary.interrupted and not time_is_up:
            time.sleep(NOTICE)  # preempted: SLURM queues a job again only if it has to end the job itself
        raise RuntimeError(f"{left[0][:16]}: {'failed' if left[0] in summary.failed else 'not finished'}; see above")

    def _made(self, options: Options, time_is_up: list[int]) -> Summary:
        """Make the runs; repeat while one is busy, for as long as a dead node may still seem to hold it."""
        store, deadline = Store(self.root), time.monotonic() + STALE_AFTER + 6 * PAUSE
        while True:
            if time_is_up:  # the signal came before a run began
                return Summary(interrupted=[one.id for one in self.runs])
            summary = run_all(list(self.runs), store, Progress(sys.stdout), options)
            if not summary.busy or time.monotonic() > deadline:
                return summary
            time.sleep(PAUSE)
