"""One process, many processes and micro-batches are one computation."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.store import Store

WORKER = Path(__file__).with_name("worker.py")
METHODS = ["clip", "ncu"]  #: one and two phases; `bench check` does the same with every method on smaller towers
LAYOUTS = {"one": (1, None), "micro": (1, 8), "two": (2, None), "three": (3, 8)}  #: world, micro-batch
State = dict[str, Any]  #: name -> tensor, of "towers" and "method"


def run_ranks(start: Callable[..., Any], folder: Path, world: int, cases: dict[str, dict[str, Any]]) -> None:
    """Train every case on `world` real gloo processes that start once."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    processes = [start(WORKER, rank, world, folder, port, json.dumps(cases)) for rank in range(world)]
    for process in processes:
        code, said = process.finish()
        assert code == 0, said


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory, start_script: Callable[..., Any]) -> Path:
    """A folder with the trainings of every method under every layout; five steps in fp64, one step in fp32."""
    folder = tmp_path_factory.mktemp("layouts")
    for name, (world, micro) in LAYOUTS.items():
        cases: dict[str, dict[str, Any]] = {method: {"method": method, "micro_batch": micro} for method in METHODS}
        cases["stored"] = {"stored": True, "micro_batch": micro, "samples": 96}
        cases["recompute"] = {"recompute": True, "micro_batch": micro, "samples": 96}
        cases["single_precision"] = {"precision": "fp32", "samples": 48, "micro_batch": micro}
        run_ranks(start_script, folder / name, world, cases)
    return folder


def states(folder: Path, layout: str, case: str) -> list[State]:
    world, _ = LAYOUTS[layout]
    return [torch.load(folder / layout / f"{case}-{rank}.pt", weights_only=True) for rank in range(world)]


def losses(folder: Path, layout: str, case: str) -> list[float]:
    return [line["loss"] for line in Store(folder / layout / "rank0").run(case).metrics()]


def assert_close(one: State, other: State, rtol: float) -> None:
    for part in ("towers", "method"):
        assert one[part].keys() == other[part].keys()
        for name, x in one[part].items():
            finite = x.double().nan_to_num(0.0, 0.0, 0.0)
            atol = rtol * (float(finite.abs().max()) if x.numel() else 0.0)
            torch.testing.assert_close(
                other[part][name], x, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.mark.promise("ranks and micro-batches give the parameters of one process: 1e-9 in fp64 over five steps")
@pytest.mark.parametrize("layout", ["micro", "two", "three"])
@pytest.mark.parametrize("method", METHODS)
def test_ranks_and_micro_batches_give_the_single_process_result(layouts: Path, method: str, layout: str) -> None:
    (one,) = states(layouts, "one", method)
    for other in states(layouts, layout, method):
        assert_close(one, other, rtol=1e-9)
    assert losses(layouts, layout, method) == pytest.approx(losses(layouts, "one", method), rel=1e-9)
    assert len(set(losses(layouts, "one", method))) == 5, "the weights did not move"


@pytest.mark.parametrize("layout", ["micro", "two", "three"])
def test_heads_on_stored_features_give_the_single_process_result(layouts: Path, layout: str) -> None:
    (one,) = states(layouts, "one", "stored")
    for other in states(layouts, layout, "stored"):
        assert_close(one, other, rtol=1e-9)
    assert any(name.startswith("text.layers") for name in one["towers"]), "no head was trained"


@pytest.mark.parametrize("layout", ["micro", "two", "three"])
def test_activations_made_again_give_the_single_process_result(layouts: Path, layout: str) -> None:
    (one,) = states(layouts, "one", "recompute")
    for other in states(layouts, layout, "recompute"):
        assert_close(one, other, rtol=1e-9)


@pytest.mark.promise("the state of a method is the same on every rank, bit for bit")
@pytest.mark.parametrize("layout", ["two", "three"])
@pytest.mark.parametrize("method", METHODS)
def test_method_state_is_bit_identical_between_ranks(layouts: Path, method: str, layout: str) -> None:
    first, *others = states(layouts, layout, method)
    for other in others:
        for name, x in first["method"].items():
            torch.testing.assert_close(other["method"][name], x, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("layout", ["micro", "two", "three"])
def test_single_precision_agrees_over_one_step(layouts: Path, layout: str) -> None:
    (one,) = states(layouts, "one", "single_precision")
    for other in states(layouts, layout, "single_precision"):
        assert_close(one, other, rtol=1e-5)
    assert losses(layouts, layout, "single_precision") == pytest.approx(
        losses(layouts, "one", "single_precision"), 1e-5
    )
