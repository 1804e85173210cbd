"""One run from its plan to its records: train, evaluate, close the ledger."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from bench.console.progress import Progress
from bench.distributed import current_group
from bench.errors import UserError
from bench.evaluation import evaluate_features
from bench.evaluation.diagnostics import diagnose
from bench.evaluation.features import Features
from bench.hashing import file_hash
from bench.launch.trackers import tracked_writer
from bench.machine.environment import environment, reset_peak_memory
from bench.models import scored_pairs
from bench.models.scored_pairs import Scoring
from bench.planning.planned import Planned
from bench.store import ClaimLost, Damaged, Record, RunStore, RunWriter, Store
from bench.store.format import FORMAT
from bench.store.verify import refuse_changed_in_run
from bench.store.writer import FEATURES
from bench.suite.run import TRAINING_VERSION
from bench.training.checkpoint import CHECKPOINT_FILE, checkpoint_step, load_weights, weights_name
from bench.training.inputs import Inputs, InputsReader
from bench.training.job import available_device, make_job
from bench.training.loop import Interrupted, TrainingJob, train


def execute_run(
    planned: Planned,
    store: Store,
    writer: RunWriter | None,
    progress: Progress,
    should_stop: Callable[[], bool],
    track: str | None = None,
    reader: InputsReader | None = None,
) -> None:
    """Train and evaluate one run as far as it is not done yet, and close its ledger.

    A finished run does not change: evaluations that it lacks are added, on weights that are trained once more in a
    folder of their own if `bench store gc` removed them. All ranks of the process group call this; the first one writes
    the run under its claim with `writer`, the others have None. `track` names a tracker; `reader` makes the inputs, and
    a process that executes several runs passes the same one. Raises Interrupted after a requested stop, ClaimLost if
    the claim is lost, and any error of a broken run; the caller then sets the status.
    """
    inputs, steps = (reader or InputsReader()).inputs(planned.run), planned.resolved.steps
    if inputs.summary().hashes != planned.inputs.hashes:  # a job may start hours after its plan
        message = "the training data changed since planning; start again: the run then gets another id"
        raise UserError(f"{planned.run.data.name}: {message}")
    with tracked_writer(writer, track, planned.run.title, steps) if writer else nullcontext(None) as own:
        out = own or store.run(planned.id)
        todo = current_group().agree(_prepare(planned, inputs, own, progress) if own else _Todo())
        if todo.points or todo.train:  # else only a small file was damaged
            reference = store.run(planned.reference) if planned.reference else None
            scoring = Scoring(planned.run, planned.scorer, reference)
            if todo.train:
                inputs = scored_pairs.choose_rows(scoring, inputs, out)
                progress.stage("train")
            if reference is not None:
                refuse_changed_in_run(reference, weights_name(1.0))
            device, place = available_device(), out.again() if todo.again else out
            reset_peak_memory(device)
            job = make_job(planned.run, inputs, planned.resolved, place, reference, device)
            job.should_stop, job.on_step = should_stop, progress.step
            ledger = train(job) if todo.train else None
            if own and ledger and own.finished:
                own.restore(map(weights_name, todo.lacking))
            elif own and ledger:
                own.write_json("environment.json", environment(job.device, job.group.world))
                budget, paid = planned.run.budget, reference.ledger() if reference else None
                spent = scored_pairs.scoring_cost(scoring, planned.resolved.scoring_flops, inputs, own)
                measured = own.ledger().get("evaluate_seconds", 0.0)  # of an earlier training whose weights are gone
                statement = ledger.statement(budget.kind, budget.value, planned.resolved, paid, spent)
                own.write_json("ledger.json", {**statement, "evaluate_seconds": measured})
            _evaluate(planned, inputs, out, job, progress, todo.points)
        if own and not own.finished:
            own.set_status("done", step=steps, steps=steps)


@dataclass(frozen=True)
class _Todo:
    """Work that a run needs, as the first rank saw it."""

    points: tuple[float, ...] = ()  #: shares of the budget at which a record is missing
    lacking: tuple[float, ...] = ()  #: and at which weights are needed but not there
    train: bool = False
    again: bool = False  #: whether it trains in a folder of its own, because it is finished


def _prepare(planned: Planned, inputs: Inputs, out: RunWriter, progress: Progress) -> _Todo:
    """Look at what is stored of the run, write its small files, leave a checkpoint from which training can resume."""
    tasks = {at: planned.evaluation.tasks(at, planned.manifest) for at in planned.run.points}
    points = [at for at, measured in tasks.items() if not all(out.has_records(one.key(at)) for one in measured)]
    versions = {"format": FORMAT, "training_version": TRAINING_VERSION}
    address = {"id": planned.id, "address": planned.address, "resolved": planned.resolved.to_json()}
    out.write_settings({**planned.run.settings(), **versions, **address})
    if not out.finished:
        out.set_status("running", **{"steps": planned.resolved.steps, "stage": "train", **out.progress()})
    manifest = inputs.manifest
    if planned.manifest is not None and manifest is not None and not out.path("noise.parquet").exists():
        out.write_path("noise.parquet", manifest.save)
    # weights of measured points may be gone (`bench store gc`), but another run that starts from them needs the final
    needed = {*points} if out.finished and not planned.lent else {*points, 1.0}
    lacking = [at for at in sorted(needed) if not out.path(weights_name(at)).exists()]
    train, again = bool(lacking) or not (out.finished or out.ledger()), out.finished and bool(lacking)
    damaged = _leave_checkpoint(out.again() if again else out, planned.resolved.steps, lacking) if train else ""
    if damaged:
        progress.stage(damaged)
    return _Todo(tuple(points), tuple(lacking), train, again)


def _leave_checkpoint(out: RunWriter, steps: int, lacking: list[float]) -> str:
    """Keep a checkpoint from which training reaches all weights that are `lacking`; without it, it starts again.

    One that is not a checkpoint is moved aside; returns a line that says so, or "". One beyond weights that are gone is
    removed: training from there would not make them.
    """
    try:
        step = checkpoint_step(out)
    except Damaged as error:
        aside = out.set_aside(error.path.name)
        return str(Damaged(error.path, error.reason, f"moved to {aside.name}: training starts from the beginning"))
    missing = (at for at in lacking if not out.path(weights_name(at)).exists())
    if step is not None and any(math.ceil(at * steps) <= step for at in missing):
        out.discard(CHECKPOINT_FILE)
    return ""


def _evaluate(
    planned: Planned, inputs: Inputs, out: RunStore, job: TrainingJob, progress: Progress, points: Sequence[float]
) -> None:
    """Evaluate the kept weights at `points`, publishing each task when it is done and skipping those already there."""
    booked, writer, group = time.perf_counter(), out if isinstance(out, RunWriter) else None, job.group
    should_stop = job.should_stop or (lambda: False)

    def done(key: str) -> bool:
        known = writer is not None and writer.has_records(key)
        per_rank = group.rows(should_stop(), writer is not None and writer.fence.lost, known)
        if per_rank[0][1]:
            raise ClaimLost
        if any(asked for asked, _, _ in per_rank):
            raise Interrupted(planned.resolved.steps)
        return bool(per_rank[0][2])

    def publish(key: str, records: list[Record], outcomes: dict[str, np.ndarray]) -> None:
        nonlocal booked
        if writer is None:
            return
        writer.write_records(key, records, outcomes)
        now = time.perf_counter()
        writer.charge_evaluation((now - booked) * group.world)
        booked = now
        progress.measured(sum(map(out.has_records, keys)), len(keys))

    manifest = inputs.manifest if planned.manifest is not None else None  # see `Planned.manifest`
    kept, keys = scored_pairs.kept_rows(inputs, out), planned.evaluation_keys()
    for at in points:
        path = out.path(weights_name(at))
        checkpoint = group.agree(file_hash(path) if writer else "")  # others read it once the first one has
        load_weights(path, job.method, job.towers)
        progress.stage("evaluate" if at == 1.0 else f"evaluate at {at:.0%}")
        plan, inside = planned.evaluation, writer.fence.path if writer else None
        features = Features(
            job.method, job.towers, checkpoint, plan.protocol.label, out.path(FEATURES), plan.channels, inside, group
        )
        if at == 1.0:  # first, because the tasks use the features it leaves behind, and then discard them
            diagnose(features, plan, out, manifest)
        evaluate_features(
            features,
            plan,
            at=at,
            run=planned.id,
            manifest=manifest,
            kept=kept,
            done=done,
            publish=publish,
        )
