"""`bench features extract`: encode images and texts block by block; a stopped extraction goes on to the same bytes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.console.progress import duration
from bench.data.features.about import EVALUATION
from bench.data.features.stack import text_lines
from bench.errors import UserError, one_line
from bench.evaluation.features import IMAGE_BATCH, TEXT_BATCH
from bench.evaluation.tasks import EvaluationPlan
from bench.models.feature_parts import Extraction, Lines, Models, Request
from bench.models.feature_targets import evaluation_target, training_target
from bench.store.fence import Busy
from bench.suite.suite import load_suite

__all__ = ["Request", "estimate", "evaluation_sets", "extract"]
GIGABYTE = 1e9


def extract(request: Request, progress: bool = False) -> list[str]:
    """Extract the training set, then the evaluation sets below it; return a line for each.

    With a part, only its blocks are encoded, and the same command without it joins all. Several processes that extract
    the same set share its blocks by claims, and the last one joins them. Raises UserError for models, data and folders
    that cannot be used.
    """
    share = request.part is not None
    request.share  # noqa: B018  raises before anything is loaded
    if request.out.name in ("", ".."):
        raise UserError(f"{request.out}: is a folder that is there; name the one that is to be made")
    models, lines = Models.load(request), Lines(progress)
    root = request.out.with_name(f"{request.out.name}.work")
    reports = []
    try:
        root.mkdir(parents=True, exist_ok=True)
        for work in _extractions(request, models, root):
            reports.append(_made(work, lines, share))
    except OSError as error:
        raise UserError(f"{root}: cannot be written: {one_line(error)}; the same command goes on") from error
    if all(there for _, there in reports):
        shutil.rmtree(root, ignore_errors=True)  # another process that finds all there removes it, too
    return [line for line, _ in reports]


def evaluation_sets(suite: str) -> list[str]:
    """List the evaluation sets that a suite on stored features reads, trials included. Raises UserError for others.

    Of a suite on stored texts beside pixels they are those whose texts it reads.
    """
    loaded = load_suite(suite)
    if not loaded.data.on_features and loaded.data.texts is None:
        raise UserError(f"--for {suite}: reads pixels; name a suite with data.features or data.texts")
    asked = [loaded.evaluate, *([loaded.evaluate.of_trials()] if loaded.tune else [])]
    plans = [EvaluationPlan(loaded.data, one) for one in asked]
    read = [plan.wanted() if loaded.data.on_features else plan.with_texts() for plan in plans]
    return list(dict.fromkeys(name for names in read for name in names))


def _made(work: Extraction, lines: Lines, share: bool) -> tuple[str, bool]:
    """Extract and join a set; return a line to print, and whether the set is there."""
    folder = work.target.folder
    if work.is_there():
        return f"{folder}: is there already", True
    work.extract(lines)
    if share:
        return f"{folder}: part {work.request.part} is extracted; the same command without --part joins all", False
    try:
        with work.claim("join"):
            if work.is_there():
                return f"{folder}: was joined by another process", True
            if left := sum(not part.done for part in work.parts):
                fix = "the last one joins all; if they end before that, the same command goes on"
                return f"{folder}: other processes encode {left} of {len(work.parts)} blocks; {fix}", False
            about = work.join()
    except Busy as other:
        return f"{folder}: is joined by process {other.pid} on {other.host}", False
    shutil.rmtree(work.work, ignore_errors=True)
    return f"{folder}: {about.rows:,} rows, {about.texts:,} texts, content {about.content_hash[:16]}", True


def estimate(request: Request) -> list[str]:
    """Return lines with the hours and the disk that `extract` would take, measured on one batch of each array."""
    models, lines, seconds, size = Models.load(request), [], 0.0, 0
    for work in _extractions(request, models, request.out):
        own, disk = _cost(work)
        seconds, size = seconds + own, size + disk
        texts = f", {len(work.plan.hashes):,} texts" if work.plan else ""
        rows = f"{len(work.target):,} rows{texts}"
        lines.append(f"{work.target.folder}: {rows}: about {duration(own)}, {disk / GIGABYTE:.2f} GB")
    total = f"together about {duration(seconds)} ({seconds / 3600:.2f} h) on one device"
    return [*lines, f"{total}, {size / GIGABYTE:.2f} GB, twice as much while parts are joined"]


def _cost(work: Extraction) -> tuple[float, int]:
    """Return seconds and bytes of a target."""
    seconds, bytes_a_number = 0.0, np.dtype(work.request.dtype).itemsize
    size = int(work.target.captions.nbytes + work.target.keys.array.nbytes) * 2
    for side, views, rows in work.sides():
        batch = min(rows, IMAGE_BATCH if side == "image" else TEXT_BATCH)
        for _ in range(2):  # the first one warms up
            began = time.perf_counter()
            width = _encode_first(work, side, batch)
        seconds += (time.perf_counter() - began) / batch * rows * views
        size += rows * views * width * bytes_a_number
    return seconds, size


def _encode_first(work: Extraction, side: str, batch: int) -> int:
    """Encode the first rows of an array and return its width."""
    if side == "image":
        assert work.models.image is not None
        pixels = work.target.pictures(work.models.image.sight, 0).images(work.target.rows[:batch])
        return int(work.models.image.features(pixels).shape[1])
    assert work.models.text is not None
    assert work.plan is not None
    return int(work.models.text.features(work.plan.texts(0, batch)).shape[1])


def _extractions(request: Request, models: Models, root: Path) -> Iterator[Extraction]:
    """Yield the work on the training set and on each evaluation set."""
    sight = models.image.sight if models.image else None
    further = text_lines(request.prompts) if request.prompts else []
    yield Extraction(training_target(request.data, request.out, sight, further), models, request, root / "pairs")
    for name in request.evaluation:
        target = evaluation_target(name, request.out / EVALUATION / name, sight)
        yield Extraction(target, models, request, root / EVALUATION / name)
