"""Towers compiled with CUDA graphs: what a replay would overwrite is kept. Memory is reused by hand, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.checks.trainings import Training, make
from bench.store import RunStore, writing
from bench.towers.batchnorm import GroupedBatchNorm2d
from bench.training import loop
from bench.training.loop import Job, train
from bench.training.step import replay

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's compiler uses what torch deprecates


class Replayed(nn.Module):
    """A tower whose outputs, and statistics, lie in the same memory after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = GroupedBatchNorm2d(nn.BatchNorm2d(3), 4)
        self.places: dict[tuple[str, int], Tensor] = {}

    def kept(self, name: str, x: Tensor) -> Tensor:
        place = self.places.setdefault((name, len(x)), torch.empty_like(x))
        return place.copy_(x.detach())

    def encode(self, x: Tensor) -> dict[str, Tensor]:
        before = len(self.norm.seen)
        z = {"image": self.kept("image", self.norm(x).mean((2, 3))), "ids": self.kept("ids", torch.arange(len(x)))}
        self.norm.seen[before:] = [
            (self.kept("mean", mean), self.kept("var", var)) for mean, var in self.norm.seen[before:]
        ]
        return z


def test_embeddings_and_statistics_outlive_the_next_encoding() -> None:
    tower, plain = Replayed(), Replayed()
    rows = torch.randn(3, 4, 3, 2, 2)
    found = [replay.encoded(lambda x=x: tower.encode(x), tower) for x in rows]
    expected = [{key: value.clone() for key, value in plain.encode(x).items()} for x in rows]
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    means = [x.mean((0, 2, 3)) for x in rows]
    assert len(tower.norm.seen) == 3
    for (mean, _), own in zip(tower.norm.seen, means, strict=True):
        torch.testing.assert_close(mean, own)
    assert torch.equal(plain.norm.seen[0][0], plain.norm.seen[2][0]), "without copies the last one would stand for all"


def test_gradients_flow_through_copies() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    replay.encoded(lambda: {"image": x * 3}, nn.Identity())["image"].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[3, 3], [3, 3]]


def reusing(job: Job) -> None:
    """Have first encodings, which need no gradient, return the same memory each time."""
    encode, places = job.method.encode, dict[str, Tensor]()

    def replayed(*given: Any) -> dict[str, Tensor]:
        z = encode(*given)
        if torch.is_grad_enabled():
            return z
        return {key: places.setdefault(key, torch.empty_like(x)).copy_(x) for key, x in z.items()}

    job.method.encode = replayed  # type: ignore[method-assign]


def losses(folder: Path, kind: bool | str, reuse: bool) -> list[float]:
    with writing(RunStore(folder)) as out:
        job = make(Training("clip", steps=2, precision="fp64", towers="resnet", micro=16), out)
        job.settings = job.settings.model_copy(update={"compile": kind})
        if reuse:
            reusing(job)
        train(job)
        return [line["loss"] for line in out.metrics()]


def test_micro_batches_are_not_overwritten_in_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = losses(tmp_path / "plain", False, reuse=False)
    assert losses(tmp_path / "overwritten", False, reuse=True) != expected
    own: list[bool] = []
    passed, prepared = loop._backward, replay.own_gradients
    places: list[int] = []

    def noted(parameters: Any) -> None:
        parameters = list(parameters)
        prepared(parameters)
        places[:] = [x.grad.data_ptr() for x in parameters]
        own.append(False)
        monkeypatch.setattr(loop, "_backward", lambda *given: _passed(parameters, *given))

    def _passed(parameters: list[nn.Parameter], *given: Any) -> None:
        passed(*given)
        own[-1] = [x.grad.data_ptr() for x in parameters if x.grad is not None] == places

    monkeypatch.setattr(replay, "own_gradients", noted)
    assert losses(tmp_path / "kept", replay.REPLAYED, reuse=True) == expected
    assert own == [True, True], "gradients are added to memory that was there before"
