"""Builds the model of a run and its training, ready to start or to resume."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import nn

from bench.adapters import hyperparameters
from bench.catalogue.tower_families import learns_tokens
from bench.data.features import FeaturePairs
from bench.data.pairs import StoredFeatures
from bench.data.source import data_source
from bench.distributed import current_group
from bench.errors import UserError
from bench.hashing import OPEN_CLIP
from bench.loading.loader import Loader
from bench.loading.workers import worker_count
from bench.store import RunStore, reading
from bench.suite.run import Run
from bench.suite.settings import SNAPSHOTS, DataSettings
from bench.towers import pretrained
from bench.towers.blocks import compile_blocks, recompute_blocks
from bench.towers.build import OpenClipTowers, build_towers, tokenizer_of
from bench.towers.state_dicts import (
    average_with_file,
    load_tensors,
    locate_weights,
    refuse_other_conventions,
    start_from,
)
from bench.training import side_towers
from bench.training.checkpoint import weights_name
from bench.training.inputs import Inputs, Vocabularies
from bench.training.loop import TrainingJob
from bench.training.schedule import ResolvedSteps
from methods.base import stream
from methods.protocol import Method

Starts = Literal["all", "files", "none"]


def parameter_dtype(run: Run) -> torch.dtype:
    """Return the type of a run's parameters; bf16 is a type of autocast, so they are fp32 there too."""
    return torch.float64 if run.train.precision == "fp64" else torch.float32


def build_model(run: Run, inputs: Inputs) -> tuple[OpenClipTowers, Method]:
    """Fresh towers and method, drawn from the run's seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(run.seed, "initialisation").initial_seed())
        towers = fresh_towers(run, inputs)
        method = hyperparameters.make_method(run.method, None, run.config, inputs.facts)
    return towers, method


def fresh_towers(run: Run, inputs: Inputs, device: str = "cpu") -> OpenClipTowers:
    """A run's towers before it begins at weights; on "meta" they have shapes alone, without draws and memory."""
    spec = run.towers
    of = spec.vocabulary_of
    words = Vocabularies(data_source(DataSettings(name=of)).pairs()) if of else inputs.vocabularies
    tokenizer = tokenizer_of(spec, words)
    size = inputs.pairs.width if isinstance(inputs.pairs, StoredFeatures) else run.data.size
    with torch.device(device):
        return build_towers(spec, tokenizer, size, run.train.bn_group)


def begins_with_files(run: Run) -> bool:
    """Return whether `prepare_model` with starts="files" reads weights."""
    starts = (run.start, run.towers.image_start, run.towers.text_start)
    return any(start is not None and Path(start).exists() for start in starts)


def prepare_model(
    method: Method,
    towers: OpenClipTowers,
    run: Run,
    device: torch.device | None,
    reference: RunStore | None,
    starts: Starts = "all",
) -> None:
    """Begin at the run's start or its reference's final weights, let the method change the towers, move to `device`.

    `device`: None leaves both where they are. `starts`: "files" skips weights that are not downloaded yet, as costs do
    not depend on them; "none" skips all.
    """
    assert isinstance(method, nn.Module)
    final = None if reference is None or starts == "none" else reference.path(weights_name(1.0))
    side_towers.hold_reference(method, towers, final)
    if starts != "none":
        start = final if method.reference and method.starts_from_reference else None
        _begin(method, towers, run, start, fetch=starts == "all")
    towers.frozen = {"image": "visual", "text": "text"}.get(run.train.freeze or "", "")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(run.seed, "preparation").initial_seed())
        method.prepare(towers)
    side_towers.hold_average(method, towers)
    dtype = parameter_dtype(run)
    towers.to(device, dtype)
    towers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # halves a small ResNet's step on CPUs
    method.to(device, dtype)
    if run.average is not None and final is not None:
        average_with_file(final, {"towers": towers, "method": method}, run.average)


def rebuilt_model(run: Run, inputs: Inputs, weights: Path, device: torch.device) -> tuple[OpenClipTowers, Method]:
    """A run's towers and method with the weights in a file, which replace those that the run started from.

    Sets the process to the run's number of threads. Raises UserError if the weights do not fit.
    """
    torch.set_num_threads(run.train.threads)
    towers, method = build_model(run, inputs)
    prepare_model(method, towers, run, device, None, starts="none")
    load_tensors(weights, {"towers": towers, "method": method})
    return towers, method


def _begin(method: Method, towers: OpenClipTowers, run: Run, reference: Path | None, fetch: bool) -> None:
    if run.start is not None:
        if run.start.startswith(OPEN_CLIP):
            refuse_other_conventions(run.start, run.towers)
        if not fetch and not Path(run.start).is_file():
            return
        _refuse_other_words(run)
        start_from(locate_weights(run.start), method, towers)
    elif reference is not None:
        start_from(reference, method, towers)
    else:
        pretrained.start_pretrained(towers, run.towers, fetch)


def _refuse_other_words(run: Run) -> None:
    """Raise UserError if weights of a stored run were trained on tokens that mean other words here."""
    settings = reading.read_json(Path(run.start or "").absolute().parent / "settings.json", "settings") or {}
    if "towers" in settings and learns_tokens(run.towers.text):
        of = settings["towers"].get("vocabulary_of") or settings["data"]["name"]
        if of != (own := run.towers.vocabulary_of or run.data.name):
            fix = f"set towers.vocabulary_of: {of}"
            raise UserError(f"start: {run.start}: has tokens of the captions of {of}, not of {own}; {fix}")


def make_job(
    run: Run,
    inputs: Inputs,
    resolved: ResolvedSteps,
    out: RunStore,
    reference: RunStore | None,
    device: torch.device,
    starts: Starts = "all",
) -> TrainingJob:
    """A training that is ready to start or to resume. Sets the process to the run's number of threads.

    `starts` as in `prepare_model`.
    """
    torch.set_num_threads(run.train.threads)
    towers, method = build_model(run, inputs)
    prepare_model(method, towers, run, device, reference, starts)
    if isinstance(inputs.pairs, FeaturePairs):
        inputs.pairs.refuse_fewer_views(1 + method.extra_views)
    if run.train.recompute:
        recompute_blocks(towers)
    if run.train.compile:
        compile_blocks(towers, device)
    loader = Loader(
        inputs.seen,
        inputs.noise_of_seen,
        towers,
        batch=run.train.batch,
        seed=run.seed,
        recipe=run.train.augment,
        dtype=parameter_dtype(run),
        device=device,
        workers=0 if data_source(run.data).in_memory else worker_count(run.data.workers, current_group().world),
    )
    return TrainingJob(method, towers, loader, run.train, resolved, run.seed, out, current_group(), device, SNAPSHOTS)


def available_device() -> torch.device:
    """The first GPU, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
