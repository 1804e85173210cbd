"""An external model that scores a run's pairs: its weights in matching towers, and the images that it sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from bench.data import MemoryPairs, Pairs
from bench.data.pairs import ResizedPairs
from bench.data.photo import CROP
from bench.data.source import data_source
from bench.errors import UserError, one_line
from bench.hashing import OPEN_CLIP
from bench.store import RunStore, reading
from bench.store.verify import refuse_changed_in_run
from bench.suite.keep_settings import ALL_PAIRS
from bench.suite.run import Run, Scorer
from bench.towers.build import OpenClipTowers
from bench.towers.state_dicts import load_tensors, locate_weights, refuse_other_conventions
from bench.towers.tokenization import SmallVocabulary
from bench.training.inputs import InputsReader
from bench.training.job import fresh_towers, parameter_dtype, rebuilt_model
from methods.base import Adapter
from methods.protocol import Method


def build_external_scorer(run: Run, device: torch.device) -> tuple[OpenClipTowers, Method]:
    """Build the model whose weights score the pairs of `run`, on `device`.

    Weights of a stored run are read by its method, others as towers whose embeddings are compared by their cosine.
    Raises UserError, with entry, field, file and fix, for weights that are missing, damaged or changed, that do not fit
    their towers, whose vocabulary or stored features are others than those of the data here, or that give no variances
    where these score.
    """
    scorer = run.scorer
    assert scorer is not None
    try:
        on_features, reads = run.data.on_features, "image" in scorer.run.towers.stored
        if on_features != reads:
            kinds = ("pixels", "stored features")
            fault = f"reads {kinds[reads]}, and the data has {kinds[on_features]}"
            raise UserError(f"{scorer.run.towers.image}: {fault}; name weights of towers on {kinds[on_features]}")
        path = locate_weights(scorer.weights, "keep.weights")
        towers, method = _of_run(run, scorer, path, device) if scorer.stored else _bare(run, scorer, path, device)
        if run.keep.entry.score == "csd" and method.score == "cosine":
            fix = f"{run.keep.kind} needs a stored run of a method with variances"
            raise UserError(f"{path}: gives no variances; {fix}")
        return towers, method
    except UserError as error:
        message = one_line(error, 500).removeprefix("keep.weights: ")
        raise UserError(f"keep.weights of {run.label}: {message}") from error


def images_seen(run: Run, pairs: Pairs) -> Pairs:
    """Return the pairs of `run` with images of the size that its scorer sees, by the evaluation transform."""
    assert run.scorer is not None
    size = run.scorer.run.data.size
    if size == run.data.size or run.data.on_features:
        return pairs
    if isinstance(pairs, MemoryPairs):
        return ResizedPairs.of(pairs, size, CROP)
    return data_source(run.data.model_copy(update={"size": size})).pairs()


def _of_run(run: Run, scorer: Scorer, path: Path, device: torch.device) -> tuple[OpenClipTowers, Method]:
    """Build a stored run's model as it was trained: its method, and the vocabulary of its own data."""
    home = RunStore(path.absolute().parent)
    refuse_changed_in_run(home, path.name)
    inputs = InputsReader().for_model(scorer.run)
    settings = reading.read_json(home.path("settings.json"), "settings") or {}
    known = (settings.get("address") or {}).get("pairs")
    if known != inputs.pairs.content_hash:
        name = scorer.run.data.name
        fix = f"its vocabulary cannot be rebuilt; put back the data of {name}, or name other weights"
        raise UserError(f"{path}: was trained on other pairs than those of {name} here: {fix}")
    if scorer.run.towers.stored and InputsReader().for_model(_with_all_pairs(run)).pairs.content_hash != known:
        raise UserError(f"{path}: reads other stored features than data.features has; name weights of a run on these")
    return rebuilt_model(scorer.run, inputs, path, device)


def _bare(run: Run, scorer: Scorer, path: Path, device: torch.device) -> tuple[OpenClipTowers, Method]:
    """Build towers without a method: weights of open_clip, or of a run without its settings."""
    if scorer.weights.startswith(OPEN_CLIP):
        refuse_other_conventions(scorer.weights, scorer.run.towers, "keep.weights")
    inputs = InputsReader().for_model(_with_all_pairs(run))
    torch.set_num_threads(run.train.threads)
    towers = fresh_towers(scorer.run, inputs)
    if isinstance(towers.tokenizer, SmallVocabulary) or scorer.run.towers.stored:
        what = "stored features" if scorer.run.towers.stored else "vocabulary"
        fix = "put settings.json of its run next to it, or name its architecture of open_clip: keep.towers"
        raise UserError(f"{path}: does not say which {what} it was trained with; {fix}")
    load_tensors(path, {"towers": towers})
    dtype = parameter_dtype(run)
    return towers.to(device, dtype), Adapter(None, inputs.facts)


def _with_all_pairs(run: Run) -> Run:
    return replace(run, keep=ALL_PAIRS, scorer=None)
