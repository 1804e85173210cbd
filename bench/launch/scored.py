"""The rows of a run whose pairs a model scores: chosen once, before its first step, and recorded."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import reading
from bench.arrays import Floats, Ints
from bench.catalogue.keep import Asked
from bench.data import Pairs
from bench.errors import UserError, one_line
from bench.evaluation.features import Features
from bench.evaluation.measures import agreement
from bench.evaluation.tasks import PROTOCOL
from bench.hashing import file_hash
from bench.launch.helpers import Helpers, Score
from bench.planning.planned import Planned
from bench.store import Damaged, RunStore, RunWriter, Store
from bench.store.doctor import refuse_changed
from bench.store.writer import FEATURES, KEPT
from bench.towers.build import OpenClipTowers
from bench.towers.state_dicts import located
from bench.training import external_scorer
from bench.training.checkpoint import weights_name
from bench.training.inputs import Inputs, InputsReader
from bench.training.job import available_device, rebuilt
from methods.protocol import Method

_ABOUT = b"scoring"  #: key of what the file says about itself


def chosen(planned: Planned, inputs: Inputs, store: Store, out: RunWriter, others: Helpers) -> Inputs:
    """Return the inputs with the rows that the run's scorer chose; they are scored and recorded unless they were.

    The ranks share the encoding. This one alone chooses, so that the rows are those of one rank.

    Scores are cosines (or what the treatment names) under the final weights of the reference run, or under the weights
    that the suite names, of each image with the evaluation transform and the first text that training sees beside it.
    A damaged record is moved aside. Raises Damaged if the scorer's weights changed, and UserError if its scores are not
    finite or if weights from elsewhere cannot be used.
    """
    if not inputs.awaits_scores:
        return inputs
    try:
        if out.path(KEPT).exists():
            return recorded(inputs, out)
    except Damaged as error:
        out.set_aside(error.path.name)
    started = time.perf_counter()
    scores, keep = _scores(planned, inputs, store, out, others), planned.run.keep
    try:
        rows = keep.entry.choose(Asked(inputs.pairs.keys, None, planned.run.seed, keep.share, keep.rows, scores))
    except ValueError as error:
        raise UserError(f"keep: {keep.label}: {error}: {_scorer(planned)}") from error
    seconds = (time.perf_counter() - started) * others.world  # of all ranks
    about = {"n": len(inputs.pairs), "scorer": _scorer(planned), "seconds": seconds}
    out.write_path(KEPT, lambda path: _save(path, inputs, rows, scores[rows], about))
    return inputs.of_rows(rows)


def recorded(inputs: Inputs, out: RunStore) -> Inputs:
    """Return the inputs with the rows that are recorded in a run. Raises Damaged."""
    return inputs if not inputs.awaits_scores else inputs.of_rows(_load(out, inputs)[0])


def kept_rows(inputs: Inputs, out: RunStore) -> Ints | None:
    """Return the rows that a scorer chose, rising; None for other runs and without a record. Raises Damaged."""
    return _load(out, inputs)[0] if inputs.scored and out.path(KEPT).exists() else None


def cost(planned: Planned, inputs: Inputs, out: RunStore) -> dict[str, Any] | None:
    """Return what scoring cost, for the run's ledger; None for a run without a scorer. Raises Damaged.

    For weights from elsewhere it says which they are, and that their training is not in it.
    """
    if not inputs.scored:
        return None
    forwards, (_, about) = float(len(inputs.pairs)), _load(out, inputs)
    spent = {"flops": planned.resolved.scoring_flops, "image_forwards": forwards, "text_forwards": forwards}
    external = {"scorer": _scorer(planned), "scorer_training": "not charged"} if planned.run.scorer else {}
    return {**spent, "train_seconds": about["seconds"], **external}


def _scorer(planned: Planned) -> str | None:
    """Return the id of the run, or the sha256 of the weights from elsewhere, that scores a run's pairs."""
    return planned.address["keep"]["weights"] if planned.run.scorer else planned.reference


@dataclass(frozen=True)
class ScoringModel:
    """The model that scores a run's pairs, and the pairs with images as it sees them."""

    towers: OpenClipTowers
    method: Method
    weights: str  #: sha256
    pairs: Pairs


def scoring_model(planned: Planned, inputs: Inputs, store: Store) -> ScoringModel:
    """Load what scores the pairs of a run; every rank does. Raises Damaged and UserError as `chosen` does."""
    if planned.run.scorer:
        return ScoringModel(*_external(planned), external_scorer.images_seen(planned.run, inputs.pairs))
    return ScoringModel(*_reference(planned, store), inputs.pairs)


def _scores(planned: Planned, inputs: Inputs, store: Store, out: RunWriter, others: Helpers) -> Floats:
    """Return the score [N] of every pair as training sees it, under the weights of the run's scorer."""
    with others.together(Score()):
        model = scoring_model(planned, inputs, store)
        others.share(model.pairs)
    features = Features(
        model.method, model.towers, model.weights, PROTOCOL, out.path(FEATURES), None, out.inside, others.extracting
    )
    found = agreement(features, model.pairs, inputs.noise)[planned.run.keep.entry.score].double().numpy()
    features.discard()
    return found


def _reference(planned: Planned, store: Store) -> tuple[OpenClipTowers, Method, str]:
    """Return towers and method of the reference run at its final weights, and their sha256."""
    assert planned.reference is not None
    assert planned.run.reference is not None
    scorer, weights = store.run(planned.reference), weights_name(1.0)
    refuse_changed(scorer, weights)
    path = scorer.path(weights)
    model = InputsReader().for_model(planned.run.reference)
    return *rebuilt(planned.run.reference, model, path, available_device()), file_hash(path)


def _external(planned: Planned) -> tuple[OpenClipTowers, Method, str]:
    """Return the external model, and the sha256 of its weights.

    Raises UserError if the weights are not those of the run's id, because a job may start hours after it was planned.
    """
    scorer, known = planned.run.scorer, _scorer(planned)
    assert scorer is not None
    weights = file_hash(located(scorer.weights, "keep.weights"))
    if known not in (weights, scorer.weights):
        message = "changed since this was planned; start again: the run then gets an id of its own"
        raise UserError(f"keep.weights of {planned.run.label}: {scorer.weights}: {message}")
    return *external_scorer.load(planned.run, available_device()), weights


def _save(path: Path, inputs: Inputs, rows: Ints, scores: Floats, about: Mapping[str, Any]) -> None:
    """Write Parquet: columns key, row, score, a line for each kept row; what it was made of as metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = inputs.of_rows(rows).seen.keys
    table = pa.table({"key": list(keys), "row": rows, "score": scores})
    pq.write_table(table.replace_schema_metadata({_ABOUT: json.dumps(about)}), path)


def _load(out: RunStore, inputs: Inputs) -> tuple[Ints, dict[str, Any]]:
    """Return the recorded rows and what the file says about itself. Raises Damaged unless they fit the inputs."""
    import pyarrow as pa

    path = out.path(KEPT)
    try:
        table = reading.parquet(path, ("key", "row", "score"))
        about = reading.parsed((table.schema.metadata or {})[_ABOUT])
        if not isinstance(about, dict) or not isinstance(about.get("seconds"), float | int):
            raise ValueError("its description has other fields")
        rows: Ints = table["row"].cast(pa.int64()).to_numpy()
        if len(rows) != len(inputs.seen) or (np.diff(rows) <= 0).any() or rows[0] < 0 or rows[-1] >= len(inputs.pairs):
            raise ValueError(f"{len(inputs.seen)} rows of {len(inputs.pairs)} in rising order are wanted")
        if table["key"].to_pylist() != list(inputs.of_rows(rows).seen.keys):
            raise ValueError("its keys are those of other pairs")
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise Damaged(path, f"not a record of the kept pairs ({one_line(error, 200)})") from error
    return rows, about
