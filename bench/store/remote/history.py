"""Who owns a run in object storage: its history, numbered entries that are created once and never changed.

The entry with the highest number says how the run stands: claimed, released, failed, queued again or done. Whoever read
number N may create N + 1, and of all who try one succeeds. So a takeover and the end that the owner before writes
compete for the same name: a process that slept through a takeover cannot publish what it made.

No clock of another machine is read. An owner rewrites its beat; a claim may be taken over if the beat did not change
while the watcher itself waited for `STALE_AFTER`, or at once if the owner was a process of this machine that is gone.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

from bench.errors import UserError
from bench.store import process
from bench.store.claim import STALE_AFTER
from bench.store.fence import Busy
from bench.store.remote.objects import Objects

HEARTBEAT = 60.0  #: seconds between beats; each is a request that object storage charges for
State = Literal["missing", "claimed", "released", "failed", "queued", "done"]
_OWNER = {"host": str, "namespace": str, "pid": int, "started": str, "token": str}


class History:
    """The entries of one run: `state`, the `token` of the writer, and `result` once the run has one.

    A result is {"number": of the entry that published it, "sha256": of its archive, "evaluations": keys}. Later entries
    carry it on, because a suite may want further evaluations of a finished run.
    """

    def __init__(self, objects: Objects, identity: str) -> None:
        self.objects = objects
        self.id = identity

    def name(self, part: str) -> str:
        """Return the name of an object of this run."""
        return f"runs/{self.id}/{part}"

    def last(self) -> tuple[int, dict[str, Any]]:
        """Return the highest number and its entry; 0 and the state `missing` if nobody claimed the run yet."""
        numbers = [int(name) for name in self.objects.names(self.name("history")) if name.isdecimal()]
        if not numbers:
            return 0, {"state": "missing"}
        return max(numbers), self._entry(max(numbers))

    def append(self, number: int, state: State, entry: dict[str, Any]) -> bool:
        """Create the entry of this number. Returns False, and changes nothing, if another process created it.

        A request that storage answered twice, because the first answer was lost, counts by the token that stands.
        """
        content = {**entry, "state": state, "entry": uuid.uuid4().hex}
        created = self.objects.create(self.name(f"history/{number}"), json.dumps(content).encode())
        return created or self._entry(number).get("entry") == content["entry"]

    def _entry(self, number: int) -> dict[str, Any]:
        name = self.name(f"history/{number}")
        try:
            entry = json.loads(self.objects.read(name) or b"")
            if isinstance(entry["state"], str) and (
                entry["state"] != "claimed" or all(type(entry[key]) is kind for key, kind in _OWNER.items())
            ):
                return dict(entry)
        except (ValueError, KeyError, TypeError):
            pass
        raise UserError(f"{self.objects.url}/{name}: is no entry of a run's history; remove the run's objects")


class Watch:
    """Which beats this process saw last, and when by its own clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, stale_after: float = STALE_AFTER) -> None:
        """clock: seconds since any moment. stale_after: seconds without another beat that end a claim."""
        self._clock, self._stale_after = clock, stale_after
        self._seen: dict[str, tuple[int, bytes | None, float]] = {}

    def is_dead(self, history: History, number: int, owner: dict[str, Any]) -> bool:
        """Return whether the owner of a claim is gone, as far as this process can know."""
        if process.is_dead(owner):
            return True
        now = self._clock()  # before the beat is read: a process that sleeps in between must not call it old
        beat = history.objects.read(history.name(f"beat/{number}"))
        seen = self._seen.get(history.id)
        if seen is None or seen[:2] != (number, beat):
            self._seen[history.id] = (number, beat, now)
            return False
        return now - seen[2] > self._stale_after


class Held:
    """A run that this process owns, as a context manager, in which a thread keeps the beat."""

    def __init__(self, history: History, number: int, owner: dict[str, Any], lose: Callable[[], None]) -> None:
        self.history, self.number, self.owner, self._lose = history, number, owner, lose
        self._ended = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"beat {history.id}", daemon=True)

    def __enter__(self) -> Held:
        self._thread.start()
        return self

    def end(self, state: State, **details: Any) -> bool:
        """Write how the work ended. Returns False if the run was taken over, so that nothing of it counts."""
        carried = {"result": self.owner["result"]} if "result" in self.owner else {}
        self._ended = True
        return self.history.append(self.number + 1, state, {**carried, **details})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if not self._ended:
            with contextlib.suppress(Exception):  # the error that led here counts
                self.end("released")
        with contextlib.suppress(Exception):
            self.history.objects.remove(self.history.name(f"beat/{self.number}"))

    def _beat(self) -> None:
        """Rewrite the beat; call `lose` once when a higher number than ours and its end is there."""
        count = 0
        while not self._stop.wait(HEARTBEAT if count else 0.0):
            count += 1
            with contextlib.suppress(Exception):  # storage out of reach costs a beat, not the run
                self.history.objects.write(self.history.name(f"beat/{self.number}"), str(count).encode())
                if self.history.last()[0] > self.number and not self._ended:
                    self._lose()
                    return


def claim(history: History, watch: Watch, lose: Callable[[], None] = lambda: None) -> Held:
    """Own a run; `lose` is called, in a thread, when the run was taken over. Raises Busy while another process owns it.

    Whether there is anything left to do is the caller's to know: a run that failed or is done can be claimed as well.
    """
    number, last = history.last()
    if last["state"] == "claimed" and not watch.is_dead(history, number, last):
        raise Busy(last["host"], last["pid"])
    carried = {"result": last["result"]} if "result" in last else {}
    owner = {**carried, **process.identity()}
    if not history.append(number + 1, "claimed", owner):
        raise Busy("another host", 0)
    return Held(history, number + 1, owner, lose)
