"""A row without a step: it measures the weights that its method begins at, and spends nothing."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bench.console.progress import Progress
from bench.errors import UserError
from bench.launch.execute import execute_run
from bench.planning.planner import plan
from bench.store import RunStore, Store, writing
from bench.suite.run import Run, run_of_settings
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader
from bench.training.job import build_model, prepare_model

SUITE = """\
name: begun
noise: {rates: [0.4]}
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [retrieval, noise_detection]}
methods:
  - {method: clip, label: before, untrained: true}
  - clip
"""


def suite_file(folder: Path, *more: str) -> Path:
    (folder / "begun.yaml").write_text("\n".join((SUITE, *more)))
    return folder / "begun.yaml"


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, RunStore]:
    """The untrained row's run, executed."""
    folder = tmp_path_factory.mktemp("begun")
    run, store = load_suite(suite_file(folder)).cells()[0], Store(folder / "out")
    (one,) = plan([run], store)
    assert one.resolved.steps == one.resolved.flops == 0
    with writing(store.run(one.id)) as out:
        execute_run(one, store, out, Progress(io.StringIO()), lambda: False)
    return run, store.run(one.id)


def test_it_measures_what_it_begins_with(begun: tuple[Run, RunStore]) -> None:
    run, out = begun
    towers, method = build_model(run, InputsReader().inputs(run))
    prepare_model(method, towers, run, torch.device("cpu"), None)
    stored = load_file(out.path("weights-100.safetensors"))
    assert all(torch.equal(x, stored[f"towers.{name}"]) for name, x in towers.state_dict().items())
    assert out.status()["state"] == "done"
    assert {one.task for one in out.records()} == {"retrieval", "noise_detection"}
    similarity = next(one for one in out.diagnostics() if one["name"] == "similarity")
    assert {"positive", "negative", "negative mean", "negative top"} == similarity["series"].keys()


def test_it_spends_nothing(begun: tuple[Run, RunStore]) -> None:
    ledger = begun[1].ledger()
    assert (ledger["flops"], ledger["samples"], ledger["spent_share"], ledger["over_budget"]) == (0, 0, 0, False)
    assert ledger["planned"]["steps"] == 0


def test_it_is_a_run_of_its_own_and_the_default_is_no_part_of_an_id(begun: tuple[Run, RunStore]) -> None:
    run, out = begun
    assert "untrained" not in replace(run, untrained=False).content()
    assert replace(run, untrained=False).key != run.key
    assert run_of_settings(out.settings(), out.path("settings.json")).untrained


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("budget={device_seconds: 5}", "a budget of device_seconds times steps"),
        ("tune={trials: 2, lr: [1.0e-4, 1.0e-3]}", "tune has nothing to choose for it"),
    ],
)
def test_where_it_cannot_be_one_line_says_so(tmp_path: Path, change: str, why: str) -> None:
    with pytest.raises(UserError, match=rf"methods.*untrained: the entry takes no training step, but {why}"):
        load_suite(suite_file(tmp_path), [change])
