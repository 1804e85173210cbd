"""Where two trainings left other bytes, the check says where; gradients are compared within their tolerance alone."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save_file
from torch import Tensor

from bench.checks import training
from bench.checks.subject import Failed
from bench.checks.trainings import pack_tensors
from bench.store import RunStore

LINES = [{"step": step, "loss": 2.0 - step} for step in range(3)]
TENSORS = {"a": torch.zeros(2), "b": torch.ones(3)}


def left(folder: Path, lines: list[str], tensors: dict[str, Tensor]) -> RunStore:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    save_file(tensors, folder / "weights-100.safetensors")
    return RunStore(folder)


METRICS = [json.dumps(line) for line in LINES]


@pytest.mark.parametrize(
    ("lines", "tensors", "message"),
    [
        (METRICS[:2], TENSORS, "metrics.jsonl has other bytes"),
        ([*METRICS, METRICS[0]], TENSORS, "metrics.jsonl has other bytes"),
        ([], TENSORS, "metrics.jsonl has other bytes"),
        ([METRICS[0], METRICS[1].replace("1.0", "1.5")], TENSORS, "metrics.jsonl has other bytes, from step 1 on"),
        ([line.replace(" ", "") for line in METRICS], TENSORS, "metrics.jsonl has other bytes"),
        (METRICS, {**TENSORS, "b": -TENSORS["b"]}, "weights-100.safetensors has other bytes: b"),
        (METRICS, {**TENSORS, "a": -TENSORS["a"]}, "weights-100.safetensors has other bytes: a"),
        (METRICS, {**TENSORS, "c": torch.ones(1)}, "weights-100.safetensors has other bytes: c"),
        (METRICS, {"a": TENSORS["a"]}, "weights-100.safetensors has other bytes: b"),
    ],
)
def test_other_bytes_are_said_as_they_are(
    tmp_path: Path, lines: list[str], tensors: dict[str, Tensor], message: str
) -> None:
    expected = left(tmp_path / "expected", METRICS, TENSORS)
    training._same_bytes("resumed", left(tmp_path / "same", METRICS, TENSORS), expected)
    with pytest.raises(Failed) as caught:
        training._same_bytes("resumed", left(tmp_path / "other", lines, tensors), expected)
    assert str(caught.value) == f"resumed: {message}"


def test_what_is_packed_comes_back() -> None:
    tensors = {"a": torch.rand(2, 3), "n": torch.tensor(4), "b": torch.rand(()), "none": torch.zeros(0, 2)}
    packed = pack_tensors({**tensors, "a": tensors["a"].T.contiguous().T})
    tensors["a"].zero_()
    back = load(packed)
    assert {name: (x.shape, x.dtype) for name, x in back.items()} == {n: (x.shape, x.dtype) for n, x in tensors.items()}
    assert bool((back["a"] != 0).any()), "a copy"
    assert torch.equal(back["b"], tensors["b"])
    assert load(pack_tensors({})) == {}


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({}, False),
        ({"small": [1e-3 + 9e-10] * 2}, False),  # within the tolerance of the largest gradient
        ({"large": [1.0, 3.0 + 8e-9]}, False),  # within its own, its tensor's and the largest together
        ({"large": [1.0, 3.0 + 1e-8]}, True),
        ({"small": [1e-3 + 4e-9] * 2}, True),
        ({"small": [1e-3, math.nan]}, True),
        ({"small": [1e-3] * 3}, True),
    ],
)
def test_a_gradient_is_compared_relative_to_itself_and_the_largest(change: dict[str, list[float]], fails: bool) -> None:
    wanted = {"small": [1e-3] * 2, "large": [1.0, 3.0]}
    actual, expected = (
        pack_tensors({name: torch.tensor(x, dtype=torch.float64) for name, x in one.items()})
        for one in ({**wanted, **change}, wanted)
    )
    arguments = "gradient of {}", actual, expected, 1e-9
    if fails:
        with pytest.raises(Failed, match=f"gradient of {next(iter(change))}: "):
            training._equal_gradients(*arguments)
    else:
        training._equal_gradients(*arguments)
