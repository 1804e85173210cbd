"""Tiles of anchors in which the loss is computed, as large as the device's memory allows."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from bench.training.distributed import Group

SMALLEST = 2**22  #: similarities a tile may always hold at once; on a CPU it holds no more (16 MiB in fp32)
SHARE = 0.25  #: of the memory that the rest of a step leaves free that the loss of a tile may take
VALUES = 20  #: that a loss holds for each similarity of a tile at its highest point; the dearest of ours holds 17


def tiles(whole_batch: bool, share: slice, batch: int, entries: int = SMALLEST) -> Iterator[slice]:
    """This rank's anchors in tiles of whole blocks of 32; a whole-batch loss has one tile of all B.

    entries: similarities that a tile may hold.
    """
    if whole_batch:
        yield slice(0, batch)
        return
    size = max(32, entries // batch // 32 * 32)
    for start in range(share.start, share.stop, size):
        yield slice(start, min(start + size, share.stop))


def fitting_entries(free: int, rows: int, batch: int, item: int = 4) -> int:
    """Return how many similarities a tile may hold where the rest of a step leaves `free` bytes to the loss.

    A power of two, so that a little more or less memory changes nothing: what takes SHARE of the memory, but not more
    than `rows` anchors of a batch need, and not less than SMALLEST. item: bytes a value.
    """
    affordable = int(max(free, 0) * SHARE) // (VALUES * item)
    needed = 1 << (rows * batch - 1).bit_length()
    return max(SMALLEST, min(needed, 1 << affordable.bit_length() >> 1))


def tile_entries(device: torch.device, share: slice, batch: int, trained: Collection[Tensor], group: Group) -> int:
    """Return the similarities of a tile for a training whose first loss comes next, the same on every rank.

    Free is what nobody has taken of the device, or what the allocator holds in reserve, without the gradients and the
    two moments of `trained`, which come later. Any rank calls it when all do.
    """
    if device.type != "cuda":
        return SMALLEST
    reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = torch.cuda.mem_get_info(device)[0] + reserve - 3 * sum(x.nbytes for x in trained)
    item = max((4, *(x.element_size() for x in trained)))
    own = fitting_entries(free, share.stop - share.start, batch, item)
    return min(int(entries) for (entries,) in group.rows(own))
