"""`bench eval`: measure a checkpoint that is there already, trained by a suite of this store or anywhere else."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.adapters import hyperparameters, registry
from bench.adapters.source_hash import adapter_source_hash
from bench.data.noise import NoiseManifest
from bench.errors import UserError, nearest
from bench.evaluation import EvaluationPlan, evaluate
from bench.hashing import digest
from bench.machine.device_lock import device
from bench.machine.environment import environment
from bench.models import open_clip_models
from bench.models.open_clip_models import Foreign
from bench.models.stored_run import run_of_settings
from bench.store import Record, RunStore, Store
from bench.suite.run import Run
from bench.suite.settings import MethodEntry
from bench.suite.suite import Suite, load_suite
from bench.towers.build import OpenClipTowers
from bench.towers.state_dicts import read
from bench.training.checkpoint import CHECKPOINT, file_hash
from bench.training.inputs import InputsReader
from bench.training.job import available_device, rebuilt
from methods.protocol import Facts, Method


@dataclass(frozen=True)
class Checkpoint:
    """A file of weights and what is known of it."""

    path: Path
    hash: str  #: sha256 of its bytes
    run: Run  #: the settings its towers, tokenizer and adapter are built from
    origin: str  #: id of the run of this store that it belongs to, "" for any other
    at: float  #: share of the budget it was taken after; 1.0 where nothing is known
    foreign: Foreign | None = None  #: the model that open_clip builds, in place of the run's towers

    def content(self) -> dict[str, Any]:
        """Everything but the weights that a score depends on."""
        kept = ("method", "config", "data", "towers", "noise", "seed")
        own = {key: value for key, value in self.run.content().items() if key in kept}
        return {
            **own,
            **({"towers": self.foreign.content()} if self.foreign else {}),
            "precision": self.run.train.precision,
            "adapter": adapter_source_hash(self.run.method),
        }

    def provenance(self) -> dict[str, Any]:
        """For settings.json beside its records."""
        said = {"file": str(self.path.resolve()), "checkpoint": self.hash, "run": self.origin, "at": self.at}
        return {**said, "label": self.run.label, **self.content()}

    def plan(self, suite: Suite) -> EvaluationPlan:
        """What a suite measures, on images as these weights see them."""
        if self.foreign is None:
            return EvaluationPlan(suite.data, suite.evaluate)
        preprocess = self.foreign.preprocess
        return EvaluationPlan(suite.data, suite.evaluate, preprocess.size, preprocess.resize)

    def manifest(self) -> NoiseManifest | None:
        """Make the manifest of the noise it was trained on. Returns None if that is not known or not fixed."""
        noise = None if self.run.keep.entry.truth_alone else InputsReader().noise(self.run)
        return noise if isinstance(noise, NoiseManifest) else None


@dataclass(frozen=True)
class Evaluated:
    """Where the records of a checkpoint lie, and those that the suite asks for."""

    out: RunStore
    records: list[Record]
    measured: int  #: tasks measured now
    known: int  #: tasks that were stored before


def evaluate_checkpoint(
    checkpoint: str | Path,
    suite: Suite | str | Path,
    results: str | Path = "results",
    *,
    method: str | None = None,
    architecture: str | None = None,
) -> Evaluated:
    """Measure what a suite measures on the weights in a file, and store it below the suite; what is stored is kept.

    Of a run's file, settings.json beside it says what it is; any other is read by the suite's row of the label
    `method`, or by the method of that name with its defaults (None: the suite's baseline), with the suite's towers.
    open_clip's models are given by MODEL/TAG, by a folder of `bench export`, or by a file and the `architecture` it is
    of. Noise detection needs the manifest of a run. `results` is the store's folder. Raises UserError for what cannot
    be read or does not fit, Busy while another process measures it.
    """
    given, store, label = str(checkpoint), Store(Path(results)), method
    suite = suite if isinstance(suite, Suite) else load_suite(suite)
    model = open_clip_models.find(given, architecture)
    found = describe(Path(given), suite, label) if model is None else _described(model, suite, label)
    plan = found.plan(suite)
    folder = store.suite(suite.name) / "evaluated" / f"{found.hash[:16]}-{digest(found.content())[:8]}"
    manifest = found.manifest()
    out, tasks = RunStore(folder), plan.tasks(1.0, manifest)
    todo = [task for task in tasks if not out.has_records(task.key(1.0))]
    if todo:
        towers, adapter = _load(found, plan)
        with out.claim(), device(alone=False):
            out.write_settings(found.provenance())
            out.write_environment(environment(available_device()))
            _measure(found, adapter, towers, plan, manifest, out)
    wanted = {(task.dataset, task.name) for task in tasks}
    done = (one for one in out.records() if one.protocol == plan.protocol.label)
    records = [one for one in done if (one.dataset, one.task) in wanted]
    return Evaluated(out, records, len(todo), len(tasks) - len(todo))


def _measure(
    checkpoint: Checkpoint,
    method: Method,
    towers: OpenClipTowers,
    plan: EvaluationPlan,
    manifest: NoiseManifest | None,
    out: RunStore,
) -> None:
    def publish(key: str, records: list[Record], outcomes: dict[str, np.ndarray]) -> None:
        out.write_records(key, [dataclasses.replace(one, at=checkpoint.at) for one in records], outcomes)

    try:
        evaluate(
            method,
            towers,
            plan,
            at=1.0,  # all that is measured at the end, however far these weights are
            run=checkpoint.origin,
            checkpoint=checkpoint.hash,
            manifest=manifest,
            done=out.has_records,
            publish=publish,
            features_dir=out.path("features"),
        )
    except FloatingPointError as error:
        raise UserError(f"{checkpoint.path}: {error}") from error


def _load(checkpoint: Checkpoint, plan: EvaluationPlan) -> tuple[OpenClipTowers, Method]:
    run = checkpoint.run
    if checkpoint.foreign is not None:
        torch.set_num_threads(run.train.threads)
        facts = Facts(2, run.train.batch, run.towers.dim, run.seed)  # of the training pairs it takes nothing
        method = hyperparameters.make(run.method, None, run.config, facts)
        return open_clip_models.load(checkpoint.foreign, plan.seen).to(available_device()), method
    return rebuilt(run, InputsReader().for_model(run), checkpoint.path, available_device())


def describe(path: Path, suite: Suite, label: str | None) -> Checkpoint:
    """What a file of weights is: read from settings.json beside it, or given by the suite and a method."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    of_run = re.fullmatch(rf"{re.escape(CHECKPOINT)}|weights-(\d{{3}})\.safetensors", path.name)
    home = RunStore(path.resolve().parent)
    try:
        settings = home.settings() if of_run else {}
    except ValueError as error:
        raise UserError(f"{home.path('settings.json')}: cannot be read: {error}") from error
    if of_run is None or not settings:
        return Checkpoint(path, file_hash(path), _run_of_suite(suite, label or suite.baseline), "", 1.0)
    if label is not None:
        raise UserError(f"--method {label}: {home.path('settings.json')} says what {path.name} is; leave it away")
    run = run_of_settings(settings, home.path("settings.json"))
    if run.data.content() != suite.data.untreated.content():
        own, others = (f"{data.name} at {data.size} px" for data in (run.data, suite.data))
        pairs = run.data.content().items() ^ suite.data.content().items()
        fields = ", ".join(sorted({f"data.{name}" for name, _ in pairs}))
        said = f"was trained on {own}, but suite {suite.name} measures on {others}"
        raise UserError(f"{path}: {said}: they differ in {fields}")
    run = dataclasses.replace(run, data=suite.data)  # where its files lie on this machine
    steps = sum(count for _, count in settings["resolved"]["phases"])
    at = int(of_run[1]) / 100 if of_run[1] else read(path)["step"] / steps
    return Checkpoint(path, file_hash(path), run, home.id, at)


def _described(model: Foreign, suite: Suite, label: str | None) -> Checkpoint:
    if label is None:  # a row of that name may be of a method that adds to the towers
        suite = suite.model_copy(update={"methods": ()})
    run = _run_of_suite(suite, label or suite.baseline)
    if registry.find(run.method).score != "cosine":
        raise UserError(f"--method {label}: adds to the towers what {model.name} does not have; leave it away")
    return Checkpoint(model.weights, file_hash(model.weights), run, "", 1.0, model)


def _run_of_suite(suite: Suite, label: str) -> Run:
    """The settings of a suite's row, or of a method by its name; nothing is known of noise."""
    labels = {entry.label: entry for entry in suite.methods}
    if label not in labels and registry.canonical(label) not in registry.names():
        choices = [*labels, *registry.names()]
        raise UserError(
            f"--method {label}: neither a label of suite {suite.name} nor a method{nearest(label, choices)} "
            "(one in a file of your own: --plugin FILE)"
        )
    entry = labels.get(label) or MethodEntry(method=label, label=label)
    run = suite.model_copy(update={"methods": (entry,)}).cells()[0]
    return dataclasses.replace(run, noise=None, rate=0.0, reference=None)
