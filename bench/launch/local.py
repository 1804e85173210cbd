"""Runs one after the other in this process. A run that fails fails alone."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from bench.device import device
from bench.progress import Progress
from bench.run import Planned, execute
from bench.store import Busy, Claim, Store
from bench.train import Interrupted, Lost, NotFinite


@dataclass
class Summary:
    """What became of a suite's runs, by id."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  #: were complete before
    busy: list[str] = field(default_factory=list)  #: another process works on them
    failed: list[str] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)


def run_all(planned: list[Planned], store: Store, progress: Progress) -> Summary:
    """Do every run that is not complete, a reference before what starts from it."""
    complete = {one.id for one in planned if is_complete(one, store)}
    summary = Summary(skipped=sorted(complete))
    todo = [one for one in planned if one.id not in complete]
    if not todo:
        return summary
    with _stop_requests() as requested, device(alone=any(_is_timed(one) for one in todo)):
        for number, one in enumerate(todo):
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
            progress.run_started(one.run, len(complete) + number, len(planned))
            try:
                with store.run(one.id).claim() as claim:
                    state, message = _work(one, store, progress, requested, claim)
            except Busy as busy:
                state, message = "busy", str(busy)
            getattr(summary, state).append(one.id)
            progress.run_finished(one.run, state, message)
            if requested:
                summary.interrupted += [later.id for later in todo[number + 1 :]]
                break
    return summary


def _work(
    one: Planned, store: Store, progress: Progress, requested: list[int], claim: Claim
) -> tuple[Literal["done", "busy", "interrupted", "failed"], str]:
    """Execute a claimed run; what became of it, and a message. Its status is written while the claim is held."""
    out = store.run(one.id)
    try:
        execute(one, store, progress, lambda: bool(requested), lambda: claim.lost)
    except Lost:
        return "busy", "this process was silent for too long; another one took the run over"
    except Interrupted as stop:
        out.set_status("interrupted", step=stop.step, steps=one.resolved.steps)
        return "interrupted", str(stop)
    except Exception as error:  # whatever a run raises fails this run alone
        if not claim.lost:
            out.set_status("failed", error=_described(error))
        return "failed", f"{type(error).__name__}: {error}"
    return "done", ""


def is_complete(planned: Planned, store: Store) -> bool:
    """Whether every number this suite asks of the run is stored."""
    out = store.run(planned.id)
    return out.status()["state"] == "done" and all(out.has_records(key) for key in planned.evaluation_keys())


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
