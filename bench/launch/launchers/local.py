"""Execute runs on this machine: in turn in this process, side by side, or with the ranks of torchrun.

A run that fails stops no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.console.progress import Progress
from bench.errors import DiskFull, UserError
from bench.launch.claimed import Call, work_on_run
from bench.launch.launchers import SEQUENTIAL, Launch, LaunchOptions
from bench.launch.ranks import gpu_count
from bench.launch.side_by_side import run_side_by_side
from bench.launch.torchrun import current_ranks, launcher_place
from bench.machine.capacity import cores, free_memory
from bench.machine.device_lock import hold_device
from bench.machine.processes import stop_requests
from bench.planning.outcomes import RunOutcomes, split_complete
from bench.planning.planned import Planned
from bench.store import Store
from bench.store.claim import live_holder
from bench.suite.suite import Suite
from bench.towers.batchnorm import grouped_norms
from bench.training.inputs import InputsReader
from bench.training.job import build_model

MIN_PARALLEL_FLOPS = 3e11  #: training FLOPs, ten seconds of a core: below, a second process is not worth its start
RUN_MEMORY = 2 << 30  #: bytes of host memory that a run is assumed to need


def prepare(suite: Suite, store: Store, options: LaunchOptions) -> Launch:
    """See `bench.launch.launchers.Launcher`."""
    ranks = _all_ranks(options) or ranks_of_a_run(options.gpus, options.processes, options.jobs or 1)
    settled = replace(options, ranks=ranks)
    refuse_sharing(suite.budget[0].timed, settled)
    return lambda planned, progress: run_all(planned, store, progress, settled)


def suitable_jobs(waiting: Sequence[Planned], ranks: int) -> int:
    """Return how many of the waiting runs are executed at the same time if the user does not say (`--jobs auto`).

    One per GPU, or without GPUs one for each `train.threads` cores, as far as memory goes. One at a time if a
    budget is in seconds, if a run has several processes, or if all of them are soon done.
    """
    flops = sum(one.resolved.flops for one in waiting)
    if ranks > 1 or flops < MIN_PARALLEL_FLOPS or any(one.run.budget.timed for one in waiting):
        return 1
    jobs = gpu_count() or cores() // max(one.run.train.threads for one in waiting)
    free = free_memory()
    fitting = jobs if free is None else free // RUN_MEMORY
    return max(1, min(jobs, fitting, len(waiting)))


def _all_ranks(options: LaunchOptions) -> int | None:
    """Return the number of ranks that a launcher such as torchrun started for this call; None if there is no launcher.

    Raises UserError for options that such a launcher decides, and outside of `bench run` and `bench worker`.
    """
    here = launcher_place()
    if here is None:
        return None
    if current_ranks().world == 1:
        raise UserError(f"WORLD_SIZE: {here.world}: only `bench run` and `bench worker` run on several ranks; unset it")
    if options.gpus or options.processes or options.jobs > 1:
        raise UserError("--gpus, --processes, --jobs: torchrun says how many ranks execute a run, one run at a time")
    return here.world


def refuse_sharing(timed: bool, options: LaunchOptions) -> None:
    """Raise UserError if runs with a budget in device seconds would share the device or use several."""
    if timed and options.jobs > 1:
        raise UserError(
            f"--jobs {options.jobs}: runs with a budget in device seconds need the device alone; use --jobs 1"
        )
    if timed and options.ranks > 1:
        raise UserError(
            f"{options.ranks} processes per run: budgets in device seconds are calibrated on one device; use one, or a "
            "budget in epochs, samples or flops"
        )


def run_all(
    planned: list[Planned], store: Store, progress: Progress, options: LaunchOptions = SEQUENTIAL
) -> RunOutcomes:
    """Execute every run that is not complete, `options.jobs` at a time and reference runs before those that need them.

    Runs that another process held, and no longer holds when the others are finished, are tried again.
    With 0 jobs it is as many at a time as `suitable_jobs` says. Raises UserError if runs with a budget in device
    seconds would share the device or if a batch does not divide among the ranks, and DiskFull once the disk is full; no
    further run is then started.
    """
    call, left = Call(store, progress, options), planned
    summary = call.summary
    while left:
        left, complete = split_complete(left, store)
        summary.skipped += sorted(complete)
        if waiting := [one for one in left if one.id not in complete]:
            _make(waiting, call)
        if summary.full:
            raise DiskFull(summary.full[0])
        busy = [] if summary.interrupted else [one for one in planned if one.id in summary.busy]
        held = {one.id for one in busy if live_holder(store.run(one.id).folder) is not None}
        left = [one for one in busy if one.id not in held and one.reference not in held]
        summary.busy = [identity for identity in summary.busy if identity not in {one.id for one in left}]
    return summary


def _make(waiting: list[Planned], call: Call) -> None:
    timed, options = any(one.run.budget.timed for one in waiting), call.options
    refuse_sharing(timed, options)
    refuse_odd_shares(waiting, options.ranks)
    options = replace(options, jobs=options.jobs or suitable_jobs(waiting, options.ranks))
    call = replace(call, options=options)
    with stop_requests(options.ignore_second_sigint) as requested, hold_device(alone=timed):
        if current_ranks().world == 1 and (options.jobs > 1 or options.ranks > 1):
            run_side_by_side(waiting, call, requested)
        else:
            _run_in_turn(waiting, call, requested)


def _run_in_turn(waiting: list[Planned], call: Call, requested: list[int]) -> None:
    summary, progress = call.summary, call.progress
    before, total = len(summary.skipped), len(summary.skipped) + len(waiting)
    reader, together = InputsReader(), current_ranks()

    def should_stop() -> bool:
        return bool(requested) or together.orphaned()

    for number, one in enumerate(waiting):
        if call.cannot_start(one):
            continue
        progress.run_started(one.run.title, before + number, total)
        together.first(one)
        call.end(one, *work_on_run(one, call.store, progress, should_stop, call.options.track, reader, together))
        if should_stop() or together.lost or summary.full:
            summary.interrupted += [later.id for later in waiting[number + 1 :]]
            break


def ranks_of_a_run(gpus: int | None, processes: int | None, jobs: int) -> int:
    """Return the processes per run: `gpus` with a GPU each, or `processes` on CPUs, or 1 if neither is given.

    Raises UserError if the machine has fewer GPUs than `jobs` runs need, or if `processes` would leave GPUs idle.
    """
    available = gpu_count()
    if gpus is not None and processes is not None:
        raise UserError("--gpus and --processes: give one of them")
    if gpus is not None and gpus * jobs > available:
        more = f" x --jobs {jobs}" if jobs > 1 else ""
        instead = "" if available else f"; --processes {gpus} trains on as many CPU processes"
        raise UserError(f"--gpus {gpus}{more}: this machine has {available} GPUs that torch can use{instead}")
    if processes is not None and available:
        raise UserError(f"--processes {processes}: is for machines without GPUs, this one has {available}; use --gpus")
    return gpus or processes or 1


def refuse_odd_shares(planned: Sequence[Planned], ranks: int) -> None:
    """Raise UserError if a run's batch does not divide among the ranks.

    With BatchNorm in the towers, each rank's share must also be a multiple of `bn_group`.
    """
    known: set[tuple[object, ...]] = set()
    for run in (one.run for one in planned) if ranks > 1 else ():
        key = (run.towers, run.train.batch, run.train.bn_group)
        if key in known:
            continue
        known.add(key)
        batch, group = run.train.batch, run.train.bn_group
        if batch % ranks:
            raise UserError(f"train.batch: {batch} does not divide among {ranks} processes; use another number of them")
        if batch // ranks % group and grouped_norms(build_model(run, InputsReader().for_model(run))[0]):
            raise UserError(
                f"train.bn_group: {group} does not divide the {batch // ranks} pairs of batch {batch} that each of "
                f"{ranks} processes has; use fewer processes, or a smaller bn_group (which gives other runs)"
            )
