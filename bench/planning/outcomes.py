"""The outcomes of a suite's runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bench.planning.planned import Planned
from bench.store import Store

State = Literal["done", "busy", "interrupted", "failed"]


@dataclass
class Summary:
    """The ids of a suite's runs, by outcome."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  #: were complete before
    busy: list[str] = field(default_factory=list)  #: another process works on them
    failed: list[str] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)  #: handed to a cluster, now or before

    def add(self, state: State, identity: str) -> None:
        """Note the outcome of one run."""
        getattr(self, state).append(identity)


def is_complete(planned: Planned, store: Store) -> bool:
    """Return whether every number that the suite asks of the run is stored."""
    out = store.run(planned.id)
    return out.status()["state"] == "done" and all(out.has_records(key) for key in planned.evaluation_keys())
