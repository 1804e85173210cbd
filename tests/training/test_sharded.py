"""Moments that are shared out over ranks: the same weights, a part of the memory, and checkpoints that do not tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.store import Store
from bench.training.checkpoint import load_checkpoint
from bench.training.optimizer import owners

RANK = Path(__file__).with_name("sharded_rank.py")
STEPS, STOP = 5, 2  #: of the run; of those that are stopped
#: name, ranks, whether the optimiser is sharded, steps until it stops, the case whose run it resumes
CASES: list[tuple[str, int, bool, int | None, str | None]] = [
    ("alone", 1, False, None, None),
    ("alone, asked", 1, True, None, None),
    ("plain 2", 2, False, None, None),
    ("sharded 2", 2, True, None, None),
    ("plain 3", 3, False, None, None),
    ("sharded 3", 3, True, None, None),
    ("begun by 1", 1, False, STOP, None),
    ("begun by 2", 2, True, STOP, None),
    ("begun plain", 2, False, STOP, None),
    ("2 to 1", 1, False, None, "begun by 2"),
    ("2 to 2", 2, True, None, "begun by 2"),
    ("plain to sharded", 2, True, None, "begun plain"),
    ("1 to 3", 3, True, None, "begun by 1"),
    ("2 to 3", 3, True, None, "begun by 2"),
    ("2 to 3 plain", 3, False, None, "begun by 2"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, start_script: Callable[..., Any]) -> Path:
    """A folder with all cases, made by three ranks."""
    made = tmp_path_factory.mktemp("sharded")
    processes = [start_script(RANK, rank, made, json.dumps(CASES)) for rank in range(3)]
    for process in processes:
        code, said = process.finish()
        assert code == 0, said
    return made


def state(folder: Path, case: str, rank: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(folder / f"{case}-{rank}.pt", weights_only=True)
    return found


def losses(folder: Path, case: str) -> list[float]:
    return [line["loss"] for line in Store(folder / case).run("run").metrics()]


def assert_same_bits(one: Any, other: Any) -> None:
    """Nested mappings in the same order, tensors with the same bits and the same order in memory."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name, value in one.items():
            assert_same_bits(value, other[name])
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        assert one.stride() == other.stride()
    else:
        assert one == other


@pytest.mark.parametrize("world", [2, 3])
def test_weights_metrics_and_checkpoint_have_the_bits_of_a_whole_optimiser(folder: Path, world: int) -> None:
    plain, sharded = f"plain {world}", f"sharded {world}"
    assert (state(folder, plain)["optimiser"], state(folder, sharded)["optimiser"]) == ("AdamW", "ShardedAdamW")
    runs = [Store(folder / case).run("run") for case in (plain, sharded)]
    for rank in range(world):
        for part in ("towers", "method"):
            assert_same_bits(state(folder, plain)[part], state(folder, sharded, rank)[part])
    assert runs[0].path("metrics.jsonl").read_bytes() == runs[1].path("metrics.jsonl").read_bytes()
    for weights in runs[0].folder.glob("weights-*"):
        assert weights.read_bytes() == runs[1].path(weights.name).read_bytes()
    one, other = (load_checkpoint(run) for run in runs)
    assert one is not None
    assert other is not None
    assert len(one["optimiser"]["state"]) > 50
    for part in ("step", "towers", "method", "optimiser"):
        assert_same_bits(one[part], other[part])
    assert len(set(losses(folder, sharded))) == STEPS, "the weights did not move"


@pytest.mark.parametrize("world", [2, 3])
def test_each_rank_holds_its_part_of_the_moments(folder: Path, world: int) -> None:
    whole = state(folder, "alone")["moments"]
    assert [state(folder, f"plain {world}", rank)["moments"] for rank in range(world)] == [whole] * world
    held = [state(folder, f"sharded {world}", rank)["moments"] for rank in range(world)]
    assert sum(held) == whole
    assert max(held) < 1.15 * whole / world, held
    assert max(held) == state(folder, f"sharded {world}")["counted"]
    resumed = [state(folder, "2 to 3", rank)["moments"] for rank in range(3)]
    assert sum(resumed) == whole
    assert max(resumed) < 1.15 * whole / 3, "those that a checkpoint brings to other ranks are dropped"


def test_one_process_has_a_whole_optimiser_whatever_was_asked_for(folder: Path) -> None:
    assert state(folder, "alone, asked")["optimiser"] == "AdamW"
    for part in ("moments", "towers", "method"):
        assert_same_bits(state(folder, "alone")[part], state(folder, "alone, asked")[part])


@pytest.mark.parametrize("case", ["2 to 1", "2 to 3", "2 to 3 plain", "1 to 3"])
def test_a_run_goes_on_with_other_ranks_to_the_same_losses(folder: Path, case: str) -> None:
    assert len(losses(folder, case)) == STEPS
    assert losses(folder, case) == pytest.approx(losses(folder, "alone"), rel=1e-9)
    for part in ("towers", "method"):
        for name, x in state(folder, "alone")[part].items():
            finite = x.double().nan_to_num(0.0, 0.0, 0.0)
            atol = 1e-9 * (float(finite.abs().max()) if x.numel() else 0.0)
            torch.testing.assert_close(state(folder, case)[part][name], x, rtol=1e-9, atol=atol, equal_nan=True)


@pytest.mark.parametrize("case", ["2 to 2", "plain to sharded"])
def test_a_run_goes_on_with_as_many_ranks_to_the_same_bytes(folder: Path, case: str) -> None:
    for part in ("towers", "method"):
        assert_same_bits(state(folder, "plain 2")[part], state(folder, case)[part])
    metrics = [Store(folder / one).run("run").path("metrics.jsonl").read_bytes() for one in ("plain 2", case)]
    assert metrics[0] == metrics[1]


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 12))
def test_owners_share_the_load(sizes: list[int], world: int) -> None:
    found = owners(sizes, world)
    held = [sum(size for size, owner in zip(sizes, found, strict=True) if owner == rank) for rank in range(world)]
    assert len(found) == len(sizes)
    assert sum(held) == sum(sizes)
    assert max(held) <= sum(sizes) / world + max(sizes, default=0), "at most one tensor above the mean"
    if sizes:
        assert found[sizes.index(max(sizes))] == 0, "the first rank has the largest, so never nothing"
