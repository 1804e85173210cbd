"""Timed steps are kept by what their seconds depend on."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from bench.planning.timing import stored_calibration
from bench.store import Store
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader

SUITE = """
name: timed
data: {name: emoji, size: 32}
budget: {samples: 64}
noise: {rates: [0.0]}
towers: {image: tiny-vit, dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, bn_group: 8, threads: 1}
evaluate: {tasks: [zero_shot]}
methods: [clip]
"""


def test_seconds_of_one_process_do_not_depend_on_how_several_share_the_optimiser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run with a budget in seconds would get another id with `train.shard_optimizer`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # its own lock of the device, which other tests hold too
    (tmp_path / "timed.yaml").write_text(SUITE)
    store, found = Store(tmp_path), []
    for override in ("false", "true"):
        (run,) = load_suite(tmp_path / "timed.yaml", [f"train.shard_optimizer={override}"]).runs()
        found.append(stored_calibration(run, InputsReader().inputs(run), store))
    assert found[0] == found[1]
    assert len([*(tmp_path / "calibrations").iterdir()]) == 1
