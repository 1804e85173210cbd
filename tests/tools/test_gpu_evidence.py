"""tools/gpu_evidence.py: steps that fail are written down, what is there stays, the page says if there was a GPU."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import bench
from bench import resources
from bench.errors import UserError
from bench.store import Store
from bench.store.pack import ARCHIVE, pack
from reports.reference.claims import read_claims
from reports.reference.render import comparisons, summary

PATH = Path(__file__).parents[2] / "tools" / "gpu_evidence.py"
SUITE = """\
name: tiny
noise: {kind: shuffled_captions, rates: [0.4]}
seeds: [0, 1, 2]
budget: {samples: 128}
towers: {dim: 32, vocabulary: 256}
train: {batch: 64, threads: 1}
evaluate: {tasks: [zero_shot], headline: zero_shot, curve: []}
tune: {trials: 2, budget: {samples: 64}, rate: 0.4, lr: [1.0e-3, 1.6e-2]}
methods: [clip, siglip]
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_evidence", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_evidence"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def evidence(tool: ModuleType, tmp_path: Path) -> Any:
    (tmp_path / "evidence").mkdir()
    return tool.Evidence(tmp_path / "evidence")


def one(step: Callable[[], dict[str, Any]]) -> dict[str, dict[str, Callable[[], dict[str, Any]]]]:
    return {"part": {"step": step}}


def test_a_step_that_fails_costs_itself_alone(tool: ModuleType, evidence: Any) -> None:
    def broken() -> dict[str, object]:
        raise RuntimeError("the card <fell> out")

    rows = [{"runs at a time": 1, "seconds": 1.25}]
    found = tool.gather(evidence, {"broken": {"all": broken}, "whole": {"all": lambda: {"rows": rows}}})
    assert found["parts"]["broken"]["all"]["error"] == "RuntimeError: the card <fell> out"
    assert found["parts"]["whole"]["all"]["rows"] == rows
    assert tool.failed(found)
    assert json.loads((evidence.folder / "evidence.json").read_text()) == found
    text = (evidence.folder / "evidence.html").read_text()
    assert "the card &lt;fell&gt; out" in text
    assert "<td>1.25</td>" in text
    assert ("No GPU on this machine" in text) == (not torch.cuda.is_available())


def test_a_failed_test_is_a_failure_and_a_clean_one_is_none(tool: ModuleType) -> None:
    part = {"passed": 3, "skipped": 1, "failed": [], "seconds": 1.0}
    assert not tool.failed({"parts": {"tests": {"a file": part}}})
    assert tool.failed({"parts": {"tests": {"a file": {**part, "failed": ["test_x"]}}}})


def test_the_next_call_makes_what_is_missing_or_failed(tool: ModuleType, evidence: Any) -> None:
    def broken() -> dict[str, object]:
        raise RuntimeError("not today")

    tool.gather(evidence, {"part": {"good": lambda: {"value": 1}, "bad": broken}})
    found = tool.gather(evidence, {"part": {"good": lambda: {"value": 2}, "bad": lambda: {"value": 2}}})
    assert [found["parts"]["part"][name]["value"] for name in ("good", "bad")] == [1, 2]
    again = tool.gather(evidence, {"part": {"good": lambda: {"value": 3}}}, again=True)
    assert again["parts"]["part"]["good"]["value"] == 3


def test_evidence_of_another_commit_or_none_at_all_is_refused(tool: ModuleType, evidence: Any) -> None:
    found = tool.gather(evidence, one(lambda: {"value": 1}))
    found["environment"]["commit"] = "another"
    (evidence.folder / "evidence.json").write_text(json.dumps(found))
    with pytest.raises(UserError, match="is of another commit"):
        tool.gather(evidence, one(lambda: {"value": 2}))
    (evidence.folder / "evidence.json").write_text("[]")
    with pytest.raises(UserError, match="is no evidence"):
        tool.gather(evidence, one(lambda: {"value": 2}))


def test_a_step_ends_with_the_time_and_no_other_begins(tool: ModuleType, evidence: Any) -> None:
    evidence.until = time.monotonic() + 0.5
    endless = "import time\nwhile True: time.sleep(60)"
    found = tool.gather(evidence, {"part": {"long": lambda: evidence.call("-c", endless), "next": lambda: {}}})
    assert found["out of time"] == "part, long"
    assert found["parts"]["part"] == {}
    after = tool.gather(evidence, one(lambda: {"value": 1}))
    assert after["out of time"] == "part, step"


def test_a_command_that_fails_says_where_its_output_is(evidence: Any) -> None:
    with pytest.raises(RuntimeError, match=r"exit code 3 .*see log.txt"):
        evidence.call("-c", "import sys; print('out'); print('why', file=sys.stderr); sys.exit(3)")
    assert {"out", "why"} <= {*(evidence.folder / "log.txt").read_text().split("\n")}


def test_tests_are_counted_by_their_report(tool: ModuleType, evidence: Any, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        "import pytest\ndef test_good(): pass\ndef test_bad(): assert False\n@pytest.mark.skip\ndef test_left(): pass\n"
    )
    evidence.gpu = False
    assert tool.tests(evidence, tmp_path / "test_one.py") == {"passed": 1, "skipped": 1, "failed": ["test_bad"]}


def test_the_sweep_makes_its_runs_and_the_page_has_their_ratio(tool: ModuleType, evidence: Any) -> None:
    evidence.gpu = False
    rows = [tool.sweep(evidence, jobs)["rows"][0] for jobs in (1, 2)]
    assert [row["runs at a time"] for row in rows] == [1, 2]
    assert all(row["runs"] == 2 for row in rows), "a row at two rates"
    assert all(row["seconds"] > 0 for row in rows)
    times = rows[1]["runs an hour"] / rows[0]["runs an hour"]
    steps = {str(row["runs at a time"]): {"seconds": 1.0, "rows": [row], "goals": []} for row in rows}
    text = tool.page({**tool.gather(evidence, {}), "parts": {"sweep": steps}})
    assert f"2: {times:.2f}. At the most {times:.2f} times; 4 are aimed at." in text
    assert "goals" not in text, "what is empty is left out"


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two methods with trials, as it is committed: archive, tables, suite."""
    root = tmp_path_factory.mktemp("committed")
    (root / "tiny").mkdir()
    (root / "tiny" / "suite.yaml").write_text(SUITE)
    store = Store(root / "store")
    bench.run_suite(root / "tiny" / "suite.yaml", store.root, jobs=1)
    pack("tiny", store, root / "tiny" / ARCHIVE)
    (root / "tiny" / "tables").mkdir()
    for name, content in summary(root / "tiny", "tiny", store, read_claims(resources.published())).tables.items():
        (root / "tiny" / name).write_bytes(content)
    shutil.rmtree(store.root)
    return root / "tiny"


def test_a_committed_comparison_is_trained_again_and_lies_in_its_own_intervals(
    tool: ModuleType, evidence: Any, committed: Path, tmp_path: Path
) -> None:
    """On the machine that made it all bytes are the same, so all differences are."""
    evidence.reference = committed
    trained: list[tuple[str, ...]] = []

    def runs(suite: Path, store: Path, _: int | None) -> int:
        done = bench.run_suite(suite, store, jobs=1).done
        trained.append(tuple(done))
        return len(done)

    evidence.runs = runs
    (tmp_path / "base").mkdir()
    first = tool.reference(evidence, 2, tmp_path / "base")
    assert len(trained[0]) == 4, "two rows at one rate with two seeds; the trials are those of the archive"
    (tmp_path / "another").mkdir()
    whole = tool.reference(evidence, 3, tmp_path / "another")  # as a later call, on a machine without the store
    assert len(trained[1]) == 2
    (two,), (three,) = first["headline"], whole["headline"]
    assert (two["row"], two["seeds"], three["row"], three["seeds"]) == ("siglip", 2, "siglip", 3)
    assert two["ours"] == two["same seeds"] != two["committed"]
    assert three["ours"] == three["same seeds"] == pytest.approx(three["committed"], abs=1e-12)
    assert three["inside"]
    assert three["as expected"]
    assert whole["others, not as expected"] == []
    assert all((row["rows"], row["inside the committed interval"]) == (1, 1) for row in whole["rows"])


def test_evidence_beside_committed_comparisons_is_none_of_them(
    tool: ModuleType, committed: Path, tmp_path: Path
) -> None:
    shutil.copytree(committed, tmp_path / "tiny")
    shutil.copytree(committed, tmp_path / "gpu", ignore=shutil.ignore_patterns(ARCHIVE))
    (tmp_path / "gpu" / tool.gpu_reference.OWN).write_bytes((committed / ARCHIVE).read_bytes())
    tool.gather(tool.Evidence(tmp_path / "gpu"), one(lambda: {"value": 1}))
    assert comparisons(tmp_path) == [tmp_path / "tiny"]


def test_a_folder_that_is_no_comparison_is_one_line(tool: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no committed comparison"):
        tool.gpu_reference.find(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["all"], "parts are tests, speeds, sweep, reference"),
        (["--seeds", "0"], "--seeds 0: should be 1 or more"),
        (["--reference", "{here}", "--out", "{here}/out", "reference"], "is no committed comparison"),
        (["--out", "{here}/file", "tests"], "file: cannot be written (File exists); name another folder with --out"),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_starts(
    tool: ModuleType, given: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        tool.main([word.replace("{here}", str(tmp_path)) for word in given])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
