"""`bench features extract`: encode images and texts block by block; a stopped extraction goes on to the same bytes."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.console.progress import duration
from bench.data.features.about import EVALUATION
from bench.data.features.stack import text_lines
from bench.errors import UserError, one_line
from bench.evaluation.features import IMAGE_BATCH, TEXT_BATCH
from bench.models.feature_parts import Extraction, Lines, Models, Request
from bench.models.feature_targets import evaluation_target, training_target

__all__ = ["Request", "estimate", "extract"]
GIGABYTE = 1e9


def extract(request: Request, progress: bool = False) -> list[str]:
    """Extract the training set, then the evaluation sets below it; return a line for each.

    With a part, only its blocks are encoded, and the same command without it joins all. Raises UserError for models,
    data and folders that cannot be used, and if another process extracts to the same folder.
    """
    share = request.part is not None
    request.share  # noqa: B018  raises before anything is loaded
    models, lines = Models.load(request), Lines(progress)
    root = request.out.with_name(f"{request.out.name}.work")
    reports = []
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root, shared=share):
            for work in _extractions(request, models, root):
                reports.append(_made(work, lines, share))
        if not share:
            shutil.rmtree(root)
    except OSError as error:
        raise UserError(f"{root}: cannot be written: {one_line(error)}; the same command goes on") from error
    return reports


def _made(work: Extraction, lines: Lines, share: bool) -> str:
    folder = work.target.folder
    if work.is_there():
        return f"{folder}: is there already"
    work.extract(lines)
    if share:
        return f"{folder}: part {work.request.part} is extracted; the same command without --part joins all"
    about = work.join()
    shutil.rmtree(work.work, ignore_errors=True)
    return f"{folder}: {about.rows:,} rows, {about.texts:,} texts, content {about.content_hash[:16]}"


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


@contextmanager
def _locked(root: Path, shared: bool) -> Iterator[None]:
    """Hold the folder of parts: together with other parts, or alone to join them."""
    with open(root / "lock", "w") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{root}: another process extracts to it; wait for it, or use --part I/N in all") from None
        yield
