"""What a launcher is: where the runs of a suite are made. Adding one is one more entry of `LAUNCHERS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from bench.registry import Registry, lazy

if TYPE_CHECKING:
    from bench.console.progress import Progress
    from bench.planning.outcomes import Summary
    from bench.planning.planned import Planned
    from bench.store import Store
    from bench.suite.suite import Suite

    Launch: TypeAlias = Callable[[list[Planned], Progress], Summary]  #: makes runs, or has them made


@dataclass(frozen=True)
class Request:
    """How `bench run` was asked to make runs. Nothing of it changes what comes out."""

    jobs: int = 1  #: runs at a time
    gpus: int | None = None  #: GPUs a run, with a process each
    processes: int | None = None  #: processes a run, on a machine without GPUs
    track: str | None = None  #: where metrics are streamed as well, of `bench.launch.trackers.NAMES`


@dataclass(frozen=True)
class Launcher:
    """A place where runs are made."""

    name: str  #: as in `--launcher NAME`
    about: str  #: one line, for the documentation
    #: (suite, store, request) -> what makes planned runs. Raises UserError, before anything is planned or timed, for
    #: what this machine cannot do.
    prepare: Callable[[Suite, Store, Request], Launch]


LAUNCHERS: Registry[Launcher] = Registry(
    "a launcher",
    (
        Launcher("local", "on this machine", lazy("bench.launch.local:prepare")),
        Launcher("slurm", "one SLURM job a run, as the suite's slurm section says", lazy("bench.launch.slurm:prepare")),
    ),
)
