"""One run from its plan to its records: train, evaluate, close the ledger."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from bench.console.progress import Progress
from bench.data.noise import NoiseManifest
from bench.errors import UserError
from bench.evaluation import evaluate
from bench.evaluation.diagnostics import diagnose
from bench.hashing import file_hash
from bench.launch import scored
from bench.launch.helpers import Begin, Helpers, Load, Score, helpers, requests
from bench.launch.trackers import tracked
from bench.machine.environment import environment, reset_peak_memory
from bench.planning.planned import Planned
from bench.store import ClaimLost, Damaged, Record, RunStore, RunWriter, Store
from bench.store.doctor import refuse_changed
from bench.store.format import FORMAT
from bench.store.writer import AGAIN, FEATURES
from bench.suite.run import TRAINING_VERSION
from bench.training.checkpoint import CHECKPOINT, checkpoint_step, load_weights, weights_name
from bench.training.distributed import current
from bench.training.inputs import Inputs, InputsReader
from bench.training.job import available_device, make_job
from bench.training.ledger import Ledger
from bench.training.loop import Interrupted, Job, train


def execute(
    planned: Planned,
    store: Store,
    writer: RunWriter,
    progress: Progress,
    should_stop: Callable[[], bool],
    track: str | None = None,
    together: Callable[[], AbstractContextManager[None]] = nullcontext,
    reader: InputsReader | None = None,
) -> None:
    """Train and evaluate one run as far as it is not done yet, and close its ledger.

    A finished run does not change: evaluations that it lacks are added, on weights that are trained once more in a
    folder of their own if `bench gc` removed them. `writer` writes the run under its claim. In the context of
    `together` the other ranks `take_part`; `track` names a tracker; `reader` makes the inputs, and a process that
    executes several runs passes the same one. Raises Interrupted after a requested stop, ClaimLost if the claim is
    lost, and any error of a broken run; the caller then sets the status.
    """
    inputs = _read_inputs(planned, reader)
    with tracked(writer, track, planned.run.title, planned.resolved.steps) as out:
        points = _to_measure(planned, out)
        _prepare_store(planned, inputs, out)
        if points or planned.lent or not out.finished:  # else only a small file was damaged
            lacking = _lacking(planned, out, points)
            to_train = bool(lacking) or not (out.finished or out.ledger())
            trained = out.again() if out.finished and lacking else out
            steps = planned.resolved.steps
            damaged = _leave_checkpoint(trained, steps, lacking) if to_train else ""  # before another rank reads it
            if damaged:
                progress.stage(damaged)
            with together(), helpers(planned.evaluation) as others:
                if to_train:
                    inputs = scored.chosen(planned, inputs, store, out, others)
                    progress.stage("train")
                with others.together(Begin(to_train)):
                    job = _job(planned, inputs, store, trained)
                    job.should_stop, job.on_step = should_stop, progress.step
                    if to_train:
                        _train(planned, inputs, store, out, job, lacking)
                _evaluate(planned, inputs, out, job, progress, others)
        if not out.finished:
            out.set_status("done", step=planned.resolved.steps, steps=planned.resolved.steps)


def _lacking(planned: Planned, out: RunStore, points: list[float]) -> list[float]:
    """Return the shares of the budget at which weights are needed but not there.

    Those of measured points may be gone (`bench gc`); a finished run needs its final ones for a run that starts there.
    """
    finished = out.status()["state"] == "done"
    needed = {*points} if finished and not planned.lent else {*points, 1.0}
    return [at for at in sorted(needed) if not out.path(weights_name(at)).exists()]


def _train(planned: Planned, inputs: Inputs, store: Store, out: RunWriter, job: Job, lacking: list[float]) -> None:
    """Train the run and write its ledger; in a finished run, make the weights that it is `lacking` again."""
    if out.finished:
        train(job)
        out.restore(map(weights_name, lacking))
    else:
        out.write_environment(environment(job.device, job.group.world))
        _write_ledger(planned, inputs, store, out, train(job))


def _leave_checkpoint(out: RunWriter, steps: int, lacking: list[float]) -> str:
    """Keep a checkpoint from which training reaches all weights that are `lacking`; without it, it starts again.

    One that is no checkpoint is moved aside; returns a line that says so, or "". One beyond weights that are gone is
    removed: training from there would not make them.
    """
    try:
        step = checkpoint_step(out)
    except Damaged as error:
        aside = out.set_aside(error.path.name)
        return str(Damaged(error.path, error.reason, f"moved to {aside.name}: training begins at its start"))
    missing = (at for at in lacking if not out.path(weights_name(at)).exists())
    if step is not None and any(math.ceil(at * steps) <= step for at in missing):
        out.discard(CHECKPOINT)
    return ""


def take_part(
    planned: Planned, store: Store, should_stop: Callable[[], bool], reader: InputsReader | None = None
) -> None:
    """Another rank's part of `execute`: train and extract features with the first one, and write nothing.

    Raises the errors of `train`, of `scored.scoring_model` and of extraction.
    """
    out = store.run(planned.id)
    inputs = _read_inputs(planned, reader)
    model: scored.ScoringModel | Job | None = None
    with requests(planned.evaluation) as asked:
        for request in asked:
            if isinstance(request, Score):
                model = scored.scoring_model(planned, inputs, store)
                asked.share(model.pairs)
            elif isinstance(request, Begin):
                model = None  # so that its memory is free for the next one
                model = _join_training(planned, inputs, store, should_stop, request)
            elif isinstance(request, Load):
                assert model is not None
                load_weights(out.path(request.weights), model.method, model.towers)
            else:
                assert model is not None
                request(model.method, model.towers, ranks=current())


def _join_training(
    planned: Planned, inputs: Inputs, store: Store, should_stop: Callable[[], bool], begin: Begin
) -> Job:
    """Build the run's towers and method on another rank, and train them with the first one if it asks for that."""
    out = store.run(planned.id)
    finished = out.status()["state"] == "done"
    if begin.train:
        inputs = scored.recorded(inputs, out)
    job = _job(planned, inputs, store, RunStore(out.path(AGAIN)) if finished else out)
    job.should_stop = should_stop
    if begin.train:
        train(job)
    return job


def _prepare_store(planned: Planned, inputs: Inputs, out: RunWriter) -> None:
    """Write the small files that are not there; note that the run is worked on, unless it is finished."""
    versions = {"format": FORMAT, "training_version": TRAINING_VERSION}
    address = {"id": planned.id, "address": planned.address, "resolved": planned.resolved.to_json()}
    out.write_settings({**planned.run.settings(), **versions, **address})
    if not out.finished:
        out.set_status("running", **{"steps": planned.resolved.steps, "stage": "train", **out.progress()})
    manifest = _manifest(planned, inputs)
    if manifest is not None and not out.path("noise.parquet").exists():
        out.write_path("noise.parquet", manifest.save)


def _manifest(planned: Planned, inputs: Inputs) -> NoiseManifest | None:
    """The manifest that the run's records depend on; see `Planned.manifest`."""
    return inputs.manifest if planned.manifest is not None else None


def _job(planned: Planned, inputs: Inputs, store: Store, out: RunStore) -> Job:
    device = available_device()
    reset_peak_memory(device)
    reference = store.run(planned.reference) if planned.reference else None
    if reference is not None:
        refuse_changed(reference, weights_name(1.0))
    return make_job(planned.run, inputs, planned.resolved, out, reference, device)


def _read_inputs(planned: Planned, reader: InputsReader | None) -> Inputs:
    """The run's inputs. Raises UserError if they are not those of the plan, because a job may start hours later."""
    inputs = (reader or InputsReader()).inputs(planned.run)
    if inputs.summary().hashes != planned.inputs.hashes:
        message = "the training data changed since this was planned; start again: the run then gets an id of its own"
        raise UserError(f"{planned.run.data.name}: {message}")
    return inputs


def _to_measure(planned: Planned, out: RunStore) -> list[float]:
    """Shares of the budget at which a record is missing: points of the curve, and 1.0 for the end."""
    plan, points = planned.evaluation, (*planned.run.evaluate.curve, 1.0)
    return [at for at in points if not all(out.has_records(one.key(at)) for one in plan.tasks(at, planned.manifest))]


def _write_ledger(planned: Planned, inputs: Inputs, store: Store, out: RunWriter, ledger: Ledger) -> None:
    budget = planned.run.budget
    paid = store.run(planned.reference).ledger() if planned.reference else None
    scoring = scored.cost(planned, inputs, out)
    statement = ledger.statement(budget.kind, budget.value, planned.resolved, paid, scoring)
    out.write_ledger(statement)


def _evaluate(planned: Planned, inputs: Inputs, out: RunWriter, job: Job, progress: Progress, others: Helpers) -> None:
    """Evaluate the kept weights, publishing each task when it is done and skipping those already there."""
    booked = time.perf_counter()

    def done(key: str) -> bool:
        if out.lost:
            raise ClaimLost
        if job.should_stop is not None and job.should_stop():
            raise Interrupted(planned.resolved.steps)
        return out.has_records(key)

    def publish(key: str, records: list[Record], outcomes: dict[str, np.ndarray]) -> None:
        nonlocal booked
        out.write_records(key, records, outcomes)
        now = time.perf_counter()
        out.charge_evaluation((now - booked) * job.group.world)
        booked = now
        progress.measured(sum(map(out.has_records, keys)), len(keys))

    manifest, kept, keys = _manifest(planned, inputs), scored.kept_rows(inputs, out), planned.evaluation_keys()
    for at in _to_measure(planned, out):
        checkpoint = _load(weights_name(at), out, job, others)
        progress.stage("evaluate" if at == 1.0 else f"evaluate at {at:.0%}")
        if at == 1.0:  # first, because the tasks use the features it leaves behind, and then discard them
            diagnose(job.method, job.towers, planned.evaluation, out, checkpoint, manifest, others.extracting)
        evaluate(
            job.method,
            job.towers,
            planned.evaluation,
            at=at,
            run=planned.id,
            checkpoint=checkpoint,
            manifest=manifest,
            kept=kept,
            done=done,
            publish=publish,
            features_dir=out.path(FEATURES),
            inside=out.inside,
            helpers=others.extracting,
        )


def _load(weights: str, out: RunStore, job: Job, others: Helpers) -> str:
    """Load kept weights on all ranks; return the file's hash."""
    with others.together(Load(weights)):
        load_weights(out.path(weights), job.method, job.towers)
        return file_hash(out.path(weights))
