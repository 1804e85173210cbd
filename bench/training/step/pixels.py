"""The decoded images of a run's pairs on its device, augmented there: `data.augment_on: device`.

Crops, warps, mirror images and colours are drawn as on the host, so only the resampling differs, in its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.arrays import Ints
from bench.catalogue import augmentations
from bench.data import augment, photo
from bench.data.kept import KeptPairs
from bench.data.pairs import MemoryPairs, Pairs
from bench.data.shards.pairs import ShardPairs
from bench.data.workers import CHUNK, Prefetcher
from bench.errors import UserError
from bench.machine import capacity

SHARE = 0.1  #: of the device's memory that images may take
FIELD = "data.augment_on: device"


class DevicePixels(Protocol):
    """Images of a run's pairs that lie on a device."""

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int) -> Tensor:
        """Map rows [b] of the run's pairs to uint8 [b, H, W, 3], augmented, keyed by (seed, row, epoch, view)."""


def on_device(pairs: Pairs, recipe: str, device: torch.device, workers: int) -> DevicePixels:
    """Put the images of `pairs` on a device; `workers` processes decode them, or this one if there are none.

    Raises UserError if they take more than SHARE of the device's memory, if one of them cannot be read, or if the
    recipe or the pairs need the host.
    """
    keyed = np.arange(len(pairs))
    while isinstance(pairs, KeptPairs):  # a kept row is augmented by its row of the whole set
        keyed, pairs = pairs.rows[keyed], pairs.noise.applied(pairs.whole)
    if isinstance(pairs, MemoryPairs):
        _refuse_above(_limit(device), len(keyed) * pairs.pixels[:1].nbytes, pairs.name)
        ranges = augmentations.recipe(recipe, "drawn art")
        return Drawn(torch.from_numpy(pairs.pixels[keyed]).to(device), keyed, ranges)
    if isinstance(pairs, ShardPairs):
        return _photographs(pairs, keyed, recipe, device, workers)
    raise UserError(f"{FIELD}: some images of {pairs.name} are changed on the host; leave it out")


def _photographs(pairs: ShardPairs, keyed: Ints, recipe: str, device: torch.device, workers: int) -> DevicePixels:
    do: photo.Recipe = augmentations.recipe(recipe, "photographs")
    if do.before is not None or do.after is not None:
        raise UserError(f"{FIELD}: {recipe!r} changes images on the host; leave it out, or take another train.augment")
    if do.scale is None:
        return _evaluation(pairs, keyed, device, workers)
    limit, found, taken = _limit(device), list[Tensor](), 0
    with closing(_made(partial(_whole, pairs), keyed, workers)) as chunks:  # no process outlives a refusal
        for made in chunks:
            taken += made.flat.nbytes
            _refuse_above(limit, taken, pairs.name)
            found += made.images(device)
    return Photographs(found, keyed, pairs.settings.size, do)


def _evaluation(pairs: ShardPairs, keyed: Ints, device: torch.device, workers: int) -> DevicePixels:
    """Pixels of evaluation, whose size is known."""
    shape = (len(keyed), pairs.settings.size, pairs.settings.size, 3)
    _refuse_above(_limit(device), math.prod(shape), pairs.name)
    whole, start = torch.empty(shape, dtype=torch.uint8, device=device), 0
    for made in _made(partial(_evaluated, pairs), keyed, workers):
        part = made.flat.view(-1, *shape[1:])
        whole[start : start + len(part)] = part
        start += len(part)
    return Drawn(whole, keyed, None)


def _limit(device: torch.device) -> int:
    """Bytes of a device, or of the host's memory that this process may use, that images may take."""
    gpu = device.type == "cuda"
    return int(SHARE * (torch.cuda.get_device_properties(device).total_memory if gpu else capacity.memory()))


def _refuse_above(limit: int, size: int, name: str) -> None:
    if size > limit:
        what = f"the decoded images of {name} take more than a tenth of the device's memory ({limit / 2**30:.2f} GiB)"
        raise UserError(f"{FIELD}: {what}; leave it out")


@dataclass(frozen=True)
class Drawn:
    """Images of one size, warped as drawn art is, or unchanged."""

    pixels: Tensor  #: uint8 [n, H, W, 3]
    keyed: Ints  #: [n] the rows that draws are keyed by
    ranges: augment.Recipe | None

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int) -> Tensor:
        """As `DevicePixels.sampled`."""
        images = self.pixels[torch.from_numpy(rows).to(self.pixels.device)]
        if self.ranges is None:
            return images
        return 255 - augment.warped(255 - images, self.keyed[rows], epoch, seed, view, self.ranges)


@dataclass(frozen=True)
class Photographs:
    """Images of any size, of which each is cropped and resized by itself, so that none depends on the others."""

    pixels: list[Tensor]  #: n of uint8 [H, W, 3]
    keyed: Ints  #: [n] the rows that draws are keyed by
    size: int
    do: photo.Recipe

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int) -> Tensor:
        """As `DevicePixels.sampled`; resized by torch's bicubic filter with antialiasing, as Pillow first across."""
        crops, mirrored = list[Tensor](), list[bool]()
        for row, key in zip(rows.tolist(), self.keyed[rows].tolist(), strict=True):
            image = self.pixels[row]
            (left, top, right, bottom), flip = photo.cropped(image.shape[1::-1], key, epoch, seed, view, self.do)
            crop = image[top:bottom, left:right].permute(2, 0, 1)[None].float()
            across = F.interpolate(crop, (bottom - top, self.size), mode="bicubic", antialias=True)
            across.round_().clamp_(0, 255)
            crops.append(F.interpolate(across, (self.size, self.size), mode="bicubic", antialias=True))
            mirrored.append(flip)
        whole = torch.cat(crops).round_().clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
        flips = torch.tensor(mirrored, device=whole.device)[:, None, None, None]
        return torch.where(flips, whole.flip(2), whole)


@dataclass(frozen=True)
class _Decoded:
    """Images as a worker process sends them."""

    flat: Tensor  #: all values, uint8
    shapes: list[tuple[int, int, int]]

    def images(self, device: torch.device) -> list[Tensor]:
        """Copy them to a device at once; each is a view."""
        parts = self.flat.to(device).split([math.prod(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def _whole(pairs: ShardPairs, rows: Ints) -> _Decoded:
    return _flat([np.asarray(image) for image in pairs.decoded(rows)])


def _evaluated(pairs: ShardPairs, rows: Ints) -> _Decoded:
    return _flat([*pairs.images(rows)])


def _flat(images: list[Any]) -> _Decoded:
    return _Decoded(torch.from_numpy(np.concatenate([x.ravel() for x in images])), [x.shape for x in images])


def _made(make: Any, rows: Ints, workers: int) -> Generator[_Decoded]:
    """Make all rows, a chunk at a time, in this process or by others."""
    chunks = (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))
    if not workers:
        yield from map(make, chunks)
        return
    with closing(Prefetcher[_Decoded](make, chunks, workers, CHUNK, 2 * CHUNK * workers)) as ahead:
        for _ in range(0, len(rows), CHUNK):
            yield next(ahead)
