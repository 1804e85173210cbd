"""Claim one run and execute it in this process; note in its status whether it finished, stopped or failed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

from bench.console.progress import Progress
from bench.errors import DISK_FULL_ERRNOS, errno_of, system_fault
from bench.launch.execute import execute_run
from bench.launch.launchers import SEQUENTIAL, LaunchOptions
from bench.launch.ranks import ALONE, Ranks, error_status, message_of
from bench.planning.outcomes import RunOutcome, RunOutcomes, is_complete, split_complete
from bench.planning.planned import Planned
from bench.store import Busy, Claim, ClaimLost, RunStore, RunWriter, Store
from bench.store.verify import repair_run
from bench.training.checkpoint import CHECKPOINT_FILE
from bench.training.inputs import InputsReader
from bench.training.loop import Interrupted


@dataclass
class Call:
    """One call that executes runs: where they are stored, who is told of them, and their outcomes so far."""

    store: Store
    progress: Progress
    options: LaunchOptions = SEQUENTIAL
    summary: RunOutcomes = field(default_factory=RunOutcomes)

    def end(self, one: Planned, state: RunOutcome, message: str) -> None:
        """Note the outcome of a run, and say it."""
        self.summary.add(state, one.id, message)
        self.progress.run_finished(one.run.title, state, message)

    def cannot_start(self, one: Planned) -> bool:
        """Return whether the reference run that `one` starts from is busy or failed.

        If so, `one` is added to the summary: as busy, or after a call of `mark_failed` as failed. With
        `options.queued` a run that another worker completed is added as skipped, and one that failed since as failed.
        """
        queued, out = self.options.queued, self.store.run(one.id)
        if queued is not None and split_complete([one], self.store)[1]:
            self.summary.skipped.append(one.id)
            return True
        failed = queued is not None and out.status()["state"] == "failed"
        if failed and out.path("status.json").stat().st_mtime_ns > (queued or 0):
            self.end(one, "failed", "no worker tries it again; bench show says why it failed")
        elif one.reference in self.summary.busy:
            self.end(one, "busy", "the run it starts from is busy")
        elif one.reference in self.summary.failed:
            message = f"the run it starts from, {one.reference[:16]}, failed"
            self.end(one, *mark_failed(one, self.store, message, {"type": "Reference", "message": message}))
        else:
            return False
        return True


def work_on_run(
    one: Planned,
    store: Store,
    progress: Progress,
    should_stop: Callable[[], bool],
    track: str | None = None,
    reader: InputsReader | None = None,
    ranks: Ranks = ALONE,
) -> tuple[RunOutcome, str]:
    """Execute a run under its claim; return its final state and a message. What is damaged is moved aside first.

    All `ranks` call this; the first one claims the run and writes its status while it holds the claim.
    """
    out, mended = store.run(one.id), list[str]()

    def action(claim: Claim | None) -> None:
        with ranks.together(out):
            if claim:
                mended.extend(repair_run(claim))
                for line in mended:  # before a training of days, and again at its end
                    progress.stage(line)
            execute_run(one, store, RunWriter(claim) if claim else None, progress, should_stop, track, reader)

    try:
        if ranks.rank:
            refusal: tuple[RunOutcome, str] | None = ranks.first()
            return refusal or _guarded(one, None, action)
        with ExitStack() as held:
            try:
                claim = held.enter_context(out.claim())
            except Busy as busy:
                refused: tuple[RunOutcome, str] = "busy", str(busy)
            except OSError as error:
                refused = _failed(error)
            else:
                ranks.first(None)
                state, message = _guarded(one, claim, action)
                return state, "; ".join(filter(None, (message, *mended)))
            ranks.first(refused)
            return refused
    except Busy as busy:  # the claim was lost
        return "busy", str(busy)


def _guarded(one: Planned, claim: Claim | None, action: Callable[[Claim | None], None]) -> tuple[RunOutcome, str]:
    """Call `action` and turn an error or a stop request into a state and a message, which the claim's holder writes.

    Raises ClaimLost. A finished run keeps its status, whatever happens to an evaluation that is added to it.
    """
    try:
        with claim.fence.guarded() if claim else nullcontext():
            action(claim)
    except ClaimLost:
        raise
    except Interrupted as stop:
        if claim:
            _note(claim, "interrupted", step=stop.step, steps=one.resolved.steps)
        return "interrupted", str(stop)
    except Exception as error:  # whatever a run raises fails this run alone, but for a full disk
        state, message = _failed(error)
        if claim and state == "full":
            _note(claim, "interrupted", steps=one.resolved.steps)
        elif claim:
            _note(claim, "failed", error=error_status(error))
        return state, message
    return "done", ""


def _failed(error: Exception) -> tuple[RunOutcome, str]:
    return ("full", system_fault(error)) if errno_of(error) in DISK_FULL_ERRNOS else ("failed", message_of(error))


def _note(claim: Claim, state: str, **details: Any) -> None:
    """Set the status of a run that is not finished, with the step that it has reached.

    A disk that cannot take it, because it is full or read-only, leaves the status as it is: the run's error counts.
    """
    with contextlib.suppress(OSError):
        out = RunWriter(claim)
        if not out.finished:
            out.set_status(state, **{**out.progress(), **details})


def run_progress(run: RunStore) -> tuple[int, int]:
    """Return the progress of a run: when its checkpoint was written, in ns, and the number of its evaluations."""
    checkpoint = run.path(CHECKPOINT_FILE)
    return checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0, len(run.evaluations())


def mark_failed(one: Planned, store: Store, message: str, error: dict[str, Any]) -> tuple[RunOutcome, str]:
    """Mark a run that no process of this call works on as `failed`; return its state and a message.

    The status is written under the run's claim. If another process works on the run, it is `busy`. A finished run
    keeps its status, and is `done` if it is complete.
    """
    try:
        with store.run(one.id).claim() as claim:
            if is_complete(one, store):
                return "done", "another process finished it"
            if store.run(one.id).status()["state"] != "damaged":
                _note(claim, "failed", error=error)
    except Busy as busy:
        return "busy", str(busy)
    except OSError:  # the folder cannot be claimed, as on a full disk; the run's own error is what counts
        pass
    return "failed", message
