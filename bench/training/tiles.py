"""Tiles of anchors in which the loss is computed, so that its memory grows linearly with the batch."""

from __future__ import annotations

from collections.abc import Iterator

ENTRIES = 2**22  #: similarities that a tile holds at once, 16 MiB in fp32; other tiles would round differently


def tiles(whole_batch: bool, share: slice, batch: int) -> Iterator[slice]:
    """This rank's anchors in tiles of whole blocks of 32; a whole-batch loss has one tile of all B."""
    if whole_batch:
        yield slice(0, batch)
        return
    size = max(32, ENTRIES // batch // 32 * 32)
    for start in range(share.start, share.stop, size):
        yield slice(start, min(start + size, share.stop))
