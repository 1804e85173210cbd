"""Rank 0: it owns plan, claim and store, goes through the runs, and has the other ranks train each with it."""

from __future__ import annotations

import base64
import contextlib
import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from bench.launch.claimed import RankFailed, outcome
from bench.launch.nodes.meeting import GO, HERE, LEAVE, LEFT, OVER, RUN, End, Meeting
from bench.planning.planned import Planned
from bench.store import ClaimLost, Store
from bench.training.checkpoint import checkpoint_step
from bench.training.distributed import leave
from bench.training.loop import Interrupted

ANSWER = 60.0  #: seconds for an idle rank to answer
FAREWELL = 20.0  #: seconds for a rank to end after another one; torchrun kills what is left 30 s after a death


class RankLost(Interrupted):
    """Ranks are gone. The run goes on from its checkpoint when the same command starts again."""

    def __init__(self, ranks: list[int], step: int) -> None:
        names = f"rank {ranks[0]} is" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} are"
        super().__init__(step)
        self.args = (f"{names} lost; the last checkpoint is of step {step}",)


class Leader:
    """Rank 0's side of a meeting."""

    def __init__(self, meeting: Meeting) -> None:
        self.meeting = meeting
        self.lost: list[int] = []  #: ranks that are gone, so that no further run can start
        self._others = range(1, meeting.place.world)
        self._number = 0

    @contextmanager
    def together(self, one: Planned, store: Store) -> Iterator[None]:
        """Have all ranks join a process group, in which they train a run, and leave it in the end.

        If this rank fails because another one did, raises RankFailed with the other's error, and if ranks are gone,
        RankLost; the other ranks have left the group then as well.
        """
        number, self._number = self._number, self._number + 1
        try:
            self._call(number, one)
            self.meeting.join(number)
            yield
            self._hear(number)
        except Exception as error:
            raise self._reason(number, error, checkpoint_step(store.run(one.id)) or 0) from error
        finally:
            leave()

    def _call(self, number: int, one: Planned) -> None:
        """Send a run to all ranks and let them begin when all have answered. Raises RankLost if one does not."""
        self.meeting.tell(RUN, number, base64.b85encode(pickle.dumps(one)).decode())
        self.lost = self.meeting.wait(HERE, number, ANSWER)
        if self.lost:
            raise RankLost(self.lost, 0)
        self.meeting.tell(GO, number)

    def _hear(self, number: int) -> list[End]:
        """Return how the other ranks ended; note those that say nothing."""
        ends = self.meeting.ends(number, FAREWELL)
        self.lost = [rank for rank in self._others if rank not in {end.rank for end in ends}]
        self.meeting.tell(OVER, number)
        return ends

    def _reason(self, number: int, error: Exception, step: int) -> Exception:
        """Leave the group, which ends the step of the others; return the error that was the first."""
        ends: list[End] = []
        state, message, described = outcome(error)
        try:
            if not self.lost:
                own = self.meeting.end(number, state, message, described)
                leave()
                ends = [own, *self._hear(number)]
        except dist.DistError:  # what holds the keys is gone, with its machine or its process
            self.lost = list(self._others)
        if isinstance(error, Interrupted | ClaimLost) and not isinstance(error, RankLost):
            return error
        if self.lost:
            return RankLost(self.lost, step)
        first = min((end for end in ends if end.state == "failed"), key=lambda end: end.order)
        if first.message == message or first.error is None:  # all saw it, such as a loss that is not finite
            return error
        return RankFailed(first.rank, first.message, first.error)

    def dismiss(self, code: int) -> None:
        """Let the other ranks end with an exit code, and wait until they have heard it."""
        with contextlib.suppress(dist.DistError):
            self.meeting.tell(LEAVE, 0, str(code))
            if not self.lost:
                self.meeting.wait(LEFT, 0, FAREWELL)
