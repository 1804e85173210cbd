"""Several budgets in one suite: runs, blocks, seeds for each rate and budget, ids that stay, mistakes in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import UserError
from bench.planning import plan_file
from bench.suite.suite import Suite, load_suite

SUITE = """\
name: budgets
noise: {rates: [0.0, 0.4], seeds: [[2, 2], [0, 1]]}
seeds: [5, 6]
budget: [{epochs: 10}, {epochs: 40}]
methods: [clip, {method: clip, label: oracle, keep: oracle}, ncu]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "suite.yaml").write_text(SUITE)
    return tmp_path / "suite.yaml"


def counts(suite: Suite) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for run in suite.cells():
        found[run.block, run.seed] = found.get((run.block, run.seed), 0) + 1
    return found


def test_each_budget_has_runs_of_its_own_and_its_own_seeds(path: Path) -> None:
    suite = load_suite(path)
    noisy = "40 % shuffled captions"
    assert counts(suite) == {
        ("clean, 10 epochs", 5): 3, ("clean, 10 epochs", 6): 3, (f"{noisy}, 10 epochs", 5): 3,
        (f"{noisy}, 10 epochs", 6): 3, (f"{noisy}, 40 epochs", 5): 3,
    }  # fmt: skip
    assert {run.budget.value for run in suite.cells() if run.label == "clip"} == {10.0, 40.0}
    assert {run.budget.value for run in suite.cells() if run.label == "ncu"} == {5.0, 20.0}, "half is its reference's"
    blocks = {block["label"]: (block["budget"], block["rate"], block["seeds"]) for block in plan_file._blocks(suite)}
    assert blocks == {
        "clean, 10 epochs": (10.0, 0.0, [5, 6]), f"{noisy}, 10 epochs": (10.0, 0.4, [5, 6]),
        f"{noisy}, 40 epochs": (40.0, 0.4, [5]),
    }  # fmt: skip
    assert plan_file.plan_outline(suite)["budget"]["values"] == [10.0, 40.0]


def test_a_run_of_one_budget_is_the_run_of_a_suite_with_that_budget_alone(path: Path) -> None:
    several = {run.key for run in load_suite(path).runs()}
    alone = [load_suite(path, [f"budget={{epochs: {value}}}", "noise.seeds=[2, 2]"]) for value in (10, 40)]
    assert several < {run.key for suite in alone for run in suite.runs()}
    assert next(run.block for run in alone[0].cells()) == "clean", "a single budget is not in the names of blocks"
    assert alone[0].hash != load_suite(path).hash


def test_trials_have_the_first_budget_alone(path: Path) -> None:
    from bench.planning.tune import trial_suite

    suite = load_suite(path, ["tune={trials: 2}"])
    assert {run.block for run in trial_suite(suite, {entry.label: {0: {}} for entry in suite.methods}, {}).cells()} == {
        "40 % shuffled captions"
    }


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("budget=[{epochs: 1}, {samples: 3}]", "budget.1: is in samples; all budgets of a suite are in one unit"),
        ("budget=[{epochs: 1}, {epochs: 1}]", "budget.1: duplicate budget 1 epochs"),
        ("budget=[{epochs: 1}, {epoch: 3}]", "budget.1.epoch: unknown key; did you mean 'epochs'?"),
        ("budget=[]", "budget: is empty; name a budget such as {epochs: 10}"),
        ("noise.seeds=[[1, 1]]", "noise.seeds: 1 lists for 2 budgets; give one for each"),
        ("noise.seeds=[[1, 1], [1]]", "noise.seeds: 1 counts for 2 rates; give one for each"),
        ("noise.seeds=[[1, 1], [1, 5]]", "noise.seeds.1: 5 should be at most 2, the suite's seeds"),
        ("noise.seeds=[1, [1, 1]]", "noise.seeds: should hold numbers alone, or a list for each budget"),
    ],
)
def test_mistakes_are_one_line(path: Path, override: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        load_suite(path, [override])
    assert str(caught.value).startswith(f"--set {override}: {said}")
