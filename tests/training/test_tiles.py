"""Tiles of the loss are whole blocks of anchors that cover a rank's share, of a fixed number of similarities."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.training.loop import TILE_ENTRIES, anchor_tiles


@given(st.integers(1, 8), st.integers(1, 2**14))
def test_tiles_are_whole_blocks_and_cover_the_share(world: int, each: int) -> None:
    share, batch = slice(each * (world - 1), each * world), each * world
    found = list(anchor_tiles(False, share, batch))
    assert [row for tile in found for row in range(batch)[tile]] == list(range(batch)[share])
    assert all((tile.start - share.start) % 32 == 0 for tile in found)
    assert all((tile.stop - tile.start) * batch <= max(TILE_ENTRIES, 32 * batch) for tile in found)
    assert list(anchor_tiles(True, share, batch)) == [slice(0, batch)]
