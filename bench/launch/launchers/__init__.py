"""Launchers decide where the runs of a suite are executed. A new one is a module here and an entry of `LAUNCHERS`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from bench.errors import UserError
from bench.registry import Registry, lazy

if TYPE_CHECKING:
    from bench.console.progress import Progress
    from bench.planning.outcomes import RunOutcomes
    from bench.planning.planned import Planned
    from bench.store import Store
    from bench.suite.suite import Suite

Launch: TypeAlias = "Callable[[list[Planned], Progress], RunOutcomes]"  #: executes runs, or submits them


@dataclass(frozen=True)
class LaunchOptions:
    """Request of `run_suite` to a launcher, which then settles `ranks`. No option changes a result."""

    jobs: int = 0  #: runs that are executed at the same time; 0: as many as suit this machine
    gpus: int | None = None  #: GPUs per run; each has a process of its own
    processes: int | None = None  #: processes per run on a machine without GPUs
    track: str | None = None  #: tracker that metrics are streamed to, a key of `bench.launch.trackers.TRACKERS`
    #: when the runs were offered to several workers, in ns by the file system's clock: a run that another worker has
    #: completed, or that failed since, is not started
    queued: int | None = None
    ranks: int = 1  #: processes per run; each takes a GPU if the machine has any
    ignore_second_sigint: bool = False  #: whether a second SIGINT does not end the process, because Ray repeats it


SEQUENTIAL = LaunchOptions(jobs=1)  #: one run after the other, each in the calling process


@dataclass(frozen=True)
class Launcher:
    """One way to execute runs."""

    name: str  #: the word of `--launcher NAME`
    about: str  #: one line for the documentation
    #: (suite, store, options) -> a function that executes planned runs. It is called before anything is planned or
    #: timed, and raises UserError if this machine cannot do what the options ask.
    prepare: Callable[[Suite, Store, LaunchOptions], Launch]
    #: (suite, `--gpus`) -> the number of GPUs per run where it is stated; 0: those of this machine, if any
    gpus: Callable[[Suite, int | None], int] = lambda _, given: given or 0


def find_launcher(name: str) -> Launcher:
    """Return a launcher by the word of `--launcher`. Raises UserError for an unknown one."""
    if message := LAUNCHERS.wrong(name):
        raise UserError(f"--launcher {message}")
    return LAUNCHERS[name]


LAUNCHERS: Registry[Launcher] = Registry(
    "a launcher",
    (
        Launcher("local", "on this machine", lazy(f"{__name__}.local:prepare")),
        Launcher(
            "slurm",
            "as SLURM jobs, as the suite's slurm section says",
            lazy(f"{__name__}.slurm:prepare"),
            lambda suite, given: suite.slurm.nodes * (suite.slurm.gpus if given is None else given),
        ),
        Launcher(
            "ray",
            "as tasks of a Ray cluster, as the suite's ray section says",
            lazy(f"{__name__}.ray:prepare"),
            lambda suite, given: math.ceil(suite.ray.gpus or 0) if given is None else given,
        ),
    ),
)
