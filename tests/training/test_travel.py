"""The order of copies, streams and waits of pixels on their way to a GPU, told by streams that note what is asked."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.training.step import travel
from bench.training.step.travel import Travel


class Noting:
    """Two streams and a tensor as CUDA has them; each note says on which stream something was asked."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.current, self.events = "computing", 0

    def stream(self, name: str) -> Any:
        def record() -> Any:
            number = self.events = self.events + 1
            self.notes.append(f"{name}: event {number}")
            return SimpleNamespace(synchronize=lambda: self.notes.append(f"host waits for event {number}"))

        def wait(other: Any) -> None:
            self.notes.append(f"{name}: waits for {other.name}")

        return SimpleNamespace(name=name, record_event=record, wait_stream=wait)

    @contextmanager
    def on(self, stream: Any) -> Any:
        before, self.current = self.current, stream.name
        yield
        self.current = before

    def tensor(self, name: str) -> Any:
        there = SimpleNamespace(record_stream=lambda stream: self.notes.append(f"{name} is kept for {stream.name}"))

        def to(_: Any, non_blocking: bool) -> Any:
            assert non_blocking
            self.notes.append(f"{self.current}: {name}")
            return there

        return SimpleNamespace(to=to)


def test_a_micro_batch_travels_beside_the_one_before_and_no_third_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    noting = Noting()
    cuda = SimpleNamespace(
        Stream=lambda _: noting.stream("travel"), stream=noting.on, current_stream=lambda _: noting.stream("computing")
    )
    monkeypatch.setattr(travel, "torch", SimpleNamespace(cuda=cuda))
    way = Travel(torch.device("cuda"))
    for name in ("first", "second", "third"):
        way.send([noting.tensor(name)])
    expected = []
    for number, name in enumerate(("first", "second", "third"), start=1):
        expected.append(f"computing: event {number}")
        expected += [f"host waits for event {number - 1}"] * (number > 1)
        expected += [f"travel: {name}", "computing: waits for travel", f"{name} is kept for computing"]
    assert noting.notes == expected
