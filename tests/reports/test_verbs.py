"""What `bench report`, `bench status` and `bench compare` call."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from statsmodels.stats.multitest import multipletests

from bench.errors import UserError
from bench.store import Store
from reports.build import Built, build
from reports.compare import compare
from reports.status import HEAD, status
from reports.tables.table import signed
from reports.tables.vs_baseline import interval

from . import stores

SUITE = "emoji_noisy"
BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "pydantic", "open_clip"):
            raise ImportError(f"{name} is not for reports")
sys.meta_path.insert(0, Blocked())
from bench.store import Store
from reports.build import build
from reports.compare import compare
from reports.status import status
store = Store(sys.argv[1])
print(len(build("emoji_noisy", store).paths), len(status("emoji_noisy", store)))
compare("emoji_noisy", store, "clip", "bayes").text()
"""


@pytest.fixture
def store(tmp_path: Path, troubled: Store) -> Store:
    """A copy that a test may write to."""
    shutil.copytree(troubled.root, tmp_path / "results")
    return Store(tmp_path / "results")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, troubled: Store) -> tuple[Store, Built]:
    """Another copy, and the report that was written in it; no test writes to it."""
    store = Store(shutil.copytree(troubled.root, tmp_path_factory.mktemp("reported") / "results"))
    return store, build(SUITE, store)


@pytest.mark.promise("reports never import torch")
def test_a_report_is_written_without_torch(store: Store, reported: tuple[Store, Built]) -> None:
    """With the bytes that it has in a process that imported torch."""
    done = subprocess.run([sys.executable, "-c", BLOCKED, str(store.root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files, lines = map(int, done.stdout.split())
    assert files == 2 + 2 * 10 + 2 + 2 * (5 + 1 + 3)
    assert lines == 1 + 42 + 4
    first, built = reported
    for path in built.paths:
        assert (store.root / path.relative_to(first.root)).read_bytes() == path.read_bytes(), path.name


def test_a_report_names_its_files_and_what_it_lacks(reported: tuple[Store, Built]) -> None:
    _, built = reported
    assert all(path.stat().st_size > 0 for path in built.paths)
    assert built.paths[0].name == "report.html"
    assert len(built.failed) == 3
    assert len(built.missing) == 8


def test_numbers_are_not_replaced_by_nothing(tmp_path: Path, reported: tuple[Store, Built]) -> None:
    """As with a copy of a committed comparison that has its tables and no runs."""
    whole, _ = reported
    store = Store(shutil.copytree(whole.root, tmp_path / "results", ignore=shutil.ignore_patterns("runs")))
    folder = store.suite(SUITE)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"tables/overview.csv: has numbers, but no run of the plan is in this store"):
        build(SUITE, store)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (folder / "tables" / "overview.csv").unlink()
    assert len(build(SUITE, store).missing) == 42
    assert len(build(SUITE, store).missing) == 42, "a report without numbers is replaced"


def test_a_report_leaves_no_table_or_figure_of_an_earlier_one(store: Store) -> None:
    folder = store.suite(SUITE)
    for name in ("tables/old.csv", "figures/old.png", "figures/notes.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("old")
    with stores.without_figures():
        build(SUITE, store)
    assert not (folder / "tables/old.csv").exists()
    assert not (folder / "figures/old.png").exists()
    assert (folder / "figures/notes.txt").exists()  # not ours
    assert (folder / "plan.json").exists()


def test_status_has_a_line_for_every_run_and_the_totals(troubled: Store) -> None:
    head, *lines = status(SUITE, troubled)
    assert head == HEAD
    runs, totals = lines[:42], lines[42:]
    assert {(line[3], int(line[2])) for line in totals} == {
        ("done", 31), ("interrupted", 3), ("failed", 3), ("missing", 5),
    }  # fmt: skip
    failed = [line for line in runs if line[3] == "failed"]
    assert len(failed) == 3
    assert failed[0][4] == "312/600"
    assert "the loss is nan" in failed[0][6]
    assert {line[4] for line in runs if line[3] == "done"} == {"600/600"}


def test_compare_says_difference_interval_p_and_cost(three: Store) -> None:
    found = compare(SUITE, three, "sogclr", "clip")
    (line,) = [line for line in found.lines if line.primary and line.noise.startswith("40")]
    assert line.gap == pytest.approx(line.a.value - line.b.value)
    assert line.test.low < line.gap < line.test.high
    assert found.cost["0 % shuffled captions"] == pytest.approx(1.15, rel=1e-6)
    assert "SogCLR is significantly better than CLIP" in found.verdict
    assert found.verdict.count("\n") == 0
    back = compare(SUITE, three, "clip", "sogclr")
    assert "SogCLR is significantly better than CLIP" in back.verdict
    assert "CLIP at 0.87 times the cost of SogCLR" in back.verdict
    text = found.text()
    assert text.startswith("\n".join((*found.validity, "", found.verdict, "")))
    assert len(found.validity) == 1
    assert "noise found emoji/train AUROC" in text
    assert text.count("noise found") == 2  # not applicable without noise: no line


def test_the_verdicts_p_values_are_those_that_it_decides_by(three: Store) -> None:
    """Adjusted over the noises: 0.03 beside "not significant" would contradict itself."""
    found = compare(SUITE, three, "prolip", "clip")
    tests = [line.test for line in found.lines if line.primary]
    wanted = multipletests([test.p for test in tests], method="holm")[1]
    assert any(p > 1.5 * test.p for p, test in zip(wanted, tests, strict=True))
    printed = re.findall(r"p (?:= |< )([0-9.]+), n = 3", found.verdict)
    assert [float(one) for one in printed] == pytest.approx([max(0.001, p) for p in wanted], abs=5.1e-4)
    assert "(p adjusted by Holm over 2 noises)" in found.verdict


def test_every_verdict_under_noise_has_the_difference_on_clean_pairs(three: Store, one: Store) -> None:
    """With its interval, whatever the noise does; a single seed has none."""
    noisy = []
    for label in ("sogclr", "siglip", "prolip"):
        found = compare(SUITE, three, label)
        clean, _ = (line for line in found.lines if line.primary)
        own, under = found.verdict.split("; ")
        noisy.append(under)
        said = f"on clean pairs {found.names[0]} - CLIP is {signed(clean.gap)} ({interval(clean.test)})"
        assert (said in under, "on clean pairs" in own) == (True, False)
    assert {"not significant" in under for under in noisy} == {True, False}
    single = compare(SUITE, one, "sogclr")
    assert f"on clean pairs SogCLR - CLIP is {signed(single.lines[0].gap)}, SogCLR at 1.15 times" in single.verdict


def test_compare_says_which_of_the_two_is_not_verified(store: Store) -> None:
    plan = store.plan(SUITE)
    plan["methods"] = [
        {**e, "fidelity": "reconstructed" if e["label"] == "clip" else "derived"} for e in plan["methods"]
    ]
    store.write_plan(SUITE, plan)
    assert "note: CLIP is not verified" in compare(SUITE, store, "sogclr", "clip").text()
    assert "not verified" not in compare(SUITE, store, "sogclr", "bayes").text()


def test_compare_claims_nothing_from_too_few_seeds(one: Store, troubled: Store) -> None:
    verdict = compare(SUITE, one, "sogclr", "clip").verdict
    assert "one seed cannot tell" in verdict
    assert "is better" not in verdict
    verdict = compare(SUITE, troubled, "ncu", "prolip").verdict
    assert "2 seeds cannot tell" in verdict
    assert "no seed in common" in verdict


def test_compare_has_no_verdict_where_the_primary_number_is_not_measured(store: Store) -> None:
    plan = store.plan(SUITE)
    store.write_plan(SUITE, {**plan, "primary": {**plan["primary"], "dataset": "emoji/unseen"}})
    found = compare(SUITE, store, "sogclr", "clip")
    assert found.verdict.startswith("No verdict: zero_shot/concept top1 on emoji/unseen, the suite's primary metric")
    assert found.lines
    assert found.text().splitlines()[0].endswith("(evaluate.tasks without zero_shot).")


def test_compare_tests_nothing_that_was_measured_on_different_data(tmp_path: Path) -> None:
    store = stores.write_store(tmp_path, seeds=range(3))
    assert "measured on different data" not in compare(SUITE, store, "sogclr", "clip").verdict
    plan = store.plan(SUITE)
    for cell in plan["cells"]:
        for path in store.run(cell["run"]).path("evaluations").glob("*/records.json"):
            lines = json.loads(path.read_text())
            path.write_text(json.dumps([{**line, "data": f"data of {cell['method'] == 'clip'}"} for line in lines]))
    found = compare(SUITE, store, "sogclr", "clip")
    assert "under 40 % shuffled captions they were measured on different data, so nothing is tested" in found.verdict
    assert not any(line.test for line in found.lines)


def test_compare_sees_no_difference_where_there_is_none(tmp_path: Path) -> None:
    methods = [("a", "A", 1.0, "cosine"), ("b", "B", 1.0, "cosine"), ("c", "C", 1.0, "cosine")]
    store = stores.write_store(tmp_path, methods=methods, rates=(0.0,))
    assert "the difference is not significant" in compare(SUITE, store, "a", "b").verdict


def test_compare_names_the_nearest_label(one: Store) -> None:
    with pytest.raises(UserError, match="did you mean 'sogclr'"):
        compare(SUITE, one, "sogclip", "clip")
    with pytest.raises(UserError, match="name two methods"):
        compare(SUITE, one, "clip", "clip")
