"""Runs one after the other in this process. A run that fails fails alone."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.device import device
from bench.errors import UserError
from bench.progress import Progress
from bench.run import Planned, execute
from bench.store import Busy, Claim, Store
from bench.train import Interrupted, NotFinite


@dataclass
class Summary:
    """What became of a suite's runs, by id."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  #: were complete before
    busy: list[str] = field(default_factory=list)  #: another process works on them
    failed: list[str] = field(default_factory=list)
    interrupted: bool = False


def run_all(planned: list[Planned], store: Store, progress: Progress) -> Summary:
    """Do every run that is not complete, a reference before what starts from it."""
    summary = Summary()
    with _stop_requests() as requested, device(alone=any(_is_timed(one) for one in planned)):
        for number, one in enumerate(planned):
            if is_complete(one, store):
                summary.skipped.append(one.id)
                continue
            if one.reference in summary.busy:
                summary.busy.append(one.id)
                progress.run_finished(one.run, "busy", "the run it starts from is busy")
                continue
            if one.reference in summary.failed:
                summary.failed.append(one.id)
                message = f"the run it starts from, {one.reference[:16]}, failed"
                store.run(one.id).set_status("failed", error={"type": "Reference", "message": message})
                progress.run_finished(one.run, "failed", message)
                continue
            progress.run_started(one.run, number, len(planned))
            try:
                with store.run(one.id).claim() as claim:
                    execute(one, store, progress, _stop_when(requested, claim))
            except Busy as busy:
                summary.busy.append(one.id)
                progress.run_finished(one.run, "busy", str(busy))
            except Interrupted as stop:
                if not requested:
                    summary.busy.append(one.id)
                    progress.run_finished(one.run, "busy", "this process was silent for too long; another took the run")
                    continue
                store.run(one.id).set_status("interrupted", step=stop.step, steps=one.resolved.steps)
                summary.interrupted = True
                progress.run_finished(one.run, "interrupted", str(stop))
                break
            except UserError:
                raise
            except Exception as error:
                summary.failed.append(one.id)
                store.run(one.id).set_status("failed", error=_described(error))
                progress.run_finished(one.run, "failed", f"{type(error).__name__}: {error}")
            else:
                summary.done.append(one.id)
                progress.run_finished(one.run, "done", "")
            if requested:
                summary.interrupted = True
                break
    return summary


def is_complete(planned: Planned, store: Store) -> bool:
    """Whether every number this suite asks of the run is stored."""
    out = store.run(planned.id)
    return out.status()["state"] == "done" and all(out.has_records(key) for key in planned.evaluation_keys())


def _stop_when(requested: list[int], claim: Claim) -> Callable[[], bool]:
    return lambda: bool(requested) or claim.lost


def _is_timed(one: Planned) -> bool:
    return one.run.budget.kind == "device_seconds"


def _described(error: Exception) -> dict[str, object]:
    found: dict[str, object] = {
        "type": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, NotFinite):
        found.update(step=error.step, term=error.term)
    return found


@contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """SIGTERM and SIGINT ask for a checkpoint and a stop; a second SIGINT is Python's own."""
    requested: list[int] = []

    def note(number: int, _frame: object) -> None:
        requested.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
