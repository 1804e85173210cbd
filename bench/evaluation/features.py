"""Extracts features once per checkpoint and data set; every task works on them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from bench.arrays import Ints, Pixels
from bench.catalogue.architectures import Channels
from bench.data import Pairs
from bench.distributed import ALONE, Group
from bench.evaluation.pixels import batches
from bench.hashing import file_hash
from bench.store import files
from bench.towers.build import OpenClipTowers, normalise
from methods.base import spans
from methods.protocol import Method, Tensors, Towers

FeatureKind = Literal["embedding", "pooled", "projected"]
IMAGE_BATCH, TEXT_BATCH = 256, 512  # fixed, because another batch size rounds differently
HELD_BYTES = 4 << 30  #: bytes of features in memory, unless a single part is larger


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
    towers: OpenClipTowers,
    pairs: Pairs,
    kind: FeatureKind = "embedding",
    rows: Ints | None = None,
    channels: Channels | None = None,
    group: Group = ALONE,
) -> Tensors:
    """Extract features of all n images, or of `rows` [n], with the evaluation transform, in float32.

    "embedding": what the method compares, {"embedding": [n, D] unit, maybe "logvar": [n, D]}, on the towers' device;
    "pooled": {"pooled": [n, P]} before the projection; "projected": {"projected": [n, D]} after it, not L2-normalised.
    These two, which only probes read, are in host memory: a probe's training rows may be more than a GPU holds.
    Pixels are normalised by `channels`, by default the towers' own. Of a `group` the first rank returns the features,
    and every other one {}. Raises UserError if an image cannot be read.
    """
    parameter = next(towers.visual.parameters())

    def features(pixels: Pixels) -> Tensors:
        images = normalise(pixels, parameter.device, channels or towers.channels).to(parameter.dtype)
        if kind == "embedding":
            return method.image_features(towers, images)
        return {kind: towers.pooled(images) if kind == "pooled" else towers.encode_image(images)}

    chosen = np.arange(len(pairs)) if rows is None else rows
    parts = spans(len(chosen), IMAGE_BATCH)  # rank r of a world of w encodes parts r, r + w, ...
    own = np.concatenate([chosen[:0], *(chosen[part] for part in parts[group.rank :: group.world])])
    with evaluation_mode(method, towers):
        return _joined(map(features, batches(pairs, own, IMAGE_BATCH)), parts, group, _place(kind, parameter.device))


def _place(kind: FeatureKind, device: torch.device) -> torch.device:
    """Return where the features of images are kept, of towers on `device`."""
    return device if kind == "embedding" else torch.device("cpu")


def extract_texts(method: Method, towers: Towers, texts: Sequence[str], group: Group = ALONE) -> Tensors:
    """Extract features of n texts: by name [n, ...], float32 on the towers' device. Equal texts are encoded once.

    Of a `group` the first rank returns the features, and every other one {}.
    """
    unique = sorted(set(texts))
    place = {text: row for row, text in enumerate(unique)}
    parts = spans(len(unique), TEXT_BATCH)
    own = (method.text_features(towers, towers.tokenize(unique[part])) for part in parts[group.rank :: group.world])
    device = next(towers.visual.parameters()).device
    with evaluation_mode(method, towers):
        encoded = _joined(own, parts, group, device)
    return {name: values[[place[text] for text in texts]] for name, values in encoded.items()}


def _joined(own: Iterator[Tensors], parts: list[slice], group: Group, device: torch.device) -> Tensors:
    """Return the features of all batches as float32 on `device`, in order; {} on every rank but the first.

    own: the batches of this rank. A rank keeps one at a time, and the first one nothing but the result: batches are
    the same for any number of ranks, and so are the features.
    """
    whole: Tensors = {}
    for first in range(0, len(parts), group.world):
        mine = {name: values.to(device, torch.float32) for name, values in next(own, {}).items()}
        for rows, found in zip(parts[first:], group.collect(mine), strict=False):
            for name, values in found.items():
                if name not in whole:
                    whole[name] = values.new_empty((parts[-1].stop, *values.shape[1:]))
                whole[name][rows] = values
    return {name: values.to(device) for name, values in whole.items()}


def _digest(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(eq=False)
class Features:
    """The features of one checkpoint: the latest in memory and, with a home, all on disk, where they survive a kill."""

    method: Method
    towers: OpenClipTowers
    checkpoint: str  #: sha256 of the weights
    protocol: str
    home: Path | None  #: where `folder` lies; None = nothing is written
    #: maps a data set's name to the channels that normalise its pixels; None stands for the towers' own
    channels: Callable[[str], Channels | None] | None = None
    inside: Path | None = None  #: the folder of the claim under which `folder` is written, see `bench.store.files`
    group: Group = ALONE  #: its ranks make the same calls together; they share a folder, which the first one writes
    _held: dict[str, Tensors] = field(default_factory=dict, init=False)

    @property
    def folder(self) -> Path | None:
        """For this checkpoint alone, so that it can be removed."""
        return None if self.home is None else self.home / _digest(self.checkpoint, self.protocol)[:16]

    @property
    def device(self) -> torch.device:
        """Where the towers are."""
        return next(self.towers.visual.parameters()).device

    def images(self, pairs: Pairs, kind: FeatureKind = "embedding") -> Tensors:
        """Return `extract_images(pairs, kind)`, computed once."""
        own = (self.channels(pairs.name) if self.channels else None) or self.towers.channels
        return self.kept(
            ("images", kind, pairs.content_hash, repr(own)),  # the hash covers size and resizing as well
            lambda: extract_images(self.method, self.towers, pairs, kind, None, own, self.group),
            _place(kind, self.device),
        )

    def texts(self, texts: Sequence[str]) -> Tensors:
        """Return `extract_texts(texts)`, computed once."""
        return self.kept(("texts", *texts), lambda: extract_texts(self.method, self.towers, texts, self.group))

    def extracted_images(self, pairs: Pairs, rows: Ints) -> Tensors:
        """Return `extract_images` of these rows of this checkpoint."""
        return self._on_all_ranks(extract_images(self.method, self.towers, pairs, "embedding", rows, None, self.group))

    def extracted_texts(self, texts: Sequence[str]) -> Tensors:
        """Return `extract_texts` of this checkpoint."""
        return self._on_all_ranks(extract_texts(self.method, self.towers, texts, self.group))

    def _on_all_ranks(self, found: Tensors) -> Tensors:
        if self.group.world == 1:
            return found
        given = self.group.agree({name: values.cpu() for name, values in found.items()})
        return {name: values.to(self.device) for name, values in given.items()}

    def discard(self) -> None:
        """Remove the files, once everything is measured."""
        self.group.rows(0)  # all ranks have read them
        if self.folder is None or self.group.rank:
            return
        if self.inside is not None:
            files.discard(self.folder, self.inside)
        else:
            files.remove(self.folder)

    def kept(self, key: tuple[str, ...], extract: Callable[[], Tensors], place: torch.device | None = None) -> Tensors:
        """Return the result of `extract()`, computed once for each `key` of this checkpoint and protocol.

        Of several ranks, the first one's result counts; `extract()` may be {} on the others.
        What is read from disk comes to `place`, by default the towers' device; to the CPU it is mapped.
        """
        name = _digest(*key)
        if name not in self._held:
            self._held[name] = self._stored(name, extract, place or self.device)
            sizes = {one: sum(values.nbytes for values in part.values()) for one, part in self._held.items()}
            for oldest in [*sizes][:-1]:  # the newest ones stay, whatever their size
                if sum(sizes.values()) > HELD_BYTES:
                    del self._held[oldest], sizes[oldest]
        return self._held[name]

    def _stored(self, name: str, extract: Callable[[], Tensors], place: torch.device) -> Tensors:
        if self.folder is None:
            return extract()
        # the first rank looks and writes, because a shared folder may show others an older state
        file = self.group.agree(None if self.group.rank else self._found(name))
        if file is None:
            found = extract()
            file = self.group.agree("" if self.group.rank else self._written(name, found))
        return load_file(self.folder / file, device=str(place))

    def _found(self, name: str) -> str | None:
        """Return the name of the file of features that is whole: it has the sha256 that its name ends in."""
        assert self.folder is not None
        for path in self.folder.glob(f"{name}-*.safetensors"):
            with suppress(OSError):
                if path.stem.rpartition("-")[2] == file_hash(path):
                    return path.name
        return None

    def _written(self, name: str, features: Tensors) -> str:
        """Write features, from where they are in memory, to a file whose name ends in its sha256; return the name."""
        folder = self.folder
        assert folder is not None
        found = {part: values.cpu().contiguous() for part, values in features.items()}
        with files.scratch(folder / name, self.inside) as fresh:
            save_file(found, fresh)
            path = folder / f"{name}-{file_hash(fresh)}.safetensors"
            files.write_path(path, lambda target: fresh.replace(target), inside=self.inside)
        return path.name
