"""The parts of an extraction: a block of rows of an array each, whose name says all that its numbers depend on."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bench.console.progress import PATIENCE, duration
from bench.console.text import echo
from bench.data.features import about as description
from bench.data.features.about import NAME, About, Encoder
from bench.data.features.imports import Dtype
from bench.data.features.rows import rows_hash
from bench.data.features.stack import Stack, open_array
from bench.data.features.texts import TextPlan
from bench.data.features.writing import Array, Content, vacant, write
from bench.errors import UserError, one_line
from bench.evaluation.features import IMAGE_BATCH, TEXT_BATCH
from bench.models.encoders import ImageEncoder, TextEncoder, image_encoder, text_encoder, weights_digest
from bench.models.feature_targets import Target
from bench.store import files
from bench.store.claim import Claim
from bench.store.fence import Busy
from bench.training.job import available_device

BLOCK = 4096  #: rows of a part, a multiple of both sizes of batches
CLAIMED = 8  #: parts that a process claims at a time, so that one stream of pixels serves them


@dataclass(frozen=True)
class Request:
    """What to extract."""

    data: str
    out: Path
    images: str | None = None  #: model; None leaves images out
    texts: str | None = None
    evaluation: tuple[str, ...] = ()
    prompts: Path | None = None
    views: int = 1
    dtype: Dtype = "float16"
    device: str | None = None
    part: str | None = None  #: "I/N": each N-th block from the I-th alone
    results: Path = Path("results")

    @cached_property
    def share(self) -> tuple[int, int]:
        """I and N of `part`; (0, 1) without it. Raises UserError for something else."""
        first, slash, count = (self.part or "0/1").partition("/")
        if not (slash and first.isdecimal() and count.isdecimal() and int(first) < int(count)):
            raise UserError(f"--part {self.part}: should be I/N with I from 0 to N-1, such as 0/4")
        return int(first), int(count)


@dataclass(frozen=True)
class Models:
    """The two encoders and the digests of their weights; None for a side that is left out."""

    image: ImageEncoder | None
    text: TextEncoder | None
    digests: dict[str, str]

    @classmethod
    def load(cls, request: Request) -> Models:
        """Build the encoders. Raises UserError if there is none, a device is not there, or as they do."""
        if request.images is None and request.texts is None:
            raise UserError("--images, --texts: name a model for one of them at least")
        try:
            device = torch.device(request.device) if request.device else available_device()
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise UserError(f"--device {request.device}: cannot be used: {one_line(error, 200)}") from error
        image = image_encoder(request.images, request.results, device) if request.images else None
        text = text_encoder(request.texts, request.results, device) if request.texts else None
        both = {"image": image, "text": text}
        return cls(image, text, {side: weights_digest(one.module) for side, one in both.items() if one})


@dataclass(frozen=True)
class Part:
    """A block of rows of one view of the images, or of the texts."""

    path: Path
    side: str  #: "image" or "text"
    view: int
    start: int
    stop: int

    @property
    def done(self) -> bool:
        """Whether it is there as a whole."""
        try:
            return len(open_array(str(self.path))) == self.stop - self.start
        except UserError:
            return False


@dataclass(frozen=True)
class Extraction:
    """The work on one target."""

    target: Target
    models: Models
    request: Request
    work: Path  #: the folder of its parts

    @cached_property
    def plan(self) -> TextPlan | None:
        """Which texts are encoded; None without a text encoder."""
        return TextPlan.of(self.target.captions, self.target.prompts) if self.models.text else None

    @cached_property
    def parts(self) -> list[Part]:
        """All parts in their order. A part's name is a hash of everything that its numbers depend on."""
        parts = []
        for side, views, rows in self.sides():
            stamp = self._stamp(side)
            for view in range(views):
                for start in range(0, rows, BLOCK):
                    name = f"{side}-{view}-{start // BLOCK:06d}-{stamp}.npy"
                    parts.append(Part(self.work / name, side, view, start, min(start + BLOCK, rows)))
        return parts

    def sides(self) -> list[tuple[str, int, int]]:
        """List side, views and rows of each array."""
        images = [("image", self.request.views, len(self.target))] if self.models.image else []
        return images + ([("text", 1, len(self.plan.hashes))] if self.plan else [])

    def _stamp(self, side: str) -> str:
        words = [BLOCK, IMAGE_BATCH, TEXT_BATCH, self.request.dtype, self.models.digests[side]]
        if side == "image":
            assert self.models.image is not None
            words += [self.target.content_hash, self.target.recipe, self.models.image.sight.words]
        else:
            assert self.models.text is not None
            assert self.plan is not None
            words += [self.models.text.words, hashlib.sha256(self.plan.hashes.tobytes()).hexdigest()]
        return hashlib.sha256(repr(words).encode()).hexdigest()[:16]

    def extract(self, lines: Lines) -> None:
        """Make the missing parts of this process's share, but for those that another process has claimed."""
        first, count = self.request.share
        own = [part for number, part in enumerate(self.parts) if number % count == first]
        todo = [part for part in own if not part.done]
        lines.start(f"{self.target.name}", len(own) - len(todo), len(own))
        for (side, *_), group in groupby(todo, lambda part: (part.side, part.view, part.start // (BLOCK * CLAIMED))):
            with self._claimed(group) as parts:
                if side == "image" and parts:
                    self._extract_images(parts, lines)
                elif side == "text":
                    for part in parts:
                        self._extract_texts(part, lines)

    def claim(self, name: str) -> Claim:
        """Return the right to make a part, or to join all of them."""
        return Claim(self.work / "claims" / name)

    @contextmanager
    def _claimed(self, parts: Iterable[Part]) -> Iterator[list[Part]]:
        """Claim those of `parts` that no other process has claimed or made since."""
        with ExitStack() as stack:
            own = []
            for part in parts:
                with suppress(Busy):
                    stack.enter_context(self.claim(part.path.stem))
                    own.append(part)
            joined = (self.target.folder / NAME).is_file()
            yield [part for part in own if not (joined or part.done)]

    def _extract_images(self, parts: Sequence[Part], lines: Lines) -> None:
        """Encode blocks of one view; one stream of pixels serves all of them, since blocks are whole batches."""
        encoder = self.models.image
        assert encoder is not None
        pictures = self.target.pictures(encoder.sight, parts[0].view)
        rows = np.concatenate([self.target.rows[part.start : part.stop] for part in parts])
        stream = pictures.batches(rows, IMAGE_BATCH)
        for part in parts:
            count = -(-(part.stop - part.start) // IMAGE_BATCH)
            self._store(part, [encoder.features(next(stream)) for _ in range(count)], lines)

    def _extract_texts(self, part: Part, lines: Lines) -> None:
        assert self.models.text is not None
        assert self.plan is not None
        texts = self.plan.texts(part.start, part.stop)
        starts = range(0, len(texts), TEXT_BATCH)
        self._store(part, [self.models.text.features(texts[at : at + TEXT_BATCH]) for at in starts], lines)

    def _store(self, part: Part, blocks: list[npt.NDArray[Any]], lines: Lines) -> None:
        with np.errstate(over="ignore"):  # what becomes infinite is refused when the set is written
            values = np.concatenate(blocks).astype(self.request.dtype)
        with files.scratch(part.path) as path:
            with open(path, "wb") as file:
                np.save(file, values)
            path.replace(part.path)
        lines.done(len(values))

    def join(self) -> About:
        """Write the feature set from all parts. Raises UserError if a feature is not finite."""
        target, arrays = self.target, dict[str, Array]()
        for side, views, _ in self.sides():
            stacks = [self._stack(side, view) for view in range(views)]
            arrays[side] = Array(self._encoder(side, stacks[0].shape[0]), _reader(stacks, side == "image"))
        content = Content(
            target.name,
            target.description,
            target.keys,
            target.captions,
            arrays.get("image"),
            arrays.get("text"),
            self.plan,
            target.labels,
            target.classes,
            target.templates,
            target.prompts if self.plan else (),
            "bench features extract",
        )
        return write(target.folder, content)

    def _stack(self, side: str, view: int) -> Stack:
        paths = [part.path for part in self.parts if (part.side, part.view) == (side, view)]
        return Stack(f"{self.target.name}, {side} features", tuple(open_array(str(path)) for path in paths))

    def _encoder(self, side: str, width: int) -> Encoder:
        image, text = self.models.image, self.models.text
        name, words, views = "", "", 1
        if side == "image" and image is not None:
            name, words, views = image.name, image.sight.words, self.request.views
            words += f"; further views by {self.target.recipe!r}" if views > 1 else ""
        elif text is not None:
            name, words = text.name, text.words
        return Encoder(name, self.models.digests[side], words, self.request.dtype, width, views)

    def is_there(self) -> bool:
        """Whether the feature set was made before. Raises UserError if something else lies in its place."""
        folder = self.target.folder
        if not (folder / NAME).is_file():
            vacant(folder)
            return False
        about = description.read(folder)
        sides = {side: one for side, one in (("image", about.image), ("text", about.text)) if one}
        own = rows_hash(self.target.keys, self.target.captions, self.target.labels)
        prompts = len(self.target.prompts) if self.plan else 0
        same = sides.keys() == self.models.digests.keys() and all(
            replace(one, name="") == replace(self._encoder(side, one.width), name="") for side, one in sides.items()
        )
        if not same or (about.rows_hash, about.prompts) != (own, prompts):
            fault = "holds features of other pairs, prompts or encoders, or in another form"
            raise UserError(f"{folder}: {fault}; give another folder, or remove it")
        return True


def _reader(stacks: Sequence[Stack], views: bool) -> Any:
    """Return the function that reads rows start..stop-1 from parts; images get an axis of views."""

    def read(start: int, stop: int) -> npt.NDArray[Any]:
        blocks = [stack.take(np.arange(start, stop)) for stack in stacks]
        return np.stack(blocks, 1) if views else blocks[0]

    return read


class Lines:
    """Prints progress on stderr, a line every few seconds."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._name, self._ready, self._total, self._done, self._rows = "", 0, 0, 0, 0
        self._began = self._spoken = time.monotonic()

    def start(self, name: str, ready: int, total: int) -> None:
        """Begin a target; `ready` of its `total` blocks were encoded by an earlier command."""
        self._name, self._ready, self._total, self._done, self._rows = name, ready, total, 0, 0
        self._began = self._spoken = time.monotonic()
        if ready and self._shown:
            echo(f"{name}: {ready} of {total} blocks were encoded before", err=True)

    def done(self, rows: int) -> None:
        """Count one more block, with so many rows."""
        self._done, self._rows, now = self._done + 1, self._rows + rows, time.monotonic()
        ready = self._ready + self._done
        if self._shown and (now - self._spoken >= PATIENCE or ready == self._total):
            self._spoken, spent = now, max(now - self._began, 1e-9)
            left = duration(spent / self._done * (self._total - ready))
            rate = f"{self._rows / spent:,.0f} rows/s"
            echo(f"{self._name}: {ready} of {self._total} blocks, {rate}, {left} left", err=True)
