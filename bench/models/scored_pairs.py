"""The rows of a run whose pairs a model scores: chosen once, before its first step, and recorded."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import reading
from bench.arrays import Floats, Ints
from bench.catalogue.keep import SelectionInputs
from bench.data import Pairs
from bench.distributed import current_group
from bench.errors import UserError, one_line
from bench.evaluation.features import Features
from bench.evaluation.measures import pair_confidences, pair_embeddings
from bench.evaluation.noise.filters import FILTERS
from bench.evaluation.tasks import PROTOCOL
from bench.hashing import file_hash
from bench.store import Damaged, RunStore, RunWriter
from bench.store.verify import refuse_changed_in_run
from bench.store.writer import FEATURES, KEPT_FILE
from bench.suite.run import Run
from bench.towers.build import OpenClipTowers
from bench.towers.state_dicts import locate_weights
from bench.training import external_scorer
from bench.training.checkpoint import weights_name
from bench.training.inputs import Inputs, InputsReader
from bench.training.job import available_device, rebuilt_model
from methods.protocol import Method

_METADATA_KEY = b"scoring"  #: key of what the file says about itself


@dataclass(frozen=True)
class Scoring:
    """Scorer of a run's pairs: the final weights of its reference run, or those that the suite names."""

    run: Run
    scorer: str | None  #: id of the reference run, or sha256 of the weights of an external model
    reference: RunStore | None  #: the reference run; None for an external model

    def model(self, pairs: Pairs) -> tuple[OpenClipTowers, Method, str, Pairs]:
        """Load towers and method; return them, the sha256 of their weights, and the pairs with images as they see them.

        Raises Damaged and UserError as `choose_rows` does.
        """
        if named := self.run.scorer:
            weights = file_hash(locate_weights(named.weights, "keep.weights"))
            if self.scorer not in (weights, named.weights):  # a job may start hours after it was planned
                message = "changed since planning; start again: the run then gets another id"
                raise UserError(f"keep.weights of {self.run.label}: {named.weights}: {message}")
            seen = external_scorer.images_seen(self.run, pairs)
            return *external_scorer.build_external_scorer(self.run, available_device()), weights, seen
        assert self.reference is not None
        assert self.run.reference is not None
        refuse_changed_in_run(self.reference, weights_name(1.0))
        path, inputs = self.reference.path(weights_name(1.0)), InputsReader().for_model(self.run.reference)
        return *rebuilt_model(self.run.reference, inputs, path, available_device()), file_hash(path), pairs


def choose_rows(scoring: Scoring, inputs: Inputs, out: RunStore) -> Inputs:
    """Return the inputs with the rows that the run's scorer chose; they are scored and recorded unless they were.

    All ranks score; the first one alone chooses, so that the rows are those of one rank, and writes: its `out` is a
    RunWriter. Scores are cosines (or what the data selection names) of each image with the evaluation transform and
    the first text that training sees next to it. A damaged record is moved aside. Raises Damaged if the scorer's
    weights changed, and UserError if its scores are not finite or if an external model cannot be used.
    """
    group = current_group()
    if inputs.awaits_scores and not group.agree(isinstance(out, RunWriter) and _is_recorded(out, inputs)):
        started = time.perf_counter()
        scores = _scores(scoring, inputs, out)
        if isinstance(out, RunWriter):
            _record(scoring, inputs, out, scores, group.world * (time.perf_counter() - started))
        group.agree(None)  # the record is there now
    return with_recorded_rows(inputs, out)


def _is_recorded(out: RunWriter, inputs: Inputs) -> bool:
    try:
        return out.path(KEPT_FILE).exists() and bool(_load(out, inputs))
    except Damaged as error:
        out.set_aside(error.path.name)
        return False


def _record(scoring: Scoring, inputs: Inputs, out: RunWriter, scores: Floats, seconds: float) -> None:
    """Choose rows by their scores [N] and write them as Parquet, a line for each kept row.

    seconds: of all ranks, for scoring.
    """
    keep = scoring.run.keep
    known = SelectionInputs(inputs.pairs.keys, None, scoring.run.seed, keep.share, keep.rows, scores)
    try:
        rows = keep.entry.choose(known)
    except ValueError as error:
        raise UserError(f"keep: {keep.label}: {error}: {scoring.scorer}") from error
    about = {"n": len(inputs.pairs), "scorer": scoring.scorer, "seconds": seconds}
    table = pa.table({"key": list(inputs.of_rows(rows).seen.keys), "row": rows, "score": scores[rows]})
    table = table.replace_schema_metadata({_METADATA_KEY: json.dumps(about)})
    out.write_path(KEPT_FILE, lambda path: pq.write_table(table, path))


def with_recorded_rows(inputs: Inputs, out: RunStore) -> Inputs:
    """Return the inputs with the rows that are recorded in a run. Raises Damaged."""
    return inputs if not inputs.awaits_scores else inputs.of_rows(_load(out, inputs)[0])


def kept_rows(inputs: Inputs, out: RunStore) -> Ints | None:
    """Return the rows that a scorer chose, rising; None for other runs and without a record. Raises Damaged."""
    return _load(out, inputs)[0] if inputs.scored and out.path(KEPT_FILE).exists() else None


def scoring_cost(scoring: Scoring, flops: float, inputs: Inputs, out: RunStore) -> dict[str, Any] | None:
    """Return what scoring cost, for the run's ledger; None for a run without a scorer. Raises Damaged.

    For an external model it says which one, and that its training is not in it.
    """
    if not inputs.scored:
        return None
    forwards, (_, about) = float(len(inputs.pairs)), _load(out, inputs)
    spent = {"flops": flops, "image_forwards": forwards, "text_forwards": forwards}
    external = {"scorer": scoring.scorer, "scorer_training": "not charged"} if scoring.run.scorer else {}
    return {**spent, "train_seconds": about["seconds"], **external}


def _scores(scoring: Scoring, inputs: Inputs, out: RunStore) -> Floats:
    """Return the score [N] of every pair as training sees it."""
    towers, method, weights, pairs = scoring.model(inputs.pairs)
    inside = out.fence.path if isinstance(out, RunWriter) else None
    features = Features(method, towers, weights, PROTOCOL, out.path(FEATURES), None, inside, current_group())
    score = scoring.run.keep.score
    if score in FILTERS:
        found = FILTERS[score](*pair_embeddings(features, pairs, inputs.noise), pairs.keys, scoring.run.seed)
    else:
        found = pair_confidences(features, pairs, inputs.noise)[score]
    features.discard()
    return found.double().cpu().numpy()


def _load(out: RunStore, inputs: Inputs) -> tuple[Ints, dict[str, Any]]:
    """Return the recorded rows and what the file says about itself. Raises Damaged unless they fit the inputs."""
    path = out.path(KEPT_FILE)
    try:
        table = reading.read_parquet(path, ("key", "row", "score"))
        about = reading.parse_json((table.schema.metadata or {})[_METADATA_KEY])
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
