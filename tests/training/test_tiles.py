"""How large tiles of the loss are: fixed on a CPU, by free memory on a GPU, as before where a training resumes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bench.checks.trainings import Training, make
from bench.store import RunStore, writing
from bench.training import loop
from bench.training.checkpoint import CHECKPOINT, load_checkpoint
from bench.training.distributed import Group
from bench.training.loop import Interrupted, train
from bench.training.step.tiles import SMALLEST, fitting_entries, tile_entries, tiles

GIB = 2**30
GPU = torch.device("cuda")


@pytest.mark.parametrize(
    ("free", "rows", "batch", "item", "entries"),
    [
        (40 * GIB, 16384, 16384, 4, 2**27),  # a quarter is 10 GiB = 2**27 similarities of 20 values of 4 bytes
        (40 * GIB - 1, 16384, 16384, 4, 2**26),
        (79 * GIB, 16384, 16384, 4, 2**27),
        (80 * GIB, 16384, 16384, 4, 2**28),
        (80 * GIB, 16384, 16384, 8, 2**27),
        (80 * GIB, 2048, 16384, 4, 2**25),  # no more than the rank's rows need
        (80 * GIB, 1000, 1000, 4, 2**22),
        (80 * GIB, 3000, 3000, 4, 2**24),
        (1 * GIB, 16384, 16384, 4, 2**22),
        (-5 * GIB, 16384, 16384, 4, 2**22),
        (0, 1, 2**20, 4, 2**22),
    ],
)
def test_a_tile_takes_a_quarter_of_what_is_free_and_no_more_than_it_needs(
    free: int, rows: int, batch: int, item: int, entries: int
) -> None:
    assert fitting_entries(free, rows, batch, item) == entries


@given(st.integers(0, 200 * GIB), st.integers(1, 2**16), st.integers(2, 2**20))
def test_a_tile_is_a_power_of_two_of_similarities_within_its_bounds(free: int, rows: int, batch: int) -> None:
    entries = fitting_entries(free, rows, batch)
    assert entries.bit_count() == 1
    assert entries >= SMALLEST
    assert entries == SMALLEST or (entries * 80 <= free / 4 and entries < 2 * rows * batch)


@given(st.integers(1, 8), st.integers(1, 300), st.integers(2**5, 2**22))
def test_tiles_are_whole_blocks_and_cover_the_share(world: int, each: int, entries: int) -> None:
    share, batch = slice(each * (world - 1), each * world), each * world
    found = list(tiles(False, share, batch, entries))
    assert [row for tile in found for row in range(batch)[tile]] == list(range(batch)[share])
    assert all((tile.start - share.start) % 32 == 0 for tile in found)
    assert all((tile.stop - tile.start) * batch <= max(entries, 32 * batch) for tile in found)
    assert list(tiles(True, share, batch, entries)) == [slice(0, batch)]


class Counts(Group):
    """A group whose ranks have other numbers than this one."""

    def rows(self, *values: float) -> list[list[float]]:
        return [[*values], [2.0**24], [2.0**26]]


def test_free_is_what_nobody_took_or_the_allocator_holds_without_what_is_still_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU's numbers are made up, as none is here. 38 GiB that nobody took, 8 in reserve, 6 for the rest of a step."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (38 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 20 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 12 * GIB)
    trained = [torch.empty(GIB // 4, device="meta"), torch.empty(GIB // 4, device="meta")]
    share = slice(0, 2**15)
    assert tile_entries(GPU, share, 2**15, trained, Group()) == 2**27
    trained.append(torch.empty(1, device="meta"))
    assert tile_entries(GPU, share, 2**15, trained, Group()) == 2**26
    assert tile_entries(GPU, share, 2**15, trained, Counts()) == 2**24, "the least of all ranks"
    double = [torch.empty(1, dtype=torch.float64, device="meta")]
    assert tile_entries(GPU, share, 2**15, double, Group()) == 2**26
    assert tile_entries(torch.device("cpu"), share, 2**15, trained, Counts()) == 2**22, "bits of stored runs"


def weights(folder: Path, stop: int | None = None) -> dict[str, Tensor]:
    """Of a training of 96 rows a step, whose loss is one tile on a CPU, after all steps or until it is stopped."""
    training = Training("clip", steps=4, precision="fp32", towers="vit", batch=96, optimiser="adamw")
    with writing(RunStore(folder)) as out:
        job, asked = make(training, out), itertools.count(1)
        job.should_stop = lambda: next(asked) == stop
        if stop is None:
            train(job)
        else:
            with pytest.raises(Interrupted):
                train(job)
    return dict(job.towers.state_dict())


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(x, other[name]) for name, x in one.items())


def test_a_resumed_training_goes_on_with_its_tiles_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = weights(tmp_path / "plain")
    with pytest.MonkeyPatch.context() as small:
        small.setattr(loop, "tile_entries", lambda *_: 2**12)
        straight = weights(tmp_path / "straight")
        weights(tmp_path / "broken", stop=2)
    used: list[int] = []
    monkeypatch.setattr(loop, "tiles", lambda *given: used.append(given[-1]) or tiles(*given))
    resumed = weights(tmp_path / "broken")
    assert used == [2**12, 2**12]
    assert same(resumed, straight)
    assert not same(plain, straight), "other tiles round differently"
    saved = load_checkpoint(RunStore(tmp_path / "broken"))
    assert saved is not None
    assert saved["tile_entries"] == 2**12, "so that it can be resumed again"


def test_a_checkpoint_of_an_earlier_version_has_the_tiles_of_that(tmp_path: Path) -> None:
    plain = weights(tmp_path / "plain")
    weights(tmp_path / "broken", stop=2)
    path = tmp_path / "broken" / CHECKPOINT
    saved = torch.load(path, weights_only=True)
    assert saved.pop("tile_entries") == SMALLEST
    torch.save(saved, path)
    with pytest.MonkeyPatch.context() as other:
        other.setattr(loop, "tile_entries", lambda *_: 2**12)
        assert same(weights(tmp_path / "broken"), plain)
