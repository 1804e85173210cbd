"""A plan remembers the seeds that were added when results existed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.planning import plan_file
from bench.planning.planner import Planner
from bench.store import Store, writing
from bench.suite.suite import load_suite
from reports.results import load
from reports.tables.footnotes import context

SUITE = """\
name: looked
noise: {rates: [0.0, 0.4]}
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot]}
methods: [clip]
"""
NOISY = "40 % shuffled captions"


@pytest.mark.promise("no silent second look: seeds added after results existed are named below every table")
def test_seeds_added_after_results_are_remembered_and_said(tmp_path: Path) -> None:
    store, file = Store(tmp_path / "out"), tmp_path / "looked.yaml"
    file.write_text(SUITE)

    def added(seeds: str) -> object:
        plan_file.write_plan(load_suite(file, [f"seeds={seeds}"]), {}, Planner(store))
        return (store.plan("looked") or {}).get("added")

    assert added("[0, 1]") is None
    assert added("[0, 1, 2]") is None  # nothing was known yet
    cell = next(one for one in store.plan("looked")["cells"] if (one["noise"], one["seed"]) == (NOISY, 1))
    with writing(store.run(cell["run"])) as out:
        out.set_status("done", step=2, steps=2, stage="train")
    assert added("[0, 1, 2]") is None  # planned before
    assert added("[5, 0, 1, 2]") == [[NOISY, 5]]  # no clean run is done
    assert added("[5, 0, 1, 2, 3]") == [[NOISY, 5], [NOISY, 3]]
    assert added("[0, 1, 2, 3]") == [[NOISY, 3]]
    (note,) = [one for one in context(load("looked", store)) if one.startswith("Added after results")]
    assert note.endswith(f": {NOISY}, seed 3.")
