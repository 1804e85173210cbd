"""A run is rebuilt from its settings.json to the same identity, and what is no such file is named."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from bench.errors import UserError
from bench.models.stored_run import load_run
from bench.store import Store, writing
from bench.suite.run import Run, run_of_settings
from bench.suite.suite import load_suite

SUITE = """\
name: stored
data: {size: 64, keep: {kind: random, share: 0.5}, keep_rule: passes}
noise: {rates: [0.0, 0.4]}
seeds: [3]
budget: {epochs: 0.25}
towers: {label: small, dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, lr: 2.0e-3, warmup_steps: 3, final_lr: 1.0e-5, micro_batch: 16, precision: bf16}
evaluate: {tasks: [zero_shot, retrieval], curve: [0.5], protocol: nuclr}
methods:
  - {method: clip, preset: paper, config: {temperature: 0.1}}
  - {method: sogclr, label: mine, lr: 1.0e-3, keep: {kind: trusted, rows: 40}}
"""


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    (tmp_path / "stored.yaml").write_text(SUITE)
    return load_suite(tmp_path / "stored.yaml").runs()


def stored(run: Run) -> dict[str, Any]:
    """As a store gives it back."""
    return json.loads(json.dumps(run.settings()))


def test_a_run_of_its_settings_is_the_same_run(runs: list[Run], tmp_path: Path) -> None:
    assert len(runs) == 4
    for run in runs:
        again = run_of_settings(stored(run), tmp_path / "settings.json")
        assert again.key == run.key
        assert (again.title, again.preset, again.evaluate) == (run.title, run.preset, run.evaluate)
        assert (again.train, again.towers, again.budget) == (run.train, run.towers, run.budget)
        assert stored(again) == stored(run), "and is stored alike"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": "gone"}, "was trained with the method 'gone'; give the file that defines it: --plugin FILE"),
        ({"seed": ...}, "KeyError: 'seed'"),
        ({"towers": {"width": 3}}, "ValidationError: "),
        ({"budget": {"kind": "hours", "value": 3}}, "ValidationError: "),
        ({"noise": None}, "TypeError: "),
    ],
)
def test_what_is_no_runs_settings_is_named_in_one_line(
    runs: list[Run], tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    broken = copy.deepcopy(stored(runs[0]))
    for key, value in change.items():
        broken.pop(key)
        if value is not ...:
            broken[key] = value
    path = tmp_path / "settings.json"
    with pytest.raises(UserError) as caught:
        run_of_settings(broken, path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_without_weights_says_that_its_suite_trains_it(runs: list[Run], tmp_path: Path) -> None:
    store = Store(tmp_path / "my results")
    with writing(store.run("ab" * 32)) as writer:
        writer.write_settings(stored(runs[0]))
    said = r"run abababababababab has no final weights \(missing\); run the suite that it comes from: bench run SUITE"
    with pytest.raises(UserError, match=said):
        load_run(store, "ab")
