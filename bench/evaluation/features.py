"""Extracts features once per checkpoint and data set; every task works on them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from bench.arrays import Ints, Pixels
from bench.catalogue.channels import Channels
from bench.data import Pairs
from bench.evaluation.pixels import batches
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
) -> Tensors:
    """Extract features of all n images, or of `rows` [n], with the evaluation transform: float32 on the towers' device.

    "embedding": what the method compares, {"embedding": [n, D] unit, maybe "logvar": [n, D]};
    "pooled": {"pooled": [n, P]} before the projection; "projected": {"projected": [n, D]} after it, not made unit.
    Pixels are normalised by `channels`, by default the towers' own. Raises UserError if an image cannot be read.
    """
    parameter = next(towers.visual.parameters())

    def features(pixels: Pixels) -> Tensors:
        images = normalise(pixels, parameter.device, channels or towers.channels).to(parameter.dtype)
        if kind == "embedding":
            return method.image_features(towers, images)
        return {kind: towers.pooled(images) if kind == "pooled" else towers.encode_image(images)}

    with evaluation_mode(method, towers):
        chosen = np.arange(len(pairs)) if rows is None else rows
        return _joined(map(features, batches(pairs, chosen, IMAGE_BATCH)))


def extract_texts(method: Method, towers: Towers, texts: Sequence[str]) -> Tensors:
    """Extract features of n texts: by name [n, ...], float32 on the towers' device. Equal texts are encoded once."""
    unique = sorted(set(texts))
    place = {text: row for row, text in enumerate(unique)}

    def features(start: int) -> Tensors:
        return method.text_features(towers, towers.tokenize(unique[start : start + TEXT_BATCH]))

    with evaluation_mode(method, towers):
        encoded = _joined(map(features, range(0, len(unique), TEXT_BATCH)))
    return {name: values[[place[text] for text in texts]] for name, values in encoded.items()}


def _joined(batches_of_features: Iterable[Tensors]) -> Tensors:
    parts = [{name: values.float() for name, values in part.items()} for part in batches_of_features]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _digest(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class Features:
    """The features of one checkpoint: the latest in memory and, with a folder, all on disk, where they survive a kill.

    `channels`: maps a data set's name to the channels that normalise its pixels; None stands for the towers' own.
    `inside`: the folder of the claim under which `folder` is written, see `bench.store.files`.
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
    ) -> None:
        self.method, self.towers, self.channels, self.inside = method, towers, channels, inside
        name = _digest(checkpoint, protocol)[:16]
        self.folder = None if folder is None else folder / name  # for this checkpoint alone, so that it can be removed
        self.device = next(towers.visual.parameters()).device
        self._held: dict[str, Tensors] = {}

    def images(self, pairs: Pairs, kind: Kind = "embedding") -> Tensors:
        """Return `extract_images(pairs, kind)`, computed once."""
        own = (self.channels(pairs.name) if self.channels else None) or self.towers.channels
        return self.kept(
            ("images", kind, pairs.content_hash, repr(own)),  # the hash tells size and resizing as well
            lambda: extract_images(self.method, self.towers, pairs, kind, None, own),
        )

    def texts(self, texts: Sequence[str]) -> Tensors:
        """Return `extract_texts(texts)`, computed once."""
        return self.kept(("texts", *texts), lambda: extract_texts(self.method, self.towers, texts))

    def discard(self) -> None:
        """Remove the files, once everything is measured."""
        if self.folder is not None and self.inside is not None:
            files.discard(self.folder, self.inside)
        elif self.folder is not None:
            files.remove(self.folder)

    def kept(self, key: tuple[str, ...], extract: Callable[[], Tensors]) -> Tensors:
        """Return the result of `extract()`, computed once for each `key` of this checkpoint and protocol."""
        name = _digest(*key)
        if name not in self._held:
            self._held[name] = self._stored(name, extract)
            self._make_room(name)
        return self._held[name]

    def _make_room(self, newest: str) -> None:
        """Drop the oldest features from memory while all take more than HELD; the newest stay."""
        sizes = {name: sum(values.nbytes for values in part.values()) for name, part in self._held.items()}
        for name in list(self._held):
            if name != newest and sum(sizes.values()) > HELD:
                del self._held[name], sizes[name]

    def _stored(self, name: str, extract: Callable[[], Tensors]) -> Tensors:
        if self.folder is None:
            return extract()
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            features = {part: values.cpu().contiguous() for part, values in extract().items()}
            files.write_bytes(path, save(features), inside=self.inside)
        return load_file(path, device=str(self.device))
