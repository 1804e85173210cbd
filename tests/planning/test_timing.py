"""Steps are timed once per store: their seconds enter ids."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

from bench.planning import timing
from bench.store import Store
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader

SUITE = """\
name: timed
data: {name: emoji, size: 32}
noise: {rates: [0.0]}
budget: {device_seconds: 5}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot]}
methods: [clip]
"""


def test_the_threads_of_the_process_before_are_no_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job sets the suite's number: what is timed after it would have another key than what is timed first."""
    monkeypatch.setattr(timing, "CALIBRATION_STEPS", 4)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a lock of its own
    (tmp_path / "timed.yaml").write_text(SUITE)
    (run,) = load_suite(tmp_path / "timed.yaml").cells()
    store, inputs = Store(tmp_path / "out"), InputsReader().inputs(run)
    try:
        torch.set_num_threads(3)
        first = timing.calibrated_seconds(run, inputs, store, keep=True)
        assert torch.get_num_threads() == 1, "as the suite says"
        assert timing.calibrated_seconds(run, inputs, store, keep=True) == first
    finally:
        torch.set_num_threads(1)
    assert len(list((tmp_path / "out" / "calibrations").glob("*.json"))) == 1
