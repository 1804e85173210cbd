"""A small finished store with a file of every kind, made once in a session; tests change copies of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.store import Store, jobs

from ..command import call_bench

SUITE = """\
name: hostile
noise: {rates: [0.4]}
budget: {samples: 48}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot], curve: [0.5]}
methods: [clip, sogclr]
"""


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of three steps, their report, an evaluated checkpoint, trials, a calibration and a note on a job."""
    root = tmp_path_factory.mktemp("hostile") / "results"
    root.with_name("hostile.yaml").write_text(SUITE)
    suite = root.with_name("hostile.yaml")
    call_bench("run", suite, "--results", root)
    store = Store(root)
    first, second = store.runs()
    call_bench("eval", first.path("weights-050.safetensors"), "--suite", suite, "--results", root)
    store.name_trials("hostile", [second.id])
    jobs.note_job(first, "17", root / "x.log")
    (root / "calibrations").mkdir()
    (root / "calibrations" / "x.json").write_text(json.dumps({"train": 0.25}))
    return root
