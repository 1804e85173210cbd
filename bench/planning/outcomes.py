"""Outcomes of a suite's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from bench.planning.planned import Planned
from bench.store import Damaged, RunStore, Store
from bench.store.verify import refuse_changed_in_run, run_problems
from bench.training.checkpoint import weights_name

RunOutcome = Literal["done", "busy", "interrupted", "failed", "full"]  #: "full": interrupted, because the disk is full


@dataclass
class RunOutcomes:
    """The ids of a suite's runs, by outcome."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  #: were complete before
    busy: list[str] = field(default_factory=list)  #: another process works on them
    failed: list[str] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)  #: handed to a cluster, now or before
    full: list[str] = field(default_factory=list)  #: messages of runs that were interrupted because the disk is full

    def add(self, state: RunOutcome, identity: str, message: str) -> None:
        """Note the outcome of one run."""
        own = {"done": self.done, "busy": self.busy, "failed": self.failed}
        own.get(state, self.interrupted).append(identity)
        self.full += [message] if state == "full" else []

    def merge(self, other: RunOutcomes) -> None:
        """Add the outcomes of another summary; ids that are here already, as suites share runs, are not added again."""
        for state, own in vars(self).items():
            own += [identity for identity in vars(other)[state] if identity not in own]


def is_complete(planned: Planned, store: Store) -> bool:
    """Return whether every number that the suite asks of the run is stored, and nothing of the run is damaged."""
    out = store.run(planned.id)
    finished = out.status()["state"] == "done" and all(out.has_records(key) for key in planned.evaluation_keys())
    return finished and not run_problems(out)


def split_complete(planned: Sequence[Planned], store: Store) -> tuple[list[Planned], set[str]]:
    """Return the runs, and the ids of those of which nothing is to be made.

    A run is marked as `lent` if one that is not complete starts from its final weights. It then has to have them, as
    they were when it was finished; if it is not lent and is no row of its suite, it is not made.
    """
    complete = {one.id for one in planned if is_complete(one, store)}
    starts = {one.reference for one in planned if one.id not in complete}
    marked = [replace(one, lent=one.lent or one.id in starts) for one in planned]
    complete |= {one.id for one in marked if not (one.lent or one.run.measured)}
    return marked, complete - {one.id for one in marked if one.lent and not _has_weights(store.run(one.id))}


def _has_weights(run: RunStore) -> bool:
    name = weights_name(1.0)
    try:
        refuse_changed_in_run(run, name)
    except Damaged:
        return False
    return run.path(name).exists()
