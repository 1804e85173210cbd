"""The row that others are compared with is the suite's word, and no code of the harness names it."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

import pytest

from bench.errors import UserError
from bench.models.evaluate_checkpoint import describe_checkpoint
from bench.store import Damaged, Store
from bench.suite.suite import load_suite
from reports.results import load
from reports.tables.suite_tables import relative_cost

from ..command import call_bench

SUITE = """\
name: based
noise: {rates: [0.0]}
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot]}
methods:
  - siglip
  - {method: clip, label: cold, config: {temperature: 0.5}}
  - {method: clip, label: warm}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "based.yaml"
    file.write_text(SUITE)
    return file


@pytest.mark.parametrize(
    ("given", "row"),
    [(None, "cold"), ("warm", "warm"), ("siglip", "siglip"), ("clip", "cold"), ("sogclr", "siglip")],
)
def test_a_baseline_is_a_label_or_else_a_method_or_else_the_first_row(path: Path, given: str | None, row: str) -> None:
    suite = load_suite(path, [f"baseline={given}"] if given else [])
    assert suite.baseline_row == row


def test_an_unknown_baseline_names_the_nearest_word(path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_suite(path, ["baseline=wram"])
    assert str(caught.value) == (
        "--set baseline=wram: baseline: 'wram' is neither a label of this suite nor a method; did you mean 'warm'?"
    )


def test_reports_read_the_baseline_from_the_plan(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    call_bench("run", path, "--results", out, "--plan-only", "--set", "baseline=warm")
    store = Store(out)
    results = load("based", store)
    assert results.plan["baseline"] == results.baseline == "warm"
    assert relative_cost(results).column.label == "FLOPs / warm's"
    assert "\nSigLIP against warm: " in call_bench("compare", "based", "siglip", "--results", out)
    file = out / "based" / "plan.json"
    old = json.loads(file.read_text())
    del old["baseline"]
    store.write_plan("based", old)
    with pytest.raises(Damaged, match=r"plan\.json: baseline: is missing"):
        load("based", store)


def test_a_file_of_weights_is_read_by_the_baseline(path: Path, tmp_path: Path) -> None:
    weights = tmp_path / "some.pt"
    weights.write_bytes(b"weights")
    suite = load_suite(path, ["baseline=siglip"])
    assert describe_checkpoint(weights, suite, None).run.method == "siglip"
    assert describe_checkpoint(weights, load_suite(path), None).run.method == "clip"


def test_no_code_of_the_harness_names_the_baseline() -> None:
    """But the default of a suite's key, and modules that are about one method: oracles and the template."""
    found = []
    for package in ("bench", "reports"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        for file in sorted(Path(spec.submodule_search_locations[0]).rglob("*.py")):
            if {"oracles", "templates"}.isdisjoint(file.parts):
                found += [
                    f"{package}/{file.name}:{node.lineno}"
                    for node in ast.walk(ast.parse(file.read_bytes()))
                    if isinstance(node, ast.Constant) and node.value == "clip"
                ]
    assert [one.partition(":")[0] for one in found] == ["bench/suite.py"]
