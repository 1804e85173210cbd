"""Workers: processes on any machines that share a folder of results, and execute the runs that are queued there.

`queue_suite` stores a suite in the folder. A worker does for every queued suite what `bench run` does on one machine;
claims keep two of them from executing the same run. It skips the runs that others hold, and checks again when one of
them is released.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.console import progress
from bench.console.text import echo
from bench.errors import UserError, nearest
from bench.launch.launchers import LaunchOptions, local
from bench.launch.run_suite import SuiteRuns
from bench.launch.trackers import refuse_missing_tracker
from bench.planning import plan_file, requirements, tune
from bench.planning.outcomes import RunOutcomes
from bench.planning.planner import Planner
from bench.store import Store
from bench.store.claim import live_holder
from bench.store.run import SHORT_ID
from bench.suite.suite import Suite, parse_suite
from bench.yaml_source import YamlSource

POLL_SECONDS = 2.0  #: seconds between checks of the claims of others


def queue_suite(suite: Suite, results: Path, only: Sequence[str] = (), seeds: Sequence[int] = ()) -> int:
    """Plan a suite and offer its runs to workers, trials of `tune` first; train nothing. Return the number of runs.

    only, seeds: the labels and seeds to run; empty means all. A suite that is queued already is queued again: its runs
    that failed are tried again. Raises UserError for bad settings and for what `bench run` would miss on this machine.
    """
    suite = suite.narrowed(only, seeds)
    requirements.refuse_missing_inputs(suite)
    with progress.progress_on() as shown:
        planner = Planner(Store(results), shown=shown)
        choices = tune.follow_trials(suite.narrowed(), planner).choices
        planned = plan_file.write_plan(tune.tuned_suite(suite, choices), choices, planner)
    written = suite.model_dump(mode="json", exclude_unset=True)  # `parse_suite` reads it as this suite
    planner.store.queue(suite.name, {"suite": written, "only": list(only), "seeds": list(seeds)})
    return len(planned)


def work_on_queue(results: Path, names: Sequence[str], options: LaunchOptions) -> RunOutcomes:
    """Execute the runs of the suites `names`, by default of all queued ones, until none is left.

    results: a folder that all workers share. Runs that others hold are waited for, and taken over if their holder
    dies. Returns the final state of each run; `skipped` are those that others made. It ends early only on a stop
    request, with the rest as `interrupted`. Raises UserError if nothing is queued, and for what this machine lacks.
    """
    if options.track is not None:
        refuse_missing_tracker(options.track)
    store = Store(results)
    if not (offered := store.queues()):
        raise UserError(f"{results}: no suite is queued here; `bench run SUITE --plan-only` queues one")
    for name in names:
        if name not in offered:
            raise UserError(f"--suite {name}: is not queued in {results}{nearest(name, offered)}")
    done: dict[str, None] = {}
    known: dict[str, tuple[int, SuiteRuns]] = {}  #: when each suite was queued, and its runs
    while True:
        total = RunOutcomes()
        for name in names or offered:
            if (queued := store.queued(name)) is None:  # somebody deleted it
                continue
            content, since = queued
            if name not in known or known[name][0] != since:
                known[name] = since, _runs(name, content, store, replace(options, queued=since))
            total.merge(known[name][1].make())
            if total.interrupted:
                break
        done |= dict.fromkeys(total.done)
        if total.interrupted or not total.busy:
            total.done = list(done)
            total.skipped = [one for one in total.skipped if one not in done]
            return total
        _wait(store, total.busy)


def _runs(name: str, content: Mapping[str, Any], store: Store, options: LaunchOptions) -> SuiteRuns:
    """Return the runs of a queued suite."""
    source = YamlSource(str(store.suite(name) / "queue.json"), content["suite"], {})
    suite = parse_suite(source).narrowed(content["only"], content["seeds"])
    if suite.name != name:
        raise UserError(f"{source.name}: holds the suite {suite.name}, not {name}; queue {name} again")
    requirements.refuse_missing_inputs(suite)
    return SuiteRuns(suite, Planner(store), local.prepare(suite, store, options))


def _wait(store: Store, busy: Sequence[str]) -> None:
    """Wait until a run that was busy has no live holder any more. A run that waits for another one has none itself."""
    held = {identity: there for identity in busy if (there := live_holder(store.run(identity).folder)) is not None}
    for identity, there in held.items():
        who = f"process {there['pid']} on {there['host']}"
        echo(f"waiting for run {identity[:SHORT_ID]}, which {who} holds", err=True)
    time.sleep(POLL_SECONDS)
    while held and all(live_holder(store.run(identity).folder) is not None for identity in held):
        time.sleep(POLL_SECONDS)
