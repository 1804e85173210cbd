"""`bench eval`: measure existing weights, trained by a suite of this store or anywhere else."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.adapters import hyperparameters, registry
from bench.adapters.reach import adapter_source_hash
from bench.data.noise.manifest import NoiseManifest
from bench.errors import UserError, nearest
from bench.evaluation import EvaluationPlan, evaluate_features
from bench.evaluation.features import Features
from bench.hashing import digest, file_hash
from bench.machine.device_lock import hold_device
from bench.machine.environment import environment
from bench.models import open_clip_models
from bench.models.open_clip_models import OpenClipModel
from bench.store import Record, RunStore, RunWriter, Store
from bench.store.verify import repair_run, run_problems
from bench.store.writer import FEATURES
from bench.suite.run import Run, run_of_settings
from bench.suite.settings import MethodEntry
from bench.suite.suite import Suite, load_suite
from bench.suite.unfit import why_inapplicable
from bench.towers.build import OpenClipTowers
from bench.towers.state_dicts import read_state_dict
from bench.training.checkpoint import CHECKPOINT_FILE
from bench.training.inputs import InputsReader
from bench.training.job import available_device, rebuilt_model
from methods.protocol import Facts, Method


@dataclass(frozen=True)
class Checkpoint:
    """A file of weights, and the settings by which it is read and measured."""

    path: Path
    hash: str  #: sha256 of its bytes
    run: Run  #: the settings its towers, tokenizer and adapter are built from
    origin: str  #: id of the run of this store that it belongs to, "" for any other
    at: float  #: share of the budget after which it was taken; 1.0 if unknown
    foreign: OpenClipModel | None = None  #: a model that open_clip builds; its towers replace the run's

    def content(self) -> dict[str, Any]:
        """Return everything apart from the weights that a score depends on, as canonical content."""
        names = ("method", "config", "data", "towers", "noise", "seed")
        own = {key: value for key, value in self.run.content().items() if key in names}
        return {
            **own,
            **({"towers": self.foreign.content()} if self.foreign else {}),
            "precision": self.run.train.precision,
            "adapter": adapter_source_hash(self.run.method),
        }

    def provenance(self) -> dict[str, Any]:
        """Return the content of settings.json next to its records."""
        origin = {"file": str(self.path.resolve()), "checkpoint": self.hash, "run": self.origin, "at": self.at}
        return {**origin, "label": self.run.label, **self.content()}

    def plan(self, suite: Suite) -> EvaluationPlan:
        """Return what a suite measures, with images of the size and resizing that these weights were trained for."""
        if self.foreign is None:
            return EvaluationPlan(suite.data, suite.evaluate, noise_of=self.run.noise_of_held_out)
        if suite.data.on_features:
            raise UserError(f"{self.path}: reads pixels, but suite {suite.name} measures on stored features")
        preprocess = self.foreign.preprocess
        return EvaluationPlan(suite.data, suite.evaluate, preprocess.size, preprocess.resize)

    def manifest(self) -> NoiseManifest | None:
        """Make the manifest of the noise it was trained on. Returns None if that is not known or not fixed."""
        noise = None if self.run.keep.entry.truth_alone else InputsReader().noise(self.run)
        return noise if isinstance(noise, NoiseManifest) else None


@dataclass(frozen=True)
class Evaluated:
    """The outcome of `evaluate_checkpoint`."""

    out: RunStore  #: the folder that holds the records
    records: list[Record]  #: all that the suite asks for, measured now or before
    measured: int  #: tasks that were measured by this call
    known: int  #: tasks that were stored before


def evaluate_checkpoint(
    checkpoint: str | Path,
    suite: Suite | str | Path,
    results: str | Path = "results",
    *,
    method: str | None = None,
    architecture: str | None = None,
) -> Evaluated:
    """Measure the tasks of a suite on existing weights and store the records below the suite.

    checkpoint: weights or a checkpoint of a run, whose settings.json says how to read it; any other state dict; a model
    of open_clip as MODEL/TAG; or a folder of `bench export`. suite: a loaded suite, a YAML file, or the name of a
    shipped suite. results: the folder of the store. method: the suite's label, or the method with its defaults, by
    which a state dict of no run is read, with the suite's towers; default: the suite's baseline. architecture: the
    architecture of open_clip that a file is a state dict of.

    Tasks that are stored already are not measured again. Noise detection needs the manifest of a run. Raises UserError
    for weights that cannot be read or do not fit, and Busy while another process measures them.

    >>> evaluated = bench.evaluate("ViT-B-32/openai", "smoke")  # doctest: +SKIP
    >>> {record.task: record.value for record in evaluated.records}  # doctest: +SKIP
    """
    given, store = str(checkpoint), Store(Path(results))
    suite = suite if isinstance(suite, Suite) else load_suite(suite)
    model = open_clip_models.find_open_clip_model(given, architecture)
    weights = describe_checkpoint(Path(given), suite, method) if model is None else _described(model, suite, method)
    plan = weights.plan(suite)
    folder = store.suite(suite.name) / "evaluated" / f"{weights.hash[:16]}-{digest(weights.content())[:8]}"
    manifest = weights.manifest()
    out, tasks = RunStore(folder), plan.tasks(1.0, manifest.summary if manifest else None)
    if not tasks:
        families = ", ".join(suite.evaluate.tasks)
        raise UserError(f"{given}: suite {suite.name} asks for nothing that can be measured on it (tasks: {families})")
    todo = [task for task in tasks if not out.has_records(task.key(1.0))]
    if todo or run_problems(out):
        towers, adapter = _load(weights, plan)
        with out.claim() as claim, hold_device(alone=False), claim.fence.guarded():
            repair_run(claim)
            todo = [task for task in tasks if not out.has_records(task.key(1.0))]
            writer = RunWriter(claim)
            writer.write_settings(weights.provenance())
            writer.write_json("environment.json", environment(available_device()))

            def publish(key: str, measured: list[Record], outcomes: dict[str, np.ndarray]) -> None:
                records = [dataclasses.replace(one, at=weights.at) for one in measured]
                writer.write_records(key, records, outcomes)

            home, inside = writer.path(FEATURES), writer.fence.path
            features = Features(adapter, towers, weights.hash, plan.protocol.label, home, plan.channels, inside)
            try:
                evaluate_features(
                    features,
                    plan,
                    at=1.0,  # the tasks of final weights, at whatever share these were taken
                    run=weights.origin,
                    manifest=manifest,
                    done=writer.has_records,
                    publish=publish,
                )
            except FloatingPointError as error:
                raise UserError(f"{weights.path}: {error}") from error
    wanted = {(task.dataset, task.name) for task in tasks}
    done = (one for one in out.records() if one.protocol == plan.protocol.label)
    records = [one for one in done if (one.dataset, one.task) in wanted]
    return Evaluated(out, records, len(todo), len(tasks) - len(todo))


def _load(checkpoint: Checkpoint, plan: EvaluationPlan) -> tuple[OpenClipTowers, Method]:
    """Return the towers and the method with the weights loaded, on the first GPU or the CPU."""
    run = checkpoint.run
    if checkpoint.foreign is not None:
        torch.set_num_threads(run.train.threads)
        # 2 stands for the number of training pairs, which evaluation does not use
        facts = Facts(2, run.train.batch, run.towers.dim, run.seed)
        method = hyperparameters.make_method(run.method, None, run.config, facts)
        return open_clip_models.build_open_clip(checkpoint.foreign, plan.seen).to(available_device()), method
    try:
        return rebuilt_model(run, InputsReader().for_model(run), checkpoint.path, available_device())
    except UserError as error:
        hint = "a state dict of an architecture of open_clip needs --towers MODEL, such as --towers ViT-B-32"
        raise UserError(*error.lines, *([] if checkpoint.origin else [hint])) from error


def describe_checkpoint(path: Path, suite: Suite, label: str | None) -> Checkpoint:
    """Return how to read a file of weights: by settings.json next to it, else by the suite and a method.

    Raises UserError if there is no such file, and if a run of other data is measured by the suite.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    of_run = re.fullmatch(rf"{re.escape(CHECKPOINT_FILE)}|weights-(\d{{3}})\.safetensors", path.name)
    home = RunStore(path.resolve().parent)
    settings = home.settings() if of_run else {}
    if of_run is None or not settings:
        return Checkpoint(path, file_hash(path), _run_of_suite(suite, label or suite.baseline), "", 1.0)
    if label is not None:
        raise UserError(f"--method {label}: {home.path('settings.json')} says what {path.name} is; omit it")
    run = run_of_settings(settings, home.path("settings.json"))
    if run.data.content() != suite.data.with_all_pairs.content():
        own, others = (f"{data.name} at {data.size} px" for data in (run.data, suite.data))
        pairs = run.data.content().items() ^ suite.data.content().items()
        fields = ", ".join(sorted({f"data.{name}" for name, _ in pairs}))
        reason = f"was trained on {own}, but suite {suite.name} measures on {others}"
        raise UserError(f"{path}: {reason}: they differ in {fields}")
    run = dataclasses.replace(run, data=suite.data)  # the suite knows where the files lie on this machine
    steps = sum(count for _, count in settings["resolved"]["phases"])
    at = int(of_run[1]) / 100 if of_run[1] else read_state_dict(path)["step"] / steps
    return Checkpoint(path, file_hash(path), run, home.id, at)


def _described(model: OpenClipModel, suite: Suite, label: str | None) -> Checkpoint:
    """Return how to measure a model of open_clip. Raises UserError for a method that adds to the towers."""
    if label is None:  # the row of the baseline's name may use a method that adds to the towers
        suite = suite.model_copy(update={"methods": ()})
    known = suite.baseline if suite.baseline in registry.method_names() else Suite.model_fields["baseline"].default
    run = _run_of_suite(suite, label or known)
    if registry.find_method(run.method).score != "cosine":
        raise UserError(f"--method {label}: adds to the towers what {model.name} does not have; omit it")
    return Checkpoint(model.weights, file_hash(model.weights), run, "", 1.0, model)


def _run_of_suite(suite: Suite, label: str) -> Run:
    """Return the settings of a suite's entry, or of a method by its name, without noise: it is unknown."""
    labels = {entry.label: entry for entry in suite.methods}
    if label not in labels and label not in registry.method_names():
        choices = [*labels, *registry.method_names()]
        raise UserError(
            f"--method {label}: neither a label of suite {suite.name} nor a method{nearest(label, choices)} "
            "(one in a file of your own: --plugin FILE)"
        )
    entry = labels.get(label) or MethodEntry(method=label, label=label)
    if reason := why_inapplicable(entry, suite.towers[0], suite.data):
        raise UserError(f"--method {label}: is not applicable: {reason}")
    run = suite.model_copy(update={"methods": (entry,)}).cells()[0]
    return dataclasses.replace(run, noise=None, rate=0.0, reference=None)
