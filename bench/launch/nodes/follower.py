"""A further rank: it trains and evaluates with rank 0, writes nothing to the store, and ends when rank 0 does."""

from __future__ import annotations

import base64
import contextlib
import math
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from bench.console.text import echo
from bench.errors import UNFINISHED
from bench.launch.claimed import assist, outcome
from bench.launch.nodes.leader import ANSWER
from bench.launch.nodes.meeting import GO, HERE, LEAVE, LEFT, LOOK, OVER, RUN, Meeting
from bench.machine.device_lock import device
from bench.planning.outcomes import State
from bench.planning.planned import Planned
from bench.store import Store
from bench.training.distributed import leave
from bench.training.inputs import InputsReader


class _Dismissed(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


class Follower:
    """A further rank's side of a meeting. SIGTERM and SIGINT ask all ranks to stop after the same step."""

    def __init__(self, meeting: Meeting, root: Path) -> None:
        self.meeting, self.store, self.reader = meeting, Store(root), InputsReader()
        self.leader_lost = False  #: whether rank 0 is gone, with its process or its machine
        self._requested: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _frame: self._requested.append(number))

    def follow(self) -> int:
        """Train run after run until rank 0 dismisses this one; return the exit code that it says.

        Returns 75 if rank 0 is lost, and after a stop request while nothing is trained.
        """
        number = 0
        try:
            while True:
                one: Planned = pickle.loads(base64.b85decode(self._await(RUN, number)))
                self.meeting.tell(HERE, number)
                self._await(GO, number)
                end = self._take_part(one, number)
                self.meeting.end(number, *end)
                leave()
                if end[0] == "failed":
                    self._await(OVER, number, ANSWER)
                number += 1
        except _Dismissed as dismissed:
            return dismissed.code
        except dist.DistError:
            self.leader_lost = True
            echo(f"rank {self.meeting.place.rank}: lost the connection to rank 0", err=True)
            return UNFINISHED
        finally:
            with contextlib.suppress(dist.DistError):
                self.meeting.tell(LEFT, 0)

    def _await(self, word: str, number: int, seconds: float = math.inf) -> str:
        """Wait for a word of rank 0 and return what it says. Raises _Dismissed if this rank is to end."""
        end = time.monotonic() + seconds
        while (said := self.meeting.heard(word, number)) is None:
            code = self.meeting.heard(LEAVE, 0)
            if code is not None:
                raise _Dismissed(int(code))
            if self._should_stop():
                raise _Dismissed(UNFINISHED)
            if time.monotonic() > end:
                raise dist.DistError("rank 0 says nothing")
            time.sleep(LOOK)
        return said

    def _take_part(self, one: Planned, number: int) -> tuple[State, str, dict[str, Any] | None]:
        try:
            with device(alone=False):
                self.meeting.join(number)
                return assist(one, self.store, self._should_stop, self.reader)
        except Exception as error:
            return outcome(error)

    def _should_stop(self) -> bool:
        return bool(self._requested) or self.meeting.orphaned
