"""Batches of evaluation images, decoded by worker processes while the towers encode the batches before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bench.arrays import Ints, Pixels
from bench.data import MemoryPairs, Pairs
from bench.loading.workers import Prefetcher, buffer_sizes, worker_count
from methods.base import spans

BATCHES_AHEAD = 3  #: batches that are decoded ahead of time
MIN_ROWS_PER_WORKER = 256  #: rows for each worker process at least


def _decoded(images: Callable[[Ints], Pixels], rows: Ints) -> list[Tensor]:
    return [torch.from_numpy(images(rows))]


def batches(pairs: Pairs, rows: Ints, size: int, images: Callable[[Ints], Pixels] | None = None) -> Iterator[Pixels]:
    """Yield uint8 [b, H, W, 3], or stored features [b, P], for each `size` of `rows` [n], in order.

    The last batch may be smaller. images: how rows of `pairs` are read, by default as `pairs` do it.

    Raises UserError if an image cannot be read, and RuntimeError if a worker process died.
    """
    images = images or pairs.images
    parts = [rows[part] for part in spans(len(rows), size)]
    workers = min(worker_count(None, 1), len(rows) // MIN_ROWS_PER_WORKER)
    if isinstance(pairs, MemoryPairs) or not workers or (one := images(rows[:1])).ndim == 2:
        yield from map(images, parts)
        return
    chunk, waiting = buffer_sizes(one.nbytes, BATCHES_AHEAD * size, workers, 1)
    pieces = (part[piece] for part in parts for piece in spans(len(part), chunk))
    prefetcher = Prefetcher(partial(_decoded, images), pieces, workers, chunk, waiting)
    try:
        for part in parts:
            whole = np.empty((len(part), *one.shape[1:]), np.uint8)
            for piece in spans(len(part), chunk):  # copied at once, because a kept tensor occupies shared memory
                whole[piece] = next(prefetcher)[0].numpy()
            yield whole
    finally:
        prefetcher.close()
