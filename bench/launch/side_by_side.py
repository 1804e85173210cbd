"""Several runs at a time, or several processes a run, each run in a team of its own.

Small towers leave most of a machine idle, large ones need all of its GPUs. Every process computes with the suite's
`train.threads`, and on a machine with GPUs each takes one in turn. The number of jobs changes no result.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection
from multiprocessing.connection import wait

from bench.console.progress import Progress
from bench.launch.claimed import Options, cannot_start
from bench.launch.team import Team, Yard
from bench.planning.outcomes import Summary
from bench.planning.planned import Planned
from bench.store import Store


def run_side_by_side(
    waiting: list[Planned], summary: Summary, store: Store, progress: Progress, requested: list[int], options: Options
) -> None:
    """Work off `waiting` in `options.jobs` teams of `options.ranks` and note in `summary` what became of each run.

    A stop request reaches every process, which then writes its checkpoint. A process that dies fails its run alone.
    """
    waiting, before = list(waiting), len(summary.skipped)
    total, started = before + len(waiting), before
    context = multiprocessing.get_context("spawn")
    yard = Yard(context, store, options, context.Event())
    teams: list[Team] = []
    try:
        teams += (Team(yard, number, progress) for number in range(min(options.jobs, len(waiting))))
        while True:
            if requested:
                yard.stop.set()
            stopping = yard.stop.is_set()  # a process that was asked itself has told the others, but not `requested`
            for team in teams:
                running = {other.one.id for other in teams if other.one}
                one = None if team.one or stopping else _next(waiting, running, summary, store, progress)
                if one:
                    team.begin(one, started, total)
                    started += 1
            busy = {connection: team for team in teams if team.one for connection in team.connections}
            if not busy:
                break
            ready = wait(list(busy), timeout=0.2)
            for connection in [connection for connection in busy if connection in ready]:
                busy[connection].listen(connection, summary)
    finally:
        for team in teams:
            team.close()
    summary.interrupted += [one.id for one in waiting]


def _next(
    waiting: list[Planned], running: Collection[str], summary: Summary, store: Store, progress: Progress
) -> Planned | None:
    """Take the first run out of `waiting` that can start now, and every one before it that never will."""
    ahead = set(running)
    for one in list(waiting):
        if one.reference in ahead:
            ahead.add(one.id)
            continue
        waiting.remove(one)
        if not cannot_start(one, summary, store, progress):
            return one
    return None
