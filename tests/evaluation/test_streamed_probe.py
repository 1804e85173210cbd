"""A probe whose rows are read in chunks: scikit-learn's optimum, the other way's answers, memory without n in it."""

from __future__ import annotations

import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.evaluation import probe
from bench.evaluation.features import Features
from bench.evaluation.logistic import Labelled, Problem, StreamedProblem, streamed
from bench.evaluation.logistic.streamed import working_bytes
from bench.evaluation.probe import adamw_probe, sweep_memory, sweep_probe
from bench.evaluation.ranks import require_finite
from bench.towers.build import OpenClipTowers
from methods.protocol import Method

from .test_probe import digits

CPU = torch.device("cpu")
IMAGENET = {"rows": 1_281_167, "width": 2048, "classes": 1000}


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that are made while it is on, as long as they live; `peak` is the most at a time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = self._now = 0
        self._live: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        out = func(*args, **(kwargs or {}))
        for storage in [x.untyped_storage() for x in tree_leaves(out) if isinstance(x, Tensor)]:
            if storage._cdata not in given | self._live:
                self._live.add(storage._cdata)
                self._now += storage.nbytes()
                self.peak = max(self.peak, self._now)
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        return out

    def _freed(self, place: int, size: int) -> None:
        self._live.discard(place)
        self._now -= size


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sweep is streamed, and a chunk of the digits has 45 rows."""
    monkeypatch.setattr(probe, "MAX_SWEEP_BYTES", 0)
    monkeypatch.setattr(streamed, "CHUNK_BYTES", 45 * 4 * (5 * 64 + 4 * 10))


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("strength", [0.1, 10.0])
def test_the_optimum_is_scikit_learns_over_several_splits(strength: float) -> None:
    train, validation, _ = digits(torch.float64)
    some = torch.arange(len(validation)) % 3 == 0
    problem = StreamedProblem((train, validation.select(some), validation.select(~some)), 10, CPU)
    ours = problem.fit(strength, gap=1e-14)
    both = train + validation
    theirs = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000).fit(both.features, both.labels)
    np.testing.assert_allclose(ours.weight.T, theirs.coef_, atol=1e-4)
    bias = ours.bias - ours.bias.mean()
    np.testing.assert_allclose(bias, theirs.intercept_ - theirs.intercept_.mean(), atol=1e-4)


@pytest.mark.usefixtures("tiny")
def test_both_ways_go_the_same_way() -> None:
    """In fp64 the streamed rows take the steps that the held ones take."""
    train, _, _ = digits(torch.float64)
    for strength in (3.0, 100.0):
        held = Problem(train.features, train.labels, 10).fit(strength, gap=1e-8)
        read = StreamedProblem([train], 10, CPU).fit(strength, gap=1e-8)
        assert read.iterations == held.iterations > 3
        torch.testing.assert_close(read.weight, held.weight, atol=1e-7, rtol=1e-7)
        torch.testing.assert_close(read.bias, held.bias, atol=1e-7, rtol=1e-7)


def test_a_streamed_sweep_chooses_as_one_in_memory_and_repeats_itself(request: pytest.FixtureRequest) -> None:
    train, validation, test = digits()
    held = sweep_probe(train, validation, 10)
    request.getfixturevalue("tiny")
    once, again = (sweep_probe(train, validation, 10) for _ in range(2))
    assert once.strength == held.strength
    for strength, accuracy in held.validation.items():
        assert once.validation[strength] == pytest.approx(accuracy, abs=0.01)
    assert (once.correct(test) == held.correct(test)).mean() > 0.995
    assert once.solution.weight.numpy().tobytes() == again.solution.weight.numpy().tobytes()
    assert once.solution.bias.numpy().tobytes() == again.solution.bias.numpy().tobytes()


@pytest.mark.usefixtures("tiny")
def test_features_far_from_zero_and_an_absent_class_do_no_harm() -> None:
    train, _, test = digits()
    kept = Labelled(train.features + 30, train.labels).select(train.labels != 3)
    found = StreamedProblem([kept], 10, CPU).fit(1.0)
    expected = Problem(train.features[train.labels != 3], kept.labels, 10).fit(1.0)
    assert found.bias[3] == -torch.inf
    predicted = found.logits(test.features + 30).argmax(1)
    assert 3 not in predicted.tolist()
    assert (predicted == expected.logits(test.features).argmax(1)).double().mean() > 0.99


def test_imagenet_is_streamed_in_less_than_a_gigabyte() -> None:
    assert working_bytes(IMAGENET["width"], IMAGENET["classes"]) < 1e9
    assert sweep_memory(**IMAGENET, free=None) == (True, False)
    assert sweep_memory(**IMAGENET, free=80 * 10**9) == (True, True)
    assert sweep_memory(**IMAGENET, free=8 * 10**9) == (True, True)
    assert sweep_memory(**IMAGENET, free=5 * 10**8) == (True, False)


def test_small_features_are_held_on_a_gpu_with_room_alone() -> None:
    food = {"rows": 75_750, "width": 768, "classes": 101}
    assert sweep_memory(**food, free=80 * 10**9) == (False, True)
    assert sweep_memory(**food, free=10**9) == sweep_memory(**food, free=None) == (False, False)


def highest(rows: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of tensors at the highest point of a sweep's problem and two fits, features left out."""
    monkeypatch.setattr(streamed, "CHUNK_BYTES", 1 << 20)
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % 50
    features = torch.randn(rows, 32, generator=draws) + torch.randn(50, 32, generator=draws)[labels]
    split = Labelled(features, labels)
    with LiveBytes() as live:
        problem = StreamedProblem([split], 50, CPU)
        problem.fit(1.0, problem.fit(100.0))
    return live.peak


def test_the_memory_is_below_its_formula_and_knows_no_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = highest(8_000, monkeypatch), highest(16_000, monkeypatch)
    assert many == few <= working_bytes(32, 50)
    assert few < 8_000 * 4 * 50, "logits of all rows alone take more"


def test_rows_are_chosen_joined_and_looked_at_without_a_copy_of_their_features() -> None:
    features = torch.randn(40_000, 16, generator=torch.Generator().manual_seed(0))
    with LiveBytes() as live:
        whole = Labelled(features, torch.arange(40_000) % 7)
        some = torch.arange(40_000) % 5 == 0
        parts = whole.select(~some) + whole.select(some).to(CPU)
        require_finite(features)
    assert live.peak < features.nbytes
    order = torch.cat(((~some).nonzero(), some.nonzero())).squeeze(1)
    assert torch.equal(parts.features, features[order])
    assert torch.equal(parts.take(slice(39_990, 40_000))[0], features[order][-10:])


def test_rows_of_a_table_train_cyclips_probe_as_their_copies_do() -> None:
    train, _, test = digits()
    some = torch.arange(len(train)) % 5 == 0
    rows = train.select(~some) + train.select(some)
    copied = Labelled(rows.features.clone(), rows.labels)
    np.testing.assert_array_equal(
        adamw_probe(rows, test, 10, epochs=1, device=CPU), adamw_probe(copied, test, 10, epochs=1)
    )


def test_stored_features_are_there_once_while_they_are_written(
    model: tuple[Method, OpenClipTowers], tmp_path: Path
) -> None:
    """Python's own memory, where bytes of a whole file would be; tensors are not counted in it."""
    held, values = Features(*model, "weights", "1", tmp_path), torch.randn(1000, 500)
    tracemalloc.start()
    try:
        found: Tensor = held.kept(("large",), lambda: {"pooled": values})["pooled"]
        assert tracemalloc.get_traced_memory()[1] < values.nbytes / 2
    finally:
        tracemalloc.stop()
    assert torch.equal(found, values)
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".safetensors"]
