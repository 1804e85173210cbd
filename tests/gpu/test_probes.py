"""Probes on a device: features wait in host memory, in whole or in chunks, and the answers are the CPU's."""

from __future__ import annotations

import pytest
import torch

from bench import data
from bench.adapters import hyperparameters
from bench.evaluation import probe
from bench.evaluation.features import extract_images
from bench.evaluation.logistic import Labelled, streamed
from bench.suite.settings import TowerSettings
from bench.towers.build import build_towers
from bench.towers.tokenization import SmallVocabulary
from methods.protocol import Facts

CPU = torch.device("cpu")


def splits() -> tuple[Labelled, Labelled]:
    """Ten classes around centres, 600 rows to train and 200 to validate, in host memory."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(800) % 10
    features = torch.randn(800, 24, generator=draws) + torch.randn(10, 24, generator=draws)[labels]
    both = Labelled(features, labels)
    return both.select(torch.arange(800) < 600), both.select(torch.arange(800) >= 600)


@pytest.mark.parametrize("bound", [0, probe.MAX_SWEEP_BYTES], ids=["streamed", "held"])
def test_a_sweep_on_a_device_answers_as_on_the_cpu(
    bound: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, validation = splits()
    expected = probe.sweep_probe(train, validation, 10, CPU)
    monkeypatch.setattr(probe, "MAX_SWEEP_BYTES", bound)
    monkeypatch.setattr(streamed, "CHUNK_BYTES", 50_000)
    found = probe.sweep_probe(train, validation, 10, device)
    assert found.solution.weight.device.type == device.type
    assert (found.correct(validation) == expected.correct(validation)).mean() > 0.98


def test_chunks_travel_to_the_device(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    train, validation = splits()
    monkeypatch.setattr(streamed, "CHUNK_BYTES", 50_000)
    expected, found = (streamed.StreamedProblem([train, validation], 10, place).fit(1.0) for place in (CPU, device))
    assert found.weight.device.type == device.type
    torch.testing.assert_close(found.weight.cpu(), expected.weight, atol=5e-3, rtol=5e-3)


def test_cyclips_probe_runs_on_a_device(device: torch.device) -> None:
    train, validation = splits()
    assert probe.adamw_probe(train, validation, 10, epochs=2, device=device).mean() > 0.8


def test_features_of_probes_are_in_host_memory_and_others_on_the_device(device: torch.device) -> None:
    towers = build_towers(TowerSettings(dim=32), SmallVocabulary(["a cat"], 64, 8), 32, 128).to(device)
    method, pairs = (
        hyperparameters.make_method("clip", None, {}, Facts(32, 16, 32, 0)),
        data.load_dataset("emoji/validation", 32),
    )
    rows = torch.arange(4).numpy()
    assert extract_images(method, towers, pairs, rows=rows)["embedding"].device.type == device.type
    assert extract_images(method, towers, pairs, "pooled", rows)["pooled"].device == CPU
    assert extract_images(method, towers, pairs, "projected", rows)["projected"].device == CPU
