"""One run from its settings to its records: its inputs and address, its steps, training, evaluation."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from bench import data, discovery, side, tower_starts
from bench.acceleration import compile_blocks, recompute
from bench.budget import Ledger, Resolved
from bench.checkpoint import file_hash, load_weights, weights_name
from bench.data.kept import KeptPairs
from bench.data.noise import Noise, NoiseManifest
from bench.data.pairs import Pairs
from bench.data.workers import processes
from bench.environment import environment, reset_peak_memory
from bench.errors import UserError
from bench.evaluate import EvaluationPlan, evaluate
from bench.evaluate.diagnostics import diagnose
from bench.identity import OPEN_CLIP, TRAINING_VERSION
from bench.keep import Asked
from bench.keep_settings import KeepSettings
from bench.loader import Loader
from bench.noise_kinds import KINDS
from bench.noise_settings import NoiseSettings
from bench.parallel import current
from bench.progress import Progress
from bench.settings import SNAPSHOTS, DataSettings
from bench.store import Record, RunStore, Store
from bench.store.format import FORMAT
from bench.suite import Run
from bench.tokenizers import SmallVocabulary
from bench.towers import OpenClipTowers, build_towers, tokenizer_of
from bench.trackers import tracked
from bench.train import Interrupted, Job, Lost, train
from bench.weights import fit, located, same_activation, start_from
from methods.base import stream
from methods.protocol import Facts, Method

Starts = Literal["all", "files", "none"]
_DTYPES = {"fp64": torch.float64}  # parameters are fp32 otherwise; bf16 is an autocast type


@dataclass(frozen=True)
class Planned:
    """A run whose inputs are known: its address and the steps its budget comes to."""

    run: Run
    id: str
    reference: str | None  #: id of the run it starts from
    resolved: Resolved
    expected: bool = False  #: its data is not there: the id is a placeholder
    data_hash: str = ""  #: of the training pairs that the id was made from
    manifest_hash: str | None = None  #: of its noise; None where no rows are fixed to be corrupted
    kept_hash: str | None = None  #: of the keys of a treated run's rows

    @property
    def manifest(self) -> NoiseManifest | None:
        """Which rows are corrupted; None without such noise, or where that cannot be known yet.

        None as well where a run sees none of them: its id leaves open whose captions they have.
        """
        noise = None if self.expected or self.run.keep.entry.truth_alone else noise_of(self.run)
        return noise if isinstance(noise, NoiseManifest) else None

    @property
    def evaluation(self) -> EvaluationPlan:
        """What is measured of this run."""
        return EvaluationPlan(self.run.data, self.run.evaluate)

    def evaluation_keys(self) -> tuple[str, ...]:
        """Under which its records are stored when it is complete."""
        return self.evaluation.keys(self.run.evaluate.curve, self.manifest)


def training_pairs(run: Run) -> Pairs:
    """All pairs of the run's data, whatever it may see of them."""
    return data.training(run.data)


def kept_pairs(run: Run) -> KeptPairs | None:
    """The rows that a treated run trains on, with the captions its noise gives them; None for all rows.

    UserError where there are no such rows.
    """
    if not run.treated:
        return None
    options = json.dumps(run.noise_options, sort_keys=True)
    return _kept(run.data, run.keep, run.noise, options, run.noise_file, run.rate, run.seed)


@lru_cache(maxsize=16)
def _kept(
    settings: DataSettings, keep: KeepSettings, kind: str | None, options: str, file: str | None, rate: float, seed: int
) -> KeptPairs:
    pairs = data.training(settings)
    noise, corrupted = Noise(), None if kind is not None and not KINDS[kind].fixed else np.zeros(0, np.int64)
    if kind is not None and KINDS[kind].fixed:
        noise = _manifest(settings, kind, options, file, rate, seed)
        corrupted = noise.rows if isinstance(noise, NoiseManifest) else corrupted
    try:
        rows = keep.entry.choose(Asked(pairs.keys, corrupted, seed, keep.share, keep.rows))
    except ValueError as error:
        raise UserError(f"keep: {keep.label}: {error} at rate {rate:g}, seed {seed} of {pairs.name}") from error
    return KeptPairs(pairs, rows, noise)


def rows_seen(run: Run) -> int:
    """Number of training rows that the run may see."""
    kept = kept_pairs(run)
    return len(training_pairs(run)) if kept is None else len(kept)


def hashes(run: Run) -> tuple[str, str | None, str | None]:
    """Of its training pairs, of its noise manifest and of the keys it may see, as `Run.id` takes them."""
    noise, kept = noise_of(run), kept_pairs(run)
    manifest = noise.content_hash if isinstance(noise, NoiseManifest) else None
    return training_pairs(run).content_hash, manifest, kept.keys_hash if kept else None


def noise_of(run: Run) -> Noise | None:
    """The run's noise, the same for every method of a suite. Its seed is the run's."""
    if run.noise is None:
        return None
    options = json.dumps(run.noise_options, sort_keys=True)
    return _manifest(run.data, run.noise, options, run.noise_file, run.rate, run.seed)


@lru_cache(maxsize=64)
def _manifest(settings: DataSettings, kind: str, options: str, file: str | None, rate: float, seed: int) -> Noise:
    files = () if file is None else (file,)
    noise = NoiseSettings(kind=kind, rates=(rate,), files=files, options=json.loads(options))
    return noise.entry.make(data.training(settings), noise, rate, seed)


@lru_cache(maxsize=8)
def _vocabulary(settings: DataSettings, tokens: int, context_length: int) -> SmallVocabulary:
    pairs = data.training(settings)
    texts = [text for row in range(len(pairs)) for text in pairs.captions(row)]
    return SmallVocabulary(texts, tokens, context_length)


def facts_of(run: Run) -> Facts:
    """What the run's method may know of it."""
    return Facts(rows_seen(run), run.train.batch, run.towers.dim, run.seed, data.synonyms(run.data.name))


def build(run: Run) -> tuple[OpenClipTowers, Method]:
    """Fresh towers and method, drawn from the run's seed alone."""
    spec = run.towers
    tokenizer = tokenizer_of(spec, partial(_vocabulary, run.data))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(run.seed, "initialisation").initial_seed())
        towers = build_towers(spec, tokenizer, run.data.size, run.train.bn_group)
        method = discovery.make(run.method, None, run.config, facts_of(run))
    return towers, method


def prepare(
    method: Method,
    towers: OpenClipTowers,
    run: Run,
    device: torch.device,
    reference: RunStore | None,
    starts: Starts = "all",
) -> None:
    """Begin at the run's start or its reference's final weights, let the method change the towers, move to `device`.

    `starts`: "files" leaves out weights that are not there yet, as costs do not depend on them; "none" leaves out all.
    """
    assert isinstance(method, nn.Module)
    final = None if reference is None or starts == "none" else reference.path(weights_name(1.0))
    side.hold_reference(method, towers, final)
    if starts != "none":
        _begin(method, towers, run, final if method.starts_from_reference else None, fetch=starts == "all")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(run.seed, "preparation").initial_seed())
        method.prepare(towers)
    side.hold_average(method, towers)
    dtype = _DTYPES.get(run.train.precision, torch.float32)
    towers.to(device, dtype)
    towers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # halves a small ResNet's step on CPUs
    method.to(device, dtype)


def rebuilt(run: Run, weights: Path, device: torch.device) -> tuple[OpenClipTowers, Method]:
    """A run's towers and method with the weights in a file; what it started from is in them.

    With the run's number of threads. Raises UserError where the weights do not fit.
    """
    torch.set_num_threads(run.train.threads)
    towers, method = build(run)
    prepare(method, towers, run, device, None, starts="none")
    fit(weights, {"towers": towers, "method": method})
    return towers, method


def _begin(method: Method, towers: OpenClipTowers, run: Run, reference: Path | None, fetch: bool) -> None:
    if run.start is not None:
        if run.start.startswith(OPEN_CLIP):
            same_activation(run.start, run.towers)
        if not fetch and not Path(run.start).is_file():
            return
        start_from(located(run.start), method, towers)
    elif reference is not None:
        start_from(reference, method, towers)
    else:
        tower_starts.begin(towers, run.towers, fetch)


def make_job(
    run: Run,
    resolved: Resolved,
    out: RunStore,
    reference: RunStore | None,
    device: torch.device,
    starts: Starts = "all",
) -> Job:
    """A training that is ready to start or to resume, in this process with the run's number of threads.

    `starts` as in `prepare`.
    """
    torch.set_num_threads(run.train.threads)
    towers, method = build(run)
    prepare(method, towers, run, device, reference, starts)
    if run.train.recompute:
        recompute(towers)
    if run.train.compile:
        compile_blocks(towers, device)
    kept, noise = kept_pairs(run), noise_of(run)
    loader = Loader(
        training_pairs(run) if kept is None else kept,
        None if kept is not None and isinstance(noise, NoiseManifest) else noise,  # kept pairs have theirs already
        towers,
        batch=run.train.batch,
        seed=run.seed,
        recipe=run.train.augment,
        dtype=_DTYPES.get(run.train.precision, torch.float32),
        device=device,
        workers=0 if run.data.embedded else processes(run.data.workers, current().world),
    )
    return Job(method, towers, loader, run.train, resolved, run.seed, out, current(), device, SNAPSHOTS)


def available_device() -> torch.device:
    """The first GPU, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def execute(
    planned: Planned,
    store: Store,
    progress: Progress,
    should_stop: Callable[[], bool],
    is_lost: Callable[[], bool],
    track: str | None = None,
    summon: Callable[[], None] | None = None,
) -> None:
    """Do what is missing of one run: train, evaluate, close the ledger. The caller holds the claim.

    `summon` calls the other ranks to `train_along`; `track` names a tracker. Raises Interrupted after a requested stop,
    Lost if the claim is lost, and whatever a broken run raises; the status is then the caller's to set.
    """
    _refuse_other_data(planned)
    with tracked(store.run(planned.id), track, planned.run.title, planned.resolved.steps) as out:
        _prepare_store(planned, out)
        job = _job(planned, store, out)
        job.should_stop, job.is_lost, job.on_step = should_stop, is_lost, progress.step
        needed = {*_to_measure(planned, out), 1.0}  # weights of other points may be gone (`bench gc`)
        if not out.ledger() or not all(out.path(weights_name(at)).exists() for at in needed):
            out.write_environment(environment(job.device, job.group.world))
            progress.stage("train")
            if summon is not None:
                summon()
            _write_ledger(planned, store, train(job))
        _evaluate(planned, out, job, progress)
        out.set_status("done", step=planned.resolved.steps, steps=planned.resolved.steps)


def train_along(planned: Planned, store: Store, should_stop: Callable[[], bool]) -> None:
    """Another rank's part of `execute`: train with the first one, and write nothing. Raises as `train` does."""
    _refuse_other_data(planned)
    job = _job(planned, store, store.run(planned.id))
    job.should_stop = should_stop
    train(job)


def _prepare_store(planned: Planned, out: RunStore) -> None:
    versions = {"format": FORMAT, "training_version": TRAINING_VERSION}
    found = {**planned.run.settings(), **versions, "id": planned.id, "resolved": planned.resolved.to_json()}
    out.write_settings(found)
    out.set_status("running", **{"steps": planned.resolved.steps, "stage": "train", **progress_of(out)})
    if planned.manifest is not None and not out.path("noise.parquet").exists():
        out.write_path("noise.parquet", planned.manifest.save)


def _job(planned: Planned, store: Store, out: RunStore) -> Job:
    device = available_device()
    reset_peak_memory(device)
    reference = store.run(planned.reference) if planned.reference else None
    return make_job(planned.run, planned.resolved, out, reference, device)


def _refuse_other_data(planned: Planned) -> None:
    """UserError where the pairs or the noise are not those of the plan: a job may begin hours after it."""
    if not planned.data_hash:
        return
    if hashes(planned.run) != (planned.data_hash, planned.manifest_hash, planned.kept_hash):
        said = "the training data changed since this was planned; start again: the run then gets an id of its own"
        raise UserError(f"{planned.run.data.name}: {said}")


def _to_measure(planned: Planned, out: RunStore) -> list[float]:
    """Points of the curve, and the end, of which a record is still to be made."""
    plan, points = planned.evaluation, (*planned.run.evaluate.curve, 1.0)
    return [at for at in points if not all(out.has_records(one.key(at)) for one in plan.tasks(at, planned.manifest))]


def progress_of(out: RunStore) -> dict[str, Any]:
    """The step a run has reached, for its next status."""
    return {key: value for key, value in out.status().items() if key == "step"}


def _write_ledger(planned: Planned, store: Store, ledger: Ledger) -> None:
    budget = planned.run.budget
    paid = store.run(planned.reference).ledger() if planned.reference else None
    statement = ledger.statement(budget.kind, budget.value, planned.resolved, paid)
    store.run(planned.id).write_ledger(statement)


def _evaluate(planned: Planned, out: RunStore, job: Job, progress: Progress) -> None:
    """Evaluate the kept weights, publishing each task when it is done and skipping those already there."""
    booked = time.perf_counter()

    def done(key: str) -> bool:
        if job.is_lost is not None and job.is_lost():
            raise Lost
        if job.should_stop is not None and job.should_stop():
            raise Interrupted(planned.resolved.steps)
        return out.has_records(key)

    def publish(key: str, records: list[Record], outcomes: dict[str, np.ndarray]) -> None:
        nonlocal booked
        out.write_records(key, records, outcomes)
        now, ledger = time.perf_counter(), out.ledger()
        out.write_ledger({**ledger, "evaluate_seconds": ledger["evaluate_seconds"] + now - booked})
        booked = now

    for at in _to_measure(planned, out):
        path = out.path(weights_name(at))
        checkpoint = file_hash(path)
        load_weights(path, job.method, job.towers)
        progress.stage("evaluate" if at == 1.0 else f"evaluate at {at:.0%}")
        if at == 1.0:  # first, because the tasks use the features it leaves behind, and then discard them
            diagnose(job.method, job.towers, planned.evaluation, out, checkpoint, planned.manifest)
        evaluate(
            job.method,
            job.towers,
            planned.evaluation,
            at=at,
            run=planned.id,
            checkpoint=checkpoint,
            manifest=planned.manifest,
            done=done,
            publish=publish,
            features_dir=out.path("features"),
        )
