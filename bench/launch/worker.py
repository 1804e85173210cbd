"""Workers: processes on any machines that share a folder of results, and make the runs that are queued there.

`queue` stores a suite in the folder. A worker does for every queued suite what `bench run` does on one machine; claims
keep two of them from one run. It leaves out the runs that others hold, and looks again when one of these is released.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.console import progress
from bench.console.text import echo
from bench.errors import UserError, nearest
from bench.launch.launchers import Request, local
from bench.launch.run_suite import SuiteRuns
from bench.launch.trackers import refuse_missing
from bench.planning import plan_file, requirements, tune
from bench.planning.outcomes import Summary
from bench.store import Store
from bench.store.claim import holder
from bench.store.run import SHORT
from bench.suite.suite import Suite, parse_suite
from bench.training.inputs import InputsReader
from bench.yaml_source import YamlSource

PAUSE = 2.0  #: seconds between looks at the claims of others


def queue(suite: Suite, results: Path, only: Sequence[str] = (), seeds: Sequence[int] = ()) -> int:
    """Plan a suite and offer its runs to workers, trials of `tune` first; train nothing. Return the number of runs.

    only, seeds: the labels and seeds to run; empty means all. A suite that is queued already is queued anew: its runs
    that failed are tried again. Raises UserError for bad settings and for what `bench run` would miss on this machine.
    """
    suite.narrowed(only, seeds)  # refuses unknown labels and seeds before anything is planned
    requirements.refuse(suite)
    store, reader = Store(results), InputsReader()
    with progress.on() as shown:
        choices = tune.known(suite, store, reader, shown) if suite.tune else {}
        planned = plan_file.write(tune.tuned(suite, choices).narrowed(only, seeds), choices, store, True, reader, shown)
    store.queue(suite.name, {"suite": as_written(suite), "only": list(only), "seeds": list(seeds)})
    return len(planned)


def as_written(suite: Suite) -> dict[str, Any]:
    """Return settings that `parse_suite` reads as this suite; kinds of noise and budgets are lists, as in a file."""
    settings = suite.model_dump(mode="json", exclude_unset=True)
    for section, name in ((settings, "noise"), (settings, "budget"), (settings.get("tune") or {}, "budget")):
        if others := (section.get(name) or {}).pop("others", None):
            section[name] = [section[name], *others]
    return settings


@dataclass(frozen=True)
class _Queued:
    """A queued suite as this worker read it."""

    since: int  #: when it was queued
    suite: SuiteRuns


def work_off(results: Path, names: Sequence[str], request: Request) -> Summary:
    """Make the runs of the suites `names`, with none of all that are queued, until no run is left to make.

    results: a folder that all workers share. Runs that others hold are waited for, and taken over if their holder
    dies. Returns the final state of each run; `skipped` are those that others made. It ends early only on a stop
    request, with the rest as `interrupted`. Raises UserError if nothing is queued, and for what this machine lacks.
    """
    if request.track is not None:
        refuse_missing(request.track)
    store = Store(results)
    names = _queued(store, names)
    done: dict[str, None] = {}
    known: dict[str, _Queued | None] = {}
    while True:
        total = Summary()
        for name in names:
            known[name] = runs = _runs(name, store, request, known.get(name))
            if runs is not None:
                total.merge(runs.suite.make())
            if total.interrupted:
                break
        done |= dict.fromkeys(total.done)
        if total.interrupted or not total.busy:
            total.done = list(done)
            total.skipped = [one for one in total.skipped if one not in done]
            return total
        _wait(store, total.busy)


def _queued(store: Store, names: Sequence[str]) -> list[str]:
    """Return the names, or those of all queued suites if there are none. Raises UserError for one that is not."""
    known = store.queues()
    if not known:
        raise UserError(f"{store.root}: no suite is queued here; `bench run SUITE --plan-only` queues one")
    for name in names:
        if name not in known:
            raise UserError(f"--suite {name}: is not queued in {store.root}{nearest(name, known)}")
    return list(names) or known


def _runs(name: str, store: Store, request: Request, before: _Queued | None) -> _Queued | None:
    """Return the runs of a queued suite; those of `before` unless it was queued anew; None if somebody deleted it."""
    queued = store.queued(name)
    if queued is None:
        return None
    content, since = queued
    if before is not None and before.since == since:
        return before
    suite = _suite(store, name, content)
    requirements.refuse(suite)
    launch = local.prepare(suite, store, Request(**{**vars(request), "queued": since}))
    return _Queued(since, SuiteRuns(suite, store, launch, content["only"], content["seeds"]))


def _suite(store: Store, name: str, content: Mapping[str, Any]) -> Suite:
    source = YamlSource(str(store.suite(name) / "queue.json"), content["suite"], {})
    suite = parse_suite(source)
    if suite.name != name:
        raise UserError(f"{source.name}: holds the suite {suite.name}, not {name}; queue {name} again")
    suite.narrowed(content["only"], content["seeds"])
    return suite


def _wait(store: Store, busy: Sequence[str]) -> None:
    """Wait until a run that was busy has no live holder any more. A run that waits for another one has none itself."""
    held = {identity: there for identity in busy if (there := holder(store.run(identity).folder)) is not None}
    for identity, there in held.items():
        who = f"process {there['pid']} on {there['host']}"
        echo(f"waiting for run {identity[:SHORT]}, which {who} holds", err=True)
    time.sleep(PAUSE)
    while held and all(holder(store.run(identity).folder) is not None for identity in held):
        time.sleep(PAUSE)
