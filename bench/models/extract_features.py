"""`bench features extract`: encode images and texts block by block; a stopped extraction resumes to the same bytes.

A block of rows of an array is a part, whose file's name says all that its numbers depend on.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import reading
from bench.console.progress import Progress
from bench.data.features import about as description
from bench.data.features.about import EVALUATION_FOLDER, NAME, Encoder, SetDescription
from bench.data.features.imports import Dtype
from bench.data.features.rows import rows_hash
from bench.data.features.stack import Stack, open_array
from bench.data.features.texts import TextPlan
from bench.data.features.writing import Array, Content, refuse_occupied, write_feature_set
from bench.errors import UserError, one_line
from bench.evaluation.features import IMAGE_BATCH, TEXT_BATCH
from bench.evaluation.tasks import EvaluationPlan
from bench.models.encoders import ImageEncoder, TextEncoder, image_encoder, text_encoder, weights_digest
from bench.models.feature_targets import Target, evaluation_target, training_target
from bench.store import files
from bench.store.claim import Claim
from bench.suite.suite import Suite
from bench.training.job import available_device

MAX_PROMPT_BYTES = 1 << 31  #: of a file of prompts
BLOCK_ROWS = 4096  #: rows of a part, a multiple of both sizes of batches


@dataclass(frozen=True)
class ExtractionRequest:
    """Features to extract."""

    data: str
    out: Path
    images: str  #: model
    texts: str | None = None
    evaluation: tuple[str, ...] = ()
    prompts: Path | None = None
    views: int = 1
    dtype: Dtype = "float16"
    results: Path = Path("results")


@dataclass(frozen=True)
class Models:
    """The encoders; without one of texts a text tower is trained from their tokens."""

    image: ImageEncoder
    text: TextEncoder | None

    @classmethod
    def load(cls, request: ExtractionRequest) -> Models:
        """Build the encoders on the first GPU or the CPU. Raises UserError if there is none, or as they do."""
        device = available_device()
        text = text_encoder(request.texts, request.results, device) if request.texts else None
        return cls(image_encoder(request.images, request.results, device), text)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digests of their weights, by side."""
        both = {"image": self.image, "text": self.text}
        return {side: weights_digest(encoder.module) for side, encoder in both.items() if encoder}


def extract_sets(request: ExtractionRequest, models: Models | None = None, shown: Progress | None = None) -> list[str]:
    """Extract the training set, then the evaluation sets below it; return a line for each.

    models: the encoders, by default those that the request names.

    Raises UserError for models, data and folders that cannot be used, and Busy while another process extracts the same.
    """
    if request.out.name in ("", ".."):
        raise UserError(f"{request.out}: already exists; name a new folder")
    encoders = models or Models.load(request)
    root = request.out.with_name(f"{request.out.name}.work")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with Claim(root / "claims"):
            lines = [_made(work, shown) for work in _extractions(request, encoders, root)]
        shutil.rmtree(root, ignore_errors=True)
    except OSError as error:
        raise UserError(f"{root}: cannot be written: {one_line(error)}; the same command continues") from error
    return lines


def sets_of_suite(suite: Suite) -> list[str]:
    """List the evaluation sets that a suite on stored features reads, trials included. Raises UserError for others."""
    if not suite.data.on_features:
        raise UserError(f"--for {suite.name}: reads pixels; name a suite with data.features")
    plans = (EvaluationPlan(suite.data, asked) for asked in suite.evaluates)
    return list(dict.fromkeys(name for plan in plans for name in plan.wanted()))


def _extractions(request: ExtractionRequest, models: Models, root: Path) -> Iterator[Extraction]:
    """Yield the work on the training set and on each evaluation set."""
    preparation = models.image.preparation
    further = reading.text_lines(request.prompts, MAX_PROMPT_BYTES) if request.prompts else []
    yield Extraction(training_target(request.data, request.out, preparation, further), models, request, root / "pairs")
    for name in request.evaluation:
        target = evaluation_target(name, request.out / EVALUATION_FOLDER / name, preparation)
        yield Extraction(target, models, request, root / EVALUATION_FOLDER / name)


def _made(work: Extraction, shown: Progress | None) -> str:
    """Extract and join a set; return a line to print."""
    folder = work.target.folder
    if work.is_there():
        return f"{folder}: already exists"
    work.encode(shown)
    about = work.join()
    return f"{folder}: {about.rows:,} rows, {about.texts:,} texts, content {about.content_hash[:16]}"


@dataclass(frozen=True)
class ExtractedSide:
    """The images or the texts of a target, and the encoder that reads them."""

    name: str  #: "image" or "text"
    encoder: ImageEncoder | TextEncoder
    views: int
    rows: int
    batch: int  #: rows that are encoded at once
    words: str  #: how they are prepared, for features.json
    depends: list[Any]  #: on what its numbers depend besides the weights


@dataclass(frozen=True)
class FeatureBlock:
    """A block of rows of one view of a side."""

    path: Path
    side: ExtractedSide
    view: int
    start: int
    stop: int

    @property
    def done(self) -> bool:
        """Return whether it is there as a whole."""
        try:
            return len(open_array(str(self.path))) == self.stop - self.start
        except UserError:
            return False


@dataclass(frozen=True)
class Extraction:
    """The work on one target."""

    target: Target
    models: Models
    request: ExtractionRequest
    work: Path  #: the folder of its parts

    @cached_property
    def plan(self) -> TextPlan | None:
        """Which texts are encoded; None without a text encoder."""
        return TextPlan.of(self.target.captions, self.target.prompts) if self.models.text else None

    @cached_property
    def sides(self) -> list[ExtractedSide]:
        """What is encoded."""
        target, views, image = self.target, self.request.views, self.models.image
        words = image.preparation.words
        depends = [target.pairs.content_hash, target.recipe, words]
        words += f"; further views by {target.recipe!r}" if views > 1 else ""
        sides = [ExtractedSide("image", image, views, len(target), IMAGE_BATCH, words, depends)]
        if (text := self.models.text) and self.plan:
            depends = [text.words, hashlib.sha256(self.plan.hashes.tobytes()).hexdigest()]
            sides.append(ExtractedSide("text", text, 1, len(self.plan.hashes), TEXT_BATCH, text.words, depends))
        return sides

    @cached_property
    def parts(self) -> list[FeatureBlock]:
        """All parts in their order; a part's name has a hash of everything that its numbers depend on."""
        parts = []
        for side in self.sides:
            fixed = [BLOCK_ROWS, IMAGE_BATCH, TEXT_BATCH, self.request.dtype, self.models.digests[side.name]]
            stamp = hashlib.sha256(repr(fixed + side.depends).encode()).hexdigest()[:16]
            for view in range(side.views):
                for start in range(0, side.rows, BLOCK_ROWS):
                    path = self.work / f"{side.name}-{view}-{start // BLOCK_ROWS:06d}-{stamp}.npy"
                    parts.append(FeatureBlock(path, side, view, start, min(start + BLOCK_ROWS, side.rows)))
        return parts

    def encode(self, shown: Progress | None) -> None:
        """Make the parts that are not there."""
        todo = [(number, part) for number, part in enumerate(self.parts, 1) if not part.done]
        for _, group in groupby(todo, lambda one: (one[1].side.name, one[1].view)):
            numbered = list(group)
            batches = self._batches([part for _, part in numbered])
            for number, part in numbered:
                if shown is not None:
                    shown.preparing("encoding", self.target.pairs.name, number, len(self.parts))
                count = -(-(part.stop - part.start) // part.side.batch)
                self._store(part, [next(batches) for _ in range(count)])

    def _batches(self, parts: Sequence[FeatureBlock]) -> Iterator[npt.NDArray[Any]]:
        """Yield the features of each batch of parts of one view; one stream of pixels serves all of them."""
        encoder, view = parts[0].side.encoder, parts[0].view
        if isinstance(encoder, ImageEncoder):
            rows = np.concatenate([np.arange(part.start, part.stop) for part in parts])
            pictures = self.target.pictures(encoder.preparation, view)
            yield from map(encoder.features, pictures.batches(rows, IMAGE_BATCH))
            return
        assert self.plan is not None
        for part in parts:
            texts = self.plan.texts(part.start, part.stop)
            yield from (encoder.features(texts[at : at + TEXT_BATCH]) for at in range(0, len(texts), TEXT_BATCH))

    def _store(self, part: FeatureBlock, blocks: list[npt.NDArray[Any]]) -> None:
        with np.errstate(over="ignore"):  # what becomes infinite is refused when the set is written
            values = np.concatenate(blocks).astype(self.request.dtype)
        with files.scratch(part.path) as path:
            with open(path, "wb") as file:
                np.save(file, values)
            path.replace(part.path)

    def join(self) -> SetDescription:
        """Write the feature set from all parts. Raises UserError if a feature is not finite."""
        target, arrays = self.target, dict[str, Array]()
        for side in self.sides:
            stacks = [self._stack(side, view) for view in range(side.views)]
            arrays[side.name] = Array(self._encoder(side, stacks[0].shape[0]), _reader(stacks, side.name == "image"))
        content = Content(
            target.pairs.name,
            target.pairs.description,
            target.keys,
            target.captions,
            arrays["image"],
            arrays.get("text"),
            self.plan,
            target.pairs.labels,
            target.pairs.classes,
            target.templates,
            target.prompts if self.plan else (),
            "bench features extract",
        )
        return write_feature_set(target.folder, content)

    def _stack(self, side: ExtractedSide, view: int) -> Stack:
        paths = [part.path for part in self.parts if (part.side.name, part.view) == (side.name, view)]
        return Stack(f"{self.target.pairs.name}, {side.name} features", tuple(open_array(str(path)) for path in paths))

    def _encoder(self, side: ExtractedSide, width: int) -> Encoder:
        digest = self.models.digests[side.name]
        return Encoder(side.encoder.name, digest, side.words, self.request.dtype, width, side.views)

    def is_there(self) -> bool:
        """Return whether the feature set was made before. Raises UserError if something else lies in its place."""
        folder = self.target.folder
        if not (folder / NAME).is_file():
            refuse_occupied(folder)
            return False
        about = description.read_description(folder)
        made = {side: one for side, one in (("image", about.image), ("text", about.text)) if one}
        own = rows_hash(self.target.keys, self.target.captions, self.target.pairs.labels)
        prompts = len(self.target.prompts) if self.plan else 0
        same = made.keys() == self.models.digests.keys() and all(
            replace(self._encoder(side, made[side.name].width), name=made[side.name].name) == made[side.name]
            for side in self.sides
        )
        if not same or (about.rows_hash, about.prompts) != (own, prompts):
            fault = "holds features of other pairs, prompts or encoders, or of another type"
            raise UserError(f"{folder}: {fault}; give another folder, or remove it")
        return True


def _reader(stacks: Sequence[Stack], views: bool) -> Any:
    """Return the function that reads rows start..stop-1 from parts; images get an axis of views."""

    def read(start: int, stop: int) -> npt.NDArray[Any]:
        blocks = [stack.take(np.arange(start, stop)) for stack in stacks]
        return np.stack(blocks, 1) if views else blocks[0]

    return read
