"""Where runs run: in this process, in several on this machine, or in jobs of SLURM."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.errors import UserError, nearest

if TYPE_CHECKING:
    from bench.console.progress import Progress
    from bench.planning.outcomes import Summary
    from bench.planning.planned import Planned
    from bench.store import Store
    from bench.suite.suite import Suite

LAUNCHERS = ("local", "slurm")


def launcher_of(
    name: str, suite: Suite, store: Store, *, jobs: int, gpus: int | None, processes: int | None, track: str | None
) -> Callable[[list[Planned], Progress], Summary]:
    """What makes runs, or has them made, as the options of `bench run` say; says what became of them.

    UserError, before anything is planned or timed, for what this machine cannot do. With SLURM, `gpus` goes before the
    suite's own number.
    """
    from bench.launch.claimed import Options
    from bench.launch.local import refuse_sharing, run_all
    from bench.launch.trackers import refuse_missing
    from bench.launch.world_size import ranks

    if name not in LAUNCHERS:
        raise UserError(f"--launcher {name}: should be {' or '.join(LAUNCHERS)}{nearest(name, LAUNCHERS)}")
    if track is not None:
        refuse_missing(track)
    timed = suite.budget.kind == "device_seconds"
    if name == "local":
        options = Options(jobs, ranks(gpus, processes, jobs), track)
        refuse_sharing(timed, options)
        return lambda todo, progress: run_all(todo, store, progress, options)
    from bench.launch.slurm import refuse, submit_all

    slurm = suite.slurm if gpus is None else suite.slurm.model_copy(update={"gpus": gpus})
    if processes is not None and slurm.gpus:
        raise UserError(f"--processes {processes}: is for jobs without GPUs; say slurm.gpus: 0 in the suite, or --gpus")
    options = Options(jobs, slurm.gpus or processes or 1, track)
    refuse(timed, options)
    return lambda todo, progress: submit_all(todo, store, slurm, options, suite.name, progress)
