"""Checkpoints and kept weights: what is written is read back to the same bits, and nothing else fits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.hashing import file_hash
from bench.store import Damaged, RunStore, RunWriter, Store
from bench.suite.settings import SNAPSHOTS, TowerSettings, TrainSettings
from bench.towers.build import OpenClipTowers, build_towers
from bench.towers.tokenization import SmallVocabulary
from bench.training import checkpoint
from bench.training.ledger import Ledger
from bench.training.optimizer import make_optimiser, set_trainable
from methods.protocol import Facts, Phase
from methods.sogclr import Sogclr

CPU = torch.device("cpu")
Writer = Callable[[RunStore], RunWriter]


def made(seed: int, dim: int = 8) -> tuple[Sogclr, OpenClipTowers, torch.optim.Optimizer]:
    """A method with state of its own, its towers, and their optimiser."""
    vocabulary = SmallVocabulary(["a red apple"], 64, 8)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        towers = build_towers(TowerSettings(image="tiny-resnet", dim=dim), vocabulary, 32, 8)
        method = Sogclr(Sogclr.Config(), Facts(rows=40, batch=8, dim=dim, seed=seed))
    set_trainable(method, towers, Phase())
    return method, towers, make_optimiser(method, towers, Phase(), TrainSettings(batch=8))


def steps(method: Sogclr, towers: OpenClipTowers, optimiser: torch.optim.Optimizer, count: int) -> None:
    """Optimiser steps on drawn gradients, the same for the same start."""
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        for parameter in (*towers.parameters(), *method.parameters()):
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimiser.step()


def tensors(*modules: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {f"{n}.{name}": x.clone() for n, one in enumerate(modules) for name, x in one.state_dict().items()}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(x, other[name]) for name, x in one.items())


@settings(deadline=None)
@given(st.sampled_from((*SNAPSHOTS, 1.0)), st.sampled_from((*SNAPSHOTS, 1.0)))
def test_weights_are_named_by_percent_so_that_names_sort_as_budgets_do(one: float, other: float) -> None:
    names = [checkpoint.weights_name(at) for at in (one, other)]
    assert (names[0] < names[1]) == (one < other)
    assert int(names[0].removeprefix("weights-").removesuffix(".safetensors")) == one * 100
    assert len({len(checkpoint.weights_name(at)) for at in (*SNAPSHOTS, 1.0)}) == 1


def test_a_checkpoint_gives_the_steps_that_follow_to_the_bit(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    assert checkpoint.load_checkpoint(out, CPU) is None
    method, towers, optimiser = made(0)
    steps(method, towers, optimiser, 3)
    ledger = Ledger(samples=24, flops=3000, train_seconds=1.5, peak_memory_bytes=99)
    checkpoint.save_checkpoint(out, 3, method, towers, optimiser, ledger)
    kept = tensors(method, towers)
    steps(method, towers, optimiser, 2)
    assert not equal(kept, tensors(method, towers))

    saved = checkpoint.load_checkpoint(out, CPU)
    assert saved is not None
    assert saved["step"] == 3
    assert Ledger(**saved["ledger"]) == ledger
    other = made(1)
    other[0].load_state_dict(saved["method"])
    other[1].load_state_dict(saved["towers"])
    other[2].load_state_dict(saved["optimiser"])
    assert equal(kept, tensors(other[0], other[1]))
    steps(*other, 2)
    assert equal(tensors(method, towers), tensors(other[0], other[1])), "moments and step counts are part of it"


def test_a_later_checkpoint_takes_the_place_of_the_earlier_in_one_step(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    method, towers, optimiser = made(0)
    for step in (1, 2):
        checkpoint.save_checkpoint(out, step, method, towers, optimiser, Ledger())
    saved = checkpoint.load_checkpoint(out, CPU)
    assert saved is not None
    assert saved["step"] == 2
    assert [path.name for path in out.folder.iterdir() if "claim" not in path.name] == [checkpoint.CHECKPOINT]


def test_a_damaged_checkpoint_is_an_error_and_not_a_fresh_start(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    checkpoint.save_checkpoint(out, 1, *made(0), Ledger())
    path = out.path(checkpoint.CHECKPOINT)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(Damaged, match=r"checkpoint\.pt: is no checkpoint: "):
        checkpoint.load_checkpoint(out, CPU)


@pytest.mark.parametrize("at", [0.25, 1.0])
def test_kept_weights_are_of_towers_and_method_to_the_bit(tmp_path: Path, writer: Writer, at: float) -> None:
    out = writer(Store(tmp_path).run("a"))
    method, towers, optimiser = made(0)
    steps(method, towers, optimiser, 1)
    checkpoint.save_weights(out, at, method, towers)
    path = out.path(checkpoint.weights_name(at))
    other, theirs, _ = made(1)
    assert not equal(tensors(method, towers), tensors(other, theirs))
    checkpoint.load_weights(path, other, theirs)
    assert equal(tensors(method, towers), tensors(other, theirs))
    assert file_hash(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    checkpoint.save_weights(writer(Store(tmp_path).run("b")), at, other, theirs)
    assert file_hash(Store(tmp_path).run("b").path(path.name)) == file_hash(path)


def test_weights_of_other_towers_are_refused(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    method, towers, _ = made(0)
    checkpoint.save_weights(out, 1.0, method, towers)
    wider, theirs, _ = made(0, dim=16)
    with pytest.raises(RuntimeError, match="size mismatch"):
        checkpoint.load_weights(out.path(checkpoint.weights_name(1.0)), wider, theirs)


def test_what_is_kept_does_not_share_memory_with_what_trains_on(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    method, towers, optimiser = made(0)
    before = tensors(method, towers)
    checkpoint.save_weights(out, 0.5, method, towers)
    steps(method, towers, optimiser, 1)
    checkpoint.load_weights(out.path(checkpoint.weights_name(0.5)), method, towers)
    assert equal(before, tensors(method, towers))
