"""Submit SLURM jobs through submitit, by default one for each run.

Runs that can start at once form an array; a run that starts from another one depends on that one's job. What a job
does is in bench/launch/slurm_job.py. A job of one node is one task, which starts the ranks of its runs; a job over
several nodes has a task for each rank.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.adapters import registry
from bench.console.text import echo
from bench.errors import UserError
from bench.launch.claimed import Call
from bench.launch.launchers import Launch, LaunchOptions
from bench.launch.launchers.local import refuse_odd_shares
from bench.launch.slurm_job import NOTICE_SECONDS, SlurmJob
from bench.planning.outcomes import RunOutcomes, split_complete
from bench.planning.planned import Planned
from bench.store import Store
from bench.store.claim import live_holder
from bench.store.jobs import note_job, submitted_jobs
from bench.suite.launcher_settings import SlurmSettings
from bench.suite.suite import Suite

MAX_ARRAY = 1000  #: jobs of an array
#: options of srun with several tasks: a rank may use all cores of its node's share, as under torchrun, and when a rank
#: has ended, the others decide by themselves what follows
SRUN_OPTIONS = ("--cpu-bind=none", "--kill-on-bad-exit=0", "--wait=0")


def prepare(suite: Suite, store: Store, options: LaunchOptions) -> Launch:
    """See `bench.launch.launchers.Launcher`. `options.gpus` overrides the suite's own number."""
    for command in ("sbatch", "squeue", "srun"):
        if shutil.which(command) is None:
            raise UserError(f"--launcher slurm: {command} is not on this machine; submit where SLURM's commands are")
    if find_spec("submitit") is None:
        raise UserError("--launcher slurm: needs submitit; pip install 'robust-cl-bench[slurm]'")
    if options.jobs > 1:
        raise UserError(f"--jobs {options.jobs}: SLURM decides how many runs go at a time; omit it")
    if suite.budget[0].timed:
        raise UserError("budget.device_seconds: is calibrated on the machine that trains; use --launcher local there")
    slurm = suite.slurm if options.gpus is None else suite.slurm.model_copy(update={"gpus": options.gpus})
    if options.processes is not None and slurm.gpus:
        raise UserError(
            f"--processes {options.processes}: is for jobs without GPUs; set slurm.gpus: 0 in the suite, or give --gpus"
        )
    settled = replace(options, jobs=1, ranks=slurm.gpus or options.processes or 1)
    return lambda planned, progress: submit_all(planned, Call(store, progress, settled), slurm, suite.name)


def submit_all(planned: Sequence[Planned], call: Call, settings: SlurmSettings, suite: str) -> RunOutcomes:
    """Submit every run that is neither complete nor in the queue; return at once, with the submitted ones as `queued`.

    Logs lie below the suite's folder. Raises UserError if SLURM refuses, or if a batch does not divide among ranks.
    """
    store, options, summary = call.store, call.options, call.summary
    planned, complete = split_complete(planned, store)
    refuse_odd_shares([one for one in planned if one.id not in complete], settings.nodes * options.ranks)
    last = submitted_jobs(store.run(one.id) for one in planned)
    known = {identity: job.id for identity, job in last.items() if job.state is not None}
    left: list[Planned] = []
    for one in planned:
        if one.id in complete:
            summary.skipped.append(one.id)
        elif one.id in known:
            summary.queued.append(one.id)
        elif live_holder(store.run(one.id).folder) is not None:
            summary.busy.append(one.id)
        else:
            left.append(one)
    for command in settings.setup if left else ():
        echo(f"slurm.setup, before each job: {command}", err=True)
    executor = _executor(store.suite(suite) / "slurm", settings, options, suite)
    awaited = {one.reference for one in left}
    for dependency, group in _waves(left, known, call):
        awaits = {"dependency": f"afterok:{dependency}", "kill-on-invalid-dep": "yes"} if dependency else {}
        executor.update_parameters(additional_parameters=settings.extra | {"requeue": True} | awaits)
        works = [
            SlurmJob(part, store.root.resolve(), registry.known_plugins(), settings.gpus, options)
            for part in job_groups(group, awaited, settings.runs_per_job)
        ]
        for work, job in _submitted(executor, works):
            for one in work.runs:
                known[one.id] = job.job_id
                note_job(store.run(one.id), job.job_id, job.paths.stdout)
                summary.queued.append(one.id)
                after = f"after job {dependency}" if dependency else ""
                call.progress.run_finished(one.run.title, f"job {job.job_id}", after)
    return summary


def job_groups(group: Sequence[Planned], awaited: Collection[str | None], most: int) -> list[tuple[Planned, ...]]:
    """Part runs into jobs of at most `most`, in their order; those that others wait for have jobs of their own."""
    alone = [(one,) for one in group if one.id in awaited]
    others = [one for one in group if one.id not in awaited]
    return alone + [tuple(others[start : start + most]) for start in range(0, len(others), most)]


def _waves(left: list[Planned], known: dict[str, str], call: Call) -> Iterator[tuple[str | None, list[Planned]]]:
    """Yield runs that can be submitted together, with the job they depend on; reference runs come first."""
    while left:
        waiting = {one.id for one in left}
        groups: dict[str | None, list[Planned]] = {}
        for one in [one for one in left if one.reference not in waiting]:
            left.remove(one)
            if not call.cannot_start(one):
                groups.setdefault(known.get(one.reference or ""), []).append(one)
        yield from groups.items()


def _executor(folder: Path, settings: SlurmSettings, options: LaunchOptions, suite: str) -> Any:
    import submitit

    executor = submitit.SlurmExecutor(folder=folder.resolve())
    tasks = options.ranks if settings.nodes > 1 else 1  # of a node
    cpus = settings.cpus_per_gpu * options.ranks // tasks
    asked = {
        "ntasks_per_node": tasks if settings.nodes > 1 else None,
        "partition": settings.partition,
        "account": settings.account,
        "constraint": settings.constraint,
        "mem": f"{settings.memory_gb}GB" if settings.memory_gb else None,
        "gpus_per_node": settings.gpus or None,
    }
    executor.update_parameters(
        setup=list(settings.setup) or None,
        job_name=f"bench-{suite}",
        time=time_limit_minutes(settings.time),
        nodes=settings.nodes,
        cpus_per_task=cpus,
        srun_args=["--cpus-per-task", str(cpus), *(SRUN_OPTIONS if settings.nodes > 1 else ())],
        signal_delay_s=NOTICE_SECONDS,
        stderr_to_stdout=True,
        **{name: value for name, value in asked.items() if value is not None},
    )
    return executor


def _submitted(executor: Any, works: Sequence[SlurmJob]) -> Iterator[tuple[SlurmJob, Any]]:
    """Submit jobs as arrays, a single one alone, and yield each with submitit's job before the next array.

    Raises UserError if sbatch refuses an array, as where a user has too many jobs; those before it are in the queue.
    """
    from submitit.core.utils import FailedJobError

    longest = _longest_array() if len(works) > 1 else 1
    try:
        for start in range(0, len(works), longest):
            part = works[start : start + longest]
            if len(part) == 1:
                yield part[0], executor.submit(part[0])
                continue
            with executor.batch():
                jobs_of_part = [executor.submit(work) for work in part]
            yield from zip(part, jobs_of_part, strict=True)
    except FailedJobError as error:
        raise UserError(f"--launcher slurm: sbatch says: {error}") from error


def _longest_array() -> int:
    """Return how many jobs the cluster allows in an array; SLURM's default if it does not say."""
    command = ["scontrol", "show", "config"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    limit = re.search(r"^MaxArraySize\s*=\s*(\d+)", shown, re.MULTILINE)
    return max(1, int(limit[1])) if limit else MAX_ARRAY


def time_limit_minutes(time_limit: str) -> int:
    """Convert a time limit of sbatch ("90", "90:00", "1:30:00", "2-12", "2-12:30") to minutes, rounded up.

    >>> time_limit_minutes("2-12:30")
    3630
    """
    days, dash, rest = time_limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash or len(parts) == 3:
        hours, mins, seconds = (*parts, 0, 0)[:3]
    else:
        hours, mins, seconds = (0, *parts, 0)[:3]
    return int(days or 0) * 1440 + hours * 60 + mins + (seconds > 0)
