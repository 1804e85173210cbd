"""Ids of runs stay: those of every shipped suite as far as its settings give them, and whole ones on embedded data."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from bench.hashing import digest
from bench.planning.planner import plan
from bench.store import Store
from bench.suite.suite import Suite, load_suite

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"
#: as they were at commit f2817d5 ("keys" of the five tuned comparisons, and "ids": since their rows say what trials
#: chose; quickstart, features_filters, features_regimes, emoji_regimes: since they have their seeds): "keys", suite ->
#: digest of the keys of its runs; "ids", committed comparison on embedded data -> digest of the ids of the runs of its
#: first seed
EXPECTED = json.loads(Path(__file__).with_name("run_ids.json").read_text())


def suites() -> list[str]:
    found = (*(ROOT / "suites").glob("*.yaml"), *REFERENCE.glob("*/suite.yaml"))
    return sorted(str(path.relative_to(ROOT)) for path in found)


def committed_suite(name: str) -> Suite:
    """A committed comparison has a suite of its own, or one that is shipped."""
    own = REFERENCE / name / "suite.yaml"
    return load_suite(own if own.is_file() else ROOT / "suites" / f"{name}.yaml")


def test_every_suite_has_its_keys() -> None:
    """A key covers all that the settings say; ids add the hashes of data, noise and adapters."""
    assert {name: digest(sorted(run.key for run in load_suite(ROOT / name).runs())) for name in suites()} == (
        EXPECTED["keys"]
    )


@pytest.mark.promise("the ids of the runs of all shipped suites are the committed ones")
@pytest.mark.parametrize("name", EXPECTED["ids"])
def test_runs_on_embedded_data_have_their_ids(name: str, tmp_path: Path) -> None:
    suite = committed_suite(name)
    planned = plan([run for run in suite.runs() if run.seed == min(suite.seeds)], Store(tmp_path))
    assert digest(sorted({one.id for one in planned})) == EXPECTED["ids"][name]
    with tarfile.open(REFERENCE / name / "runs.tar.xz") as archive:
        committed = {Path(one).parts[1] for one in archive.getnames() if one.startswith("runs/")}
    labels = {entry.label for entry in suite.methods}
    assert {one.id for one in planned if one.run.label in labels} <= committed, "the archive holds every row's run"
