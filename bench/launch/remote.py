"""A worker on object storage: it makes each run in a private folder, and shares claims, checkpoints and results.

A run is claimed in storage (bench/store/remote/history.py), begun from the newest checkpoint that an owner before left
there, made as on one machine, and published as a whole if nobody took it over meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import get_args

from bench.console.progress import Progress
from bench.console.text import echo
from bench.errors import UserError
from bench.launch.claimed import Options, work
from bench.launch.launchers import Request
from bench.launch.launchers.local import stop_requests
from bench.launch.side_by_side import run_side_by_side
from bench.launch.world_size import ranks, refuse_odd_shares
from bench.machine.device_lock import device
from bench.machine.private_folder import ScratchFolder
from bench.planning.outcomes import State, Summary
from bench.planning.planned import Planned
from bench.store import Busy, Store, files
from bench.store.remote.archives import fetch, keep_state, publish
from bench.store.remote.history import Held, History, Watch, claim
from bench.store.remote.objects import Objects
from bench.store.run import QUEUE
from bench.suite.suite import Suite, parse_suite
from bench.training.checkpoint import CHECKPOINT
from bench.training.inputs import InputsReader
from bench.yaml_source import YamlSource

PAUSE = 2.0  #: seconds between looks at the claims of others
_TAKEN = 0  #: among requests to stop, which are numbers of signals: the run has another owner
_LOOK = 0.5  #: seconds between looks for a new checkpoint on this machine's disk


def push(results: Path, url: str) -> list[str]:
    """Queue in storage the suites that are queued in a results folder, and what failed there; return their names.

    Raises UserError if none is queued, and for storage where claims are not safe.
    """
    store = Store(results)
    names = store.queues()
    if not names:
        raise UserError(f"{results}: no suite is queued here; `bench run SUITE --plan-only` queues one")
    objects = Objects(url)
    objects.refuse_unsafe()
    for name in names:
        queued = store.queued(name)
        if queued is not None:
            source = YamlSource(str(store.suite(name) / QUEUE), queued[0]["suite"], {})
            _refuse_timed(parse_suite(source, check_methods=False))
            objects.write(f"queue/{name}.json", json.dumps(queued[0]).encode())
    for identity in objects.names("runs"):
        number, last = (history := History(objects, identity)).last()
        if last["state"] == "failed":
            history.append(number + 1, "queued", {"result": last["result"]} if "result" in last else {})
    return names


@contextlib.contextmanager
def opened(url: str, request: Request) -> Iterator[Site]:
    """Yield what a worker on storage works with; its private folder, in the temporary one, is removed at the end.

    Raises UserError if nothing is queued there, for storage where claims are not safe, and for several jobs.
    """
    if request.jobs not in (None, 1):
        raise UserError(f"--jobs {request.jobs}: with {url} a worker makes one run at a time; start several workers")
    objects = Objects(url)
    objects.refuse_unsafe()
    with ScratchFolder("worker") as folder:
        store = Store(folder)
        for name in objects.names("queue"):
            files.write_bytes(store.suite(name.removesuffix(".json")) / QUEUE, objects.read(f"queue/{name}") or b"")
        if not store.queues():
            raise UserError(f"{url}: no suite is queued here; `bench push RESULTS URL` queues those of a folder")
        yield Site(objects, store)


def _refuse_timed(suite: Suite) -> None:
    if suite.budget.timed:
        why = "each worker would time steps by itself and make other runs; use a folder that all workers share"
        raise UserError(f"{suite.name}: budget: {suite.budget.kind}: not with object storage: {why}")


@dataclass(frozen=True)
class Site:
    """Storage that workers share, and this worker's private store."""

    objects: Objects
    store: Store
    watch: Watch = field(default_factory=Watch)

    def prepare(self, suite: Suite, store: Store, request: Request) -> Callable[[list[Planned], Progress], Summary]:
        """See `bench.launch.launchers.Launcher`."""
        _refuse_timed(suite)
        options = Options(1, ranks(request.gpus, request.processes, 1), request.track)
        return partial(self._make_all, options, bool(suite.tune))

    def wait(self, busy: Sequence[str]) -> None:
        """Wait until a run that was busy has no live owner any more."""
        held = {}
        for identity in busy:
            number, last = (history := History(self.objects, identity)).last()
            if last["state"] == "claimed":  # the others wait for one of these
                held[identity] = history, number
                echo(f"waiting for run {identity[:16]}, which process {last['pid']} on {last['host']} holds", err=True)
        time.sleep(PAUSE)
        while held and all(self._lives(history, number) for history, number in held.values()):
            time.sleep(PAUSE)

    def _lives(self, history: History, number: int) -> bool:
        newest, last = history.last()
        return newest == number and not self.watch.is_dead(history, number, last)

    def _make_all(self, options: Options, keep: bool, planned: list[Planned], shown: Progress) -> Summary:
        """Make the runs that nobody holds, one after the other. `keep`: have all results here, as `tune` reads them."""
        summary, reader = Summary(), InputsReader()
        refuse_odd_shares(planned, options.ranks)
        with stop_requests() as requested, device(alone=False):

            def train(one: Planned) -> State:
                if options.ranks > 1:
                    made = Summary()
                    run_side_by_side([one], made, self.store, shown, requested, options)
                    return next((state for state in get_args(State) if getattr(made, state)), "interrupted")
                shown.run_started(one.run, planned.index(one), len(planned))
                state, message = work(one, self.store, shown, lambda: bool(requested), options.track, reader=reader)
                shown.run_finished(one.run, state, message)
                return state

            for number, one in enumerate(planned):
                if requested:
                    summary.interrupted += [later.id for later in planned[number:]]
                    break
                kept = keep or any(later.reference == one.id for later in planned[number + 1 :])
                getattr(summary, self._make(one, summary, kept, train, requested)).append(one.id)
                if not kept:
                    files.remove(self.store.run(one.id).folder)
        return summary

    def _make(
        self, one: Planned, before: Summary, kept: bool, train: Callable[[Planned], State], requested: list[int]
    ) -> str:
        """Make a run unless it is made, held or failed; return the field of `Summary` that it belongs to."""
        history = History(self.objects, one.id)
        _, last = history.last()
        if last["state"] == "failed" or one.reference in before.failed:
            return "failed"
        if "result" in last and {*one.evaluation_keys()} <= {*last["result"]["evaluations"]}:
            if kept and not self.store.run(one.id).folder.exists():
                fetch(history, last, self.store, finished=True)
            return "skipped"
        if one.reference is not None and one.reference not in (*before.done, *before.skipped):
            return "busy"
        try:
            held = claim(history, self.watch, lambda: requested.append(_TAKEN))
        except Busy:
            return "busy"
        try:
            with held:
                fetch(history, held.owner, self.store)
                with self._keeping(held):
                    state = train(one)
                return self._end(held, one, state)
        finally:
            requested[:] = [number for number in requested if number != _TAKEN]

    def _end(self, held: Held, one: Planned, state: State) -> State:
        """Publish what became of a run; one that was taken over is busy, whatever became of it here."""
        run = self.store.run(one.id)
        if state == "done":
            stands = publish(held, run.folder, True, evaluations=run.evaluations())
        elif state == "failed":
            stands = publish(held, run.folder, False)
        else:
            stands = held.end("released")
        return state if stands else "busy"

    @contextlib.contextmanager
    def _keeping(self, held: Held) -> Iterator[None]:
        """Leave each new checkpoint of a run in storage for the time of the context, and the last one at its end."""
        folder, stop, count, last = self.store.run(held.history.id).folder, threading.Event(), 0, None

        def keep() -> None:
            nonlocal count, last
            with contextlib.suppress(FileNotFoundError):
                there = (folder / CHECKPOINT).stat()
                if (there.st_ino, there.st_mtime_ns) != last:
                    keep_state(held, folder, count + 1)
                    count, last = count + 1, (there.st_ino, there.st_mtime_ns)

        def watch() -> None:
            while not stop.wait(_LOOK):
                with contextlib.suppress(Exception):  # storage out of reach costs a checkpoint there, not the run
                    keep()

        thread = threading.Thread(target=watch, name=f"checkpoints of {folder.name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            with contextlib.suppress(Exception):
                keep()
