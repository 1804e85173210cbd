"""Fine-tuning: one start for all rows, weights averaged with it (WiSE-FT), and the row that a method holds beside."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.console.progress import Progress
from bench.errors import UserError
from bench.launch.execute import execute_run
from bench.planning.planner import plan
from bench.store import RunStore, Store, writing
from bench.suite.run import Run, run_of_settings
from bench.suite.suite import Suite, load_suite
from bench.training.inputs import InputsReader
from bench.training.job import build_model

SUITE = """\
name: tuned
noise: {rates: [0.4]}
budget: {samples: 64}
budget_rule: additional
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [retrieval]}
start: START
methods:
  - {method: clip, label: zero-shot, untrained: true}
  - clip
  - {method: clip, label: averaged, average_with_start: 0.25}
  - {method: clip, label: "averaged, own", average_with_start: 0.5, lr: 2.0e-3}
  - {method: osa, reference: zero-shot}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the suite, and with drawn weights that it starts from."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "tuned.yaml").write_text(SUITE.replace("START", str(folder / "start.safetensors")))
    run = replace(load_suite(folder / "tuned.yaml").cells()[0], seed=5)
    towers, method = build_model(run, InputsReader().inputs(run))
    parts = (("towers", towers.state_dict()), ("method", method.state_dict()))  # type: ignore[attr-defined]
    save_file({f"{part}.{name}": x for part, own in parts for name, x in own.items()}, folder / "start.safetensors")
    return folder


@pytest.fixture(scope="module")
def suite(folder: Path) -> Suite:
    from bench import hashing

    hashing.weights_identity.cache_clear()
    return load_suite(folder / "tuned.yaml")


@pytest.fixture(scope="module")
def stored(folder: Path, suite: Suite) -> dict[str, tuple[Run, RunStore]]:
    """Every run of the suite, executed, by its label."""
    store = Store(folder / "out")
    done = {}
    for one in plan(suite.runs(), store):
        with writing(store.run(one.id)) as out:
            execute_run(one, store, out, Progress(io.StringIO()), lambda: False)
        done[one.run.label] = (one.run, store.run(one.id))
    return done


def test_every_row_has_the_suites_start_and_shares_its_run(suite: Suite) -> None:
    cells = {run.label: run for run in suite.cells()}
    assert len({run.start for run in cells.values()}) == 1
    assert cells["averaged"].reference is not None
    assert cells["averaged"].reference.key == cells["clip"].key, "the row is trained once"
    assert cells["averaged, own"].reference.train.lr == 2.0e-3  # type: ignore[union-attr]
    assert cells["osa"].reference.key == cells["zero-shot"].key  # type: ignore[union-attr]
    assert {run.budget.value for run in cells.values()} == {64}
    assert len(suite.runs()) == 6, "five rows, and the training of the last average"


def test_weights_are_the_interpolation(folder: Path, stored: dict[str, tuple[Run, RunStore]]) -> None:
    start, final = load_file(folder / "start.safetensors"), load_file(stored["clip"][1].path("weights-100.safetensors"))
    own = load_file(stored["averaged"][1].path("weights-100.safetensors"))
    assert own.keys() == final.keys()
    for name, x in own.items():
        between = torch.lerp(final[name], start[name], 0.25) if x.is_floating_point() else final[name]
        assert torch.equal(x, between), name
    moved = [name for name in own if not torch.equal(own[name], final[name])]
    assert "method.scale.rho" in moved
    assert len(moved) > 10
    assert stored["zero-shot"][1].records()[0].value != stored["averaged"][1].records()[0].value


def test_it_is_evaluated_without_a_step_and_charged_with_the_training(stored: dict[str, tuple[Run, RunStore]]) -> None:
    out = stored["averaged"][1]
    ledger, trained = out.ledger(), stored["clip"][1].ledger()
    assert ledger["planned"]["steps"] == ledger["samples"] == 0
    assert ledger["reference"]["flops"] == trained["flops"] > 0
    assert not ledger["over_budget"]
    assert {one.task for one in out.records()} == {"retrieval"}
    again = run_of_settings(out.settings(), out.path("settings.json"))
    assert (again.average, again.steps) == (0.25, False)
    assert "average" not in stored["clip"][0].content()


def test_a_method_holds_the_untrained_row_beside(folder: Path, stored: dict[str, tuple[Run, RunStore]]) -> None:
    beside = stored["osa"][1].settings()["address"]["reference"]
    assert beside == stored["zero-shot"][1].id
    start, held = load_file(folder / "start.safetensors"), stored["zero-shot"][1].path("weights-100.safetensors")
    assert all(torch.equal(x, start[name]) for name, x in load_file(held).items())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("start: START", "start: null", r"average_with_start: averages with the initial weights; give"),
        (
            "label: averaged,",
            "label: averaged, untrained: true,",
            "an untrained entry has nothing to average; omit one",
        ),
        ("average_with_start: 0.25", "average_with_start: 1.0", "average_with_start: 1.0 should be less than 1"),
        (
            "clip, label: averaged,",
            "osa, label: averaged,",
            "average_with_start: averaged averages weights of a run that",
        ),
        (
            "average_with_start: 0.25",
            "average_with_start: 0.2, keep: {kind: score, share: 0.6}",
            "itself needs a run of clip",
        ),
        ("{samples: 64}", "{device_seconds: 5}", "the entry takes no training step, but a budget of device_seconds"),
        (
            "reference: zero-shot",
            "reference: zeroshot",
            "reference: unknown label 'zeroshot'; did you mean 'zero-shot'",
        ),
        (
            "osa, reference: zero-shot",
            "dcl, reference: clip",
            "reference: dcl needs no run of another entry, and clip is a",
        ),
        (
            "  - clip\n",
            "  - clip\n  - {method: osa, label: b, reference: osa}\n",
            "osa starts from, or holds a copy of, a run of clip",
        ),
    ],
)
def test_what_cannot_be_is_one_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in SUITE
    (tmp_path / "tuned.yaml").write_text(SUITE.replace(old, new))
    with pytest.raises(UserError, match=message) as error:
        load_suite(tmp_path / "tuned.yaml")
    assert "tuned.yaml:" in str(error.value)
