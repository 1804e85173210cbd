"""Extracts features once per checkpoint and data set; every task works on them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bench.arrays import Ints, Pixels
from bench.catalogue.architectures import Channels
from bench.data import Pairs
from bench.evaluation.pixels import batches
from bench.hashing import file_hash
from bench.store import files
from bench.towers.build import normalise
from methods.protocol import Method, Tensors, Towers

Kind = Literal["embedding", "pooled", "projected"]
IMAGE_BATCH, TEXT_BATCH = 256, 512  # fixed, because another batch size rounds differently
HELD = 4 << 30  #: bytes of features in memory, unless a single part is larger


class PooledTowers(Towers, Protocol):
    """Towers that also give image features before the projection."""

    channels: Channels

    def pooled(self, images: Tensor) -> Tensor:
        """Map images [b, 3, H, W] to features [b, P]."""


class Ranks(Protocol):
    """The processes that evaluate together: every one has the same weights and makes the same calls.

    Batch i is encoded by rank i modulo `world`. Batches are the same for any number of ranks, and so are the features.
    """

    @property
    def rank(self) -> int: ...
    @property
    def world(self) -> int: ...
    def send(self, x: Tensor) -> Any:
        """Begin to send a tensor to the first rank; return what ends it by `wait()`."""

    def receive_(self, x: Tensor, rank: int) -> None:
        """Fill a tensor with the next one that a rank sends."""

    def agree(self, value: Any) -> Any:
        """Return the first rank's value, on every rank."""

    def rows(self, *values: float) -> list[list[float]]:
        """Return the numbers of every rank; no rank goes on before all have called it."""


@contextmanager
def evaluation_mode(*parts: object) -> Iterator[None]:
    """Set all modules to evaluation mode and disable gradients; afterwards restore each module's mode."""
    modules = [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]
    before = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training


def extract_images(
    method: Method,
    towers: PooledTowers,
    pairs: Pairs,
    kind: Kind = "embedding",
    rows: Ints | None = None,
    channels: Channels | None = None,
    ranks: Ranks | None = None,
) -> Tensors:
    """Extract features of all n images, or of `rows` [n], with the evaluation transform, in float32.

    "embedding": what the method compares, {"embedding": [n, D] unit, maybe "logvar": [n, D]}, on the towers' device;
    "pooled": {"pooled": [n, P]} before the projection; "projected": {"projected": [n, D]} after it, not made unit.
    These two, which only probes read, are in host memory: a probe's training rows may be more than a GPU holds.
    Pixels are normalised by `channels`, by default the towers' own. Of several `ranks` the first one returns the
    features, and every other one {}. Raises UserError if an image cannot be read.
    """
    parameter = next(towers.visual.parameters())

    def features(pixels: Pixels) -> Tensors:
        images = normalise(pixels, parameter.device, channels or towers.channels).to(parameter.dtype)
        if kind == "embedding":
            return method.image_features(towers, images)
        return {kind: towers.pooled(images) if kind == "pooled" else towers.encode_image(images)}

    with evaluation_mode(method, towers):
        chosen = np.arange(len(pairs)) if rows is None else rows
        own = np.concatenate(
            [chosen[start:stop] for start, stop in _own(len(chosen), IMAGE_BATCH, ranks)] or [chosen[:0]]
        )
        found = map(features, batches(pairs, own, IMAGE_BATCH))
        return _joined(found, len(chosen), IMAGE_BATCH, ranks, _place(kind, parameter.device))


def _place(kind: Kind, device: torch.device) -> torch.device:
    """Where the features of images are kept, of towers on `device`."""
    return device if kind == "embedding" else torch.device("cpu")


def extract_texts(method: Method, towers: Towers, texts: Sequence[str], ranks: Ranks | None = None) -> Tensors:
    """Extract features of n texts: by name [n, ...], float32 on the towers' device. Equal texts are encoded once.

    Of several `ranks` the first one returns the features, and every other one {}.
    """
    unique = sorted(set(texts))
    place = {text: row for row, text in enumerate(unique)}

    def features(part: tuple[int, int]) -> Tensors:
        return method.text_features(towers, towers.tokenize(unique[slice(*part)]))

    device = next(towers.visual.parameters()).device
    with evaluation_mode(method, towers):
        found = map(features, _own(len(unique), TEXT_BATCH, ranks))
        encoded = _joined(found, len(unique), TEXT_BATCH, ranks, device)
    return {name: values[[place[text] for text in texts]] for name, values in encoded.items()}


def _spans(n: int, size: int) -> list[tuple[int, int]]:
    """First row and end of every batch of n rows."""
    return [*pairwise([*range(0, n, size), n])]


def _own(n: int, size: int, ranks: Ranks | None) -> list[tuple[int, int]]:
    """The spans of the batches that this rank encodes."""
    return _spans(n, size) if ranks is None else _spans(n, size)[ranks.rank :: ranks.world]


def _joined(own: Iterator[Tensors], n: int, size: int, ranks: Ranks | None, device: torch.device) -> Tensors:
    """Return the features of all batches of n rows as float32, in order; on every rank but the first, send its `own`.

    A rank keeps two batches at most, and the first one nothing but the result.
    """
    if ranks is not None and ranks.rank:
        _send(own, ranks)
        return {}
    world = 1 if ranks is None else ranks.world
    whole: Tensors = {}
    for number, (start, stop) in enumerate(_spans(n, size)):
        if number % world and ranks is not None:
            for name in sorted(whole):
                ranks.receive_(whole[name][start:stop], number % world)
            continue
        for name, values in next(own).items():
            if not number:
                whole[name] = values.new_empty((n, *values.shape[1:]), dtype=torch.float32, device=_home(device, world))
            whole[name][start:stop] = values
    return {name: values.to(device) for name, values in whole.items()}


def _home(device: torch.device, world: int) -> torch.device:
    """Where features are put together: ranks send them through the CPU."""
    return device if world == 1 else torch.device("cpu")


def _send(own: Iterator[Tensors], ranks: Ranks) -> None:
    """Send batches to the first rank; the next one is encoded while one is on its way."""
    sending: list[Any] = []
    for part in own:
        for one in sending:
            one.wait()
        sending = [ranks.send(part[name].float().cpu().contiguous()) for name in sorted(part)]
    for one in sending:
        one.wait()


def _digest(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class Features:
    """The features of one checkpoint: the latest in memory and, with a folder, all on disk, where they survive a kill.

    `channels`: maps a data set's name to the channels that normalise its pixels; None stands for the towers' own.
    `inside`: the folder of the claim under which `folder` is written, see `bench.store.files`. `ranks`: make the same
    calls together; they share a folder, which the first one writes and all read.
    """

    def __init__(
        self,
        method: Method,
        towers: PooledTowers,
        checkpoint: str,
        protocol: str,
        folder: Path | None,
        channels: Callable[[str], Channels | None] | None = None,
        inside: Path | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.method, self.towers, self.channels, self.inside, self.ranks = method, towers, channels, inside, ranks
        name = _digest(checkpoint, protocol)[:16]
        self.folder = None if folder is None else folder / name  # for this checkpoint alone, so that it can be removed
        self.device = next(towers.visual.parameters()).device
        self._held: dict[str, Tensors] = {}

    def images(self, pairs: Pairs, kind: Kind = "embedding") -> Tensors:
        """Return `extract_images(pairs, kind)`, computed once."""
        own = (self.channels(pairs.name) if self.channels else None) or self.towers.channels
        return self.kept(
            ("images", kind, pairs.content_hash, repr(own)),  # the hash tells size and resizing as well
            lambda: extract_images(self.method, self.towers, pairs, kind, None, own, self.ranks),
            _place(kind, self.device),
        )

    def texts(self, texts: Sequence[str]) -> Tensors:
        """Return `extract_texts(texts)`, computed once."""
        return self.kept(("texts", *texts), lambda: extract_texts(self.method, self.towers, texts, self.ranks))

    def extracted_images(
        self, pairs: Pairs, kind: Kind = "embedding", rows: Ints | None = None, channels: Channels | None = None
    ) -> Tensors:
        """Return `extract_images` of this checkpoint."""
        return self._on_all_ranks(extract_images(self.method, self.towers, pairs, kind, rows, channels, self.ranks))

    def extracted_texts(self, texts: Sequence[str]) -> Tensors:
        """Return `extract_texts` of this checkpoint."""
        return self._on_all_ranks(extract_texts(self.method, self.towers, texts, self.ranks))

    def _on_all_ranks(self, found: Tensors) -> Tensors:
        if self.ranks is None:
            return found
        given: Tensors = self.ranks.agree({name: values.cpu() for name, values in found.items()})
        return {name: values.to(self.device) for name, values in given.items()}

    def discard(self) -> None:
        """Remove the files, once everything is measured."""
        if self.ranks is not None:
            self.ranks.rows(0)
            if self.ranks.rank:
                return
        if self.folder is not None and self.inside is not None:
            files.discard(self.folder, self.inside)
        elif self.folder is not None:
            files.remove(self.folder)

    def kept(self, key: tuple[str, ...], extract: Callable[[], Tensors], place: torch.device | None = None) -> Tensors:
        """Return the result of `extract()`, computed once for each `key` of this checkpoint and protocol.

        Of several ranks, the first one's result counts; `extract()` may be {} on the others.
        What is read from disk comes to `place`, by default the towers' device; to the CPU it is mapped.
        """
        name = _digest(*key)
        if name not in self._held:
            self._held[name] = self._stored(name, extract, place or self.device)
            self._make_room(name)
        return self._held[name]

    def _make_room(self, newest: str) -> None:
        """Drop the oldest features from memory while all take more than HELD; the newest stay."""
        sizes = {name: sum(values.nbytes for values in part.values()) for name, part in self._held.items()}
        for name in list(self._held):
            if name != newest and sum(sizes.values()) > HELD:
                del self._held[name], sizes[name]

    def _stored(self, name: str, extract: Callable[[], Tensors], place: torch.device) -> Tensors:
        if self.folder is None:
            return extract()
        file = self._agree(lambda: self._found(name))
        if file is None:
            found = extract()
            file = self._agree(lambda: self._written(name, found))
        assert file is not None
        return load_file(self.folder / file, device=str(place))

    def _agree(self, action: Callable[[], str | None]) -> str | None:
        """Return what `action` returns on the first rank: a shared folder may show others an older state."""
        if self.ranks is None:
            return action()
        agreed: str | None = self.ranks.agree(None if self.ranks.rank else action())
        return agreed

    def _found(self, name: str) -> str | None:
        assert self.folder is not None
        return next((one.name for one in self.folder.glob(f"{name}-*.safetensors") if _is_whole(one)), None)

    def _written(self, name: str, features: Tensors) -> str:
        """Write features, from where they are in memory, to a file whose name ends in its sha256; return the name."""
        assert self.folder is not None
        found = {part: values.cpu().contiguous() for part, values in features.items()}
        with files.scratch(self.folder / name, self.inside) as fresh:
            save_file(found, fresh)
            path = self.folder / f"{name}-{file_hash(fresh)}.safetensors"
            files.write_path(path, lambda target: fresh.replace(target), inside=self.inside)
        return path.name


def _is_whole(path: Path) -> bool:
    """Whether stored features have the sha256 that their name ends in: a killed evaluation goes on with them."""
    try:
        return path.stem.rpartition("-")[2] == file_hash(path)
    except OSError:
        return False
