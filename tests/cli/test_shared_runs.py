"""Two suites of different evaluation protocols share real runs: verbs agree on which numbers there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.planning import planner
from bench.planning.outcomes import is_complete
from bench.store import Store
from bench.suite.suite import load_suite

from ..command import call_bench
from ..reports import stores

SUITE = """\
name: %s
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [retrieval], protocol: %s}
methods: [clip, sogclr]
"""


def bench(folder: Path, verb: str, name: str, *more: str) -> str:
    return call_bench(verb, folder / f"{name}.yaml", *more, "--results", folder / "out")


def complete(folder: Path, name: str) -> set[bool]:
    store = Store(folder / "out")
    return {is_complete(one, store) for one in planner.plan(load_suite(folder / f"{name}.yaml").runs(), store)}


def states(folder: Path, name: str) -> list[str]:
    return [line.split()[-1] for line in bench(folder, "status", name).splitlines() if line.startswith("total")]


@pytest.fixture(autouse=True)
def _without_figures() -> Iterator[None]:
    with stores.without_figures():
        yield


def test_a_suite_sees_what_was_measured_under_its_own_protocol(tmp_path: Path) -> None:
    for name, protocol in (("first", "common"), ("second", "nuclr")):
        (tmp_path / f"{name}.yaml").write_text(SUITE % (name, protocol))
    assert "runs: 2 done" in bench(tmp_path, "run", "first")
    first = bench(tmp_path, "compare", "first", "clip", "sogclr")
    assert "retrieval emoji/iid mean recall" in first
    assert "note:" not in first

    assert "trained" in bench(tmp_path, "run", "second", "--dry-run")
    bench(tmp_path, "run", "second", "--plan-only")
    assert (complete(tmp_path, "first"), complete(tmp_path, "second")) == ({True}, {False})
    assert (states(tmp_path, "first"), states(tmp_path, "second")) == (["done"], ["trained"])
    bench(tmp_path, "report", "second")
    page, table = ((tmp_path / "out" / "second" / file).read_text() for file in ("report.html", "tables/retrieval.csv"))
    assert "stored under common 1" in page
    assert table.count("missing") > 2
    assert len((tmp_path / "out" / "second" / "records.csv").read_text().splitlines()) == 1, "the heading alone"
    compared = bench(tmp_path, "compare", "second", "clip", "sogclr")
    assert "note: Missing under this suite's evaluation protocol, nuclr 1, but stored under common 1" in compared

    assert "runs: 2 done" in bench(tmp_path, "run", "second")
    assert (complete(tmp_path, "first"), complete(tmp_path, "second")) == ({True}, {True})
    assert "note:" not in bench(tmp_path, "compare", "second", "clip", "sogclr")
    assert bench(tmp_path, "compare", "first", "clip", "sogclr") == first
    for name in ("first", "second"):
        assert states(tmp_path, name) == ["done"]
        assert "nothing to do" in bench(tmp_path, "run", name)
        assert "missing" not in (tmp_path / "out" / name / "tables" / "retrieval.csv").read_text()
    (run, *_) = Store(tmp_path / "out").runs()
    said = [(one["name"], one["protocol"]) for one in run.diagnostics() if one["source"] == "evaluation"]
    assert said == [("similarity", "1"), ("similarity", "nuclr-1")]
