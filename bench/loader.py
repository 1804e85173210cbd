"""From a step number to this rank's rows of the global batch: order, captions under noise, augmentation."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from bench.data.augment import augment
from bench.data.noise import NoiseManifest, Resampled, draw_captions
from bench.data.order import batch_rows
from bench.data.pairs import Pairs
from bench.towers import OpenClipTowers, normalise
from methods.protocol import Clock, Rows


class Loader:
    """Batches of one run. What it yields depends on (seed, step) alone, never on ranks, micro-batches or the past."""

    def __init__(
        self,
        pairs: Pairs,
        noise: NoiseManifest | Resampled | None,
        towers: OpenClipTowers,
        *,
        batch: int,
        seed: int,
        recipe: str,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.pairs, self.towers = pairs, towers
        self.manifest = noise if isinstance(noise, NoiseManifest) else None
        self.resampled = noise if isinstance(noise, Resampled) else None
        self.batch, self.seed, self.recipe = batch, seed, recipe
        self.dtype, self.device = dtype, device
        self.seconds = 0.0  #: spent preparing batches, in all

    def ids(self, step: int) -> Tensor:
        """[B] int64, unique: the training rows of the global batch."""
        return torch.tensor(batch_rows(len(self.pairs), self.batch, step, self.seed)[0], device=self.device)

    def micro_batches(self, clock: Clock, share: slice, size: int, views: int) -> Iterator[Rows]:
        """The rank's `share` of the global batch in pieces of `size` consecutive rows."""
        rows, epoch = batch_rows(len(self.pairs), self.batch, clock.step, self.seed)
        donors = np.arange(self.batch)
        if self.resampled is not None:
            donors = self.resampled.donors_in_batch(clock.step, self.batch)
        for start in range(share.start, share.stop, size):
            began = time.perf_counter()
            places = np.arange(start, min(start + size, share.stop))
            captions = draw_captions(self.pairs, self.manifest, rows[donors[places]], epoch, self.seed)
            pixels = self.pairs.images(rows[places])
            images = [self._augmented(pixels, rows[places], epoch, view) for view in range(1 + views)]
            batch = Rows(
                images=images[0],
                tokens=self.towers.tokenize(captions),
                captions=captions,
                ids=torch.from_numpy(rows[places]).to(self.device),
                positions=range(start, int(places[-1]) + 1),
                clock=clock,
                views=tuple(images[1:]),
            )
            self.seconds += time.perf_counter() - began
            yield batch

    def _augmented(self, pixels: np.ndarray, rows: np.ndarray, epoch: int, view: int) -> Tensor:
        if self.recipe != "none":
            pixels = augment(pixels, rows, epoch, self.seed, view=view, recipe=self.recipe)
        return normalise(pixels, self.device).to(self.dtype)
