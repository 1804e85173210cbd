"""A run's inputs are made once and passed on; a plan holds a summary of them."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

import bench
from bench.errors import UserError
from bench.planning import flops
from bench.planning.planner import plan
from bench.store import Store
from bench.suite.run import Run
from bench.suite.suite import load_suite
from bench.training import inputs
from bench.training.inputs import InputsReader

SUITE = """\
name: tiny
seeds: [0, 1]
noise: {rates: [0.4]}
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot, noise_detection]}
methods: [clip, sogclr]
"""


def runs_of(folder: Path, *overrides: str) -> list[Run]:
    (folder / "tiny.yaml").write_text(SUITE)
    return load_suite(folder / "tiny.yaml", overrides).runs()


def test_a_suite_makes_each_runs_inputs_once_to_plan_and_once_to_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[tuple[int, str]] = Counter()
    readers: list[InputsReader] = []
    learned: list[Any] = []
    make, learn = InputsReader.inputs, inputs.SmallVocabulary

    def counted(reader: InputsReader, run: Run) -> Any:
        if reader not in readers:
            readers.append(reader)
        made[readers.index(reader), run.title] += 1
        return make(reader, run)

    def learned_once(*arguments: Any) -> Any:
        learned.append(arguments)
        return learn(*arguments)

    monkeypatch.setattr(flops, "_steps", {})  # else a test before this one may have counted the same steps
    monkeypatch.setattr(flops, "_towers", {})
    monkeypatch.setattr(inputs, "_learned", WeakKeyDictionary())  # nor learned the same vocabulary
    monkeypatch.setattr(InputsReader, "inputs", counted)
    monkeypatch.setattr(inputs, "SmallVocabulary", learned_once)
    runs = runs_of(tmp_path)
    assert len(bench.run_suite(tmp_path / "tiny.yaml", tmp_path / "out").done) == len(runs) == 4
    assert made == {(reader, run.title): 1 for reader in range(2) for run in runs}
    assert [len(reader._noise) for reader in readers] == [2, 2], "the methods share a seed's noise"
    assert len(learned) == 1, "and all runs of a process share a vocabulary"


def test_runs_with_the_same_data_and_noise_share_them(tmp_path: Path) -> None:
    clip, other_seed, sogclr, _ = sorted(runs_of(tmp_path), key=lambda run: (run.method, run.seed))
    reader = InputsReader()
    first, same, different = (reader.inputs(run) for run in (clip, sogclr, other_seed))
    assert first.pairs is same.pairs is different.pairs
    assert first.noise is same.noise
    assert first.summary().manifest_hash != different.summary().manifest_hash
    assert InputsReader().inputs(clip).noise is not first.noise, "nothing is kept beside the reader"


def test_a_planned_run_travels_without_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(
        runs_of(tmp_path, "data.keep={kind: random, share: 0.5}", "methods=[clip]", "seeds=[0]"),
        Store(tmp_path / "out"),
    )

    def refuse(*_: Any) -> None:
        raise AssertionError("a planned run reads no data")

    (one,) = planned
    keys = one.evaluation_keys()
    monkeypatch.setattr("bench.data.source.EmbeddedSource.pairs", refuse)
    sent = pickle.dumps(one)
    assert len(sent) < 10_000
    received = pickle.loads(sent)
    assert received == one
    assert received.evaluation_keys() == keys
    assert any("noise_detection" in key for key in keys)
    assert received.manifest.corrupted == round(0.4 * received.inputs.rows)
    assert received.inputs.seen == pytest.approx(received.inputs.rows / 2, abs=1)


def test_a_model_is_built_without_the_file_of_its_noise(tmp_path: Path) -> None:
    file = tmp_path / "noise.npy"
    rows = len(InputsReader().inputs(runs_of(tmp_path)[0]).pairs)
    index = np.arange(rows)
    index[: rows // 2] = np.roll(index[: rows // 2], 1)
    np.save(file, index)
    run = runs_of(tmp_path, "noise.kind=imported", "noise.rates=[0.5]", f"noise.files=[{file}]")[0]
    file.unlink()
    assert InputsReader().for_model(run).facts.rows == rows
    with pytest.raises(UserError, match=r"noise\.npy"):
        InputsReader().inputs(run)
