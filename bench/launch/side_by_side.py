"""Make several runs at a time, or one run on several processes; each run has a team of processes of its own.

Small towers leave most of a machine idle, large ones need all of its GPUs. Every process computes with the suite's
`train.threads`, and on a machine with GPUs each takes one in turn. The number of jobs changes no result.
"""

from __future__ import annotations

from collections.abc import Collection
from multiprocessing.connection import wait

from bench.console.progress import Progress
from bench.launch.claimed import Options, cannot_start
from bench.launch.nursery import Flag, Nursery
from bench.launch.team import Team, TeamContext
from bench.planning.outcomes import Summary
from bench.planning.planned import Planned
from bench.store import Store


def run_side_by_side(
    waiting: list[Planned], summary: Summary, store: Store, progress: Progress, requested: list[int], options: Options
) -> None:
    """Make the runs `waiting` in `options.jobs` teams of `options.ranks`; add the final state of each to `summary`.

    Embedded data is read once, before processes are forked that share it. After a stop request every process writes
    its checkpoint and ends. A process that dies fails only its own run.
    """
    waiting, before = list(waiting), len(summary.skipped)
    total, started = before + len(waiting), before
    shared = TeamContext(Nursery(), store, options, Flag())
    teams: list[Team] = []
    try:
        shared.read_data([one.run for one in waiting])
        while True:
            if requested:
                shared.stop.set()
            stopping = shared.stop.is_set()  # a process that gets SIGTERM itself sets the event, but not `requested`
            wanted = 0 if stopping else min(options.jobs, len(teams) + len(waiting))
            teams += (Team(shared, number, progress) for number in range(len(teams), wanted))
            for team in teams:
                running = {other.one.id for other in teams if other.one}
                one = None if team.one or stopping else _next(waiting, running, summary, shared, progress)
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
        shared.nursery.close()
        shared.stop.close()
    summary.interrupted += [one.id for one in waiting]


def _next(
    waiting: list[Planned], running: Collection[str], summary: Summary, shared: TeamContext, progress: Progress
) -> Planned | None:
    """Remove and return the first run of `waiting` that can start now; also remove runs before it that never can."""
    ahead = set(running)
    for one in list(waiting):
        if one.reference in ahead:
            ahead.add(one.id)
            continue
        waiting.remove(one)
        if not cannot_start(one, summary, shared.store, progress, shared.options.queued):
            return one
    return None
