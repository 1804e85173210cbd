"""One command that all ranks run: rank 0 does it, the others help it train."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path

from bench.errors import UserError
from bench.launch.nodes.follower import Follower
from bench.launch.nodes.leader import Leader
from bench.launch.nodes.meeting import Meeting
from bench.launch.nodes.place import Place

_leader: ContextVar[Leader | None] = ContextVar("leader", default=None)


def on_all_ranks(place: Place, root: Path, lead: Callable[[], int]) -> int:
    """Call `lead` in rank 0 and return its exit code in all ranks; the others train the runs that it trains.

    root: the folder of results, which all ranks share. Raises what `lead` raises, in rank 0; the others then return 2
    after a UserError, else 1. Raises UserError if the ranks do not meet.
    """
    meeting = Meeting(place)
    if place.rank:
        return Follower(meeting, root).follow()
    code, leader = 1, Leader(meeting)
    token = _leader.set(leader)
    try:
        code = lead()
    except UserError:
        code = 2
        raise
    finally:
        _leader.reset(token)
        leader.dismiss(code)
    return code


def leader() -> Leader | None:
    """Return rank 0's side of the meeting, inside of `on_all_ranks`; None if this process works alone."""
    return _leader.get()
