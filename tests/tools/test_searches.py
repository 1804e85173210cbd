"""The tools that chose the comparison's towers, headline and budget."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bench import run_suite
from bench.catalogue.tower_families import TOWER_FAMILIES
from bench.store import Store
from reports.statistics.power import detectable

TOOLS = Path(__file__).parents[2] / "tools"
SUITE = """\
name: pilot
noise: {rates: [0.4]}
seeds: [0, 1]
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [retrieval]}
methods: [clip, {method: clip, label: oracle, keep: oracle}]
"""


def test_every_candidate_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TOWER_FAMILIES, "_entries", dict(TOWER_FAMILIES._entries))
    tool = runpy.run_path(str(TOOLS / "tower_search.py"))
    tool["add_candidates"]()
    images = TOWER_FAMILIES["candidates"].image
    assert images is not None
    for name in images.names():
        tower = images.build(name, images.config(name, 32, 16), 16)
        assert tower(torch.zeros(2, 3, 32, 32)).shape == (2, 16)


def test_a_search_prints_costs_and_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], search: Callable[..., None]
) -> None:
    few = ("--steps", "2", "--seeds", "0", "--batch", "16", "--rounds", "1")
    search("--results", str(tmp_path), "--image", "test_resnet", *few)
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["towers", "MFLOP", "steps", "cost", "clip", "oracle", "gap", "sd"]
    price, steps, cost, clip, oracle, gap, spread = map(float, line.split()[1:])
    assert price == pytest.approx(10.74, abs=0.01)
    assert steps == round(2 / cost)
    assert oracle - clip == pytest.approx(gap, abs=0.02)
    assert spread != spread  # one seed has none


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(TOWER_FAMILIES, "_entries", dict(TOWER_FAMILIES._entries))

    def call(*arguments: str) -> None:
        monkeypatch.setattr("sys.argv", ["tower_search.py", *arguments])
        runpy.run_path(str(TOOLS / "tower_search.py"), run_name="__main__")

    return call


def test_headlines_are_measured_on_validation_and_told_by_their_resolution(tmp_path: Path) -> None:
    (tmp_path / "pilot.yaml").write_text(SUITE)
    store = Store(tmp_path / "results")
    run_suite(tmp_path / "pilot.yaml", store.root, jobs=1)
    tool = runpy.run_path(str(TOOLS / "headlines.py"))
    title, *lines = tool["lines"](store, "pilot", 10)
    assert title.startswith("pilot: 4 runs of ")
    assert len(lines) == 7
    plan = store.plan("pilot")
    assert plan is not None
    values = {
        (cell["method"], cell["seed"]): tool["measured"](store, cell["run"])["retrieval mean recall"]
        for cell in plan["cells"]
    }
    gaps = [values["oracle", seed] - values["clip", seed] for seed in (0, 1)]
    shown = detectable(10) * abs(gaps[0] - gaps[1]) / 2**0.5
    (line,) = [line for line in lines if "retrieval mean recall" in line]
    assert f"gap {sum(gaps) / 2:8.4f}" in line
    assert f"shown by 10: {shown:8.4f}" in line
