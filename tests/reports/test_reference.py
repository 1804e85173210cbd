"""Committed comparisons: an archive of runs gives the tables of the store it was packed from, byte for byte."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from typer.testing import CliRunner

from bench import resources
from bench.cli import app
from bench.errors import UserError
from bench.store import Store, files
from bench.store.merge import merge
from bench.store.pack import ARCHIVE, pack
from reports.build import build
from reports.reference.claims import read_claims
from reports.reference.render import CLAIMS, INDEX, PAGE, Summary, bare, comparisons, opened, over_all, summary

SUITE = "emoji_noisy"
COMMITTED = Path(__file__).parents[2] / "results" / "reference"
STATES = {("ncu", 0.4, 2): "failed", ("ncu", 0.0, 1): "missing", ("ncu", 0.4, 0): "missing"}


@pytest.fixture(autouse=True, scope="module")
def _without_disk() -> Iterator[None]:
    with mock.patch.object(files, "sync"):
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, stores: SimpleNamespace) -> Store:
    """A suite with a failed run and two that were never started, and its report."""
    root = tmp_path_factory.mktemp("source")
    methods = [one for one in stores.METHODS if one[0] in ("clip", "sogclr", "ncu")]
    made: Store = stores.write_store(root, methods=methods, curve=(0.5,), states=STATES, checkable=True)
    plan = made.plan(SUITE)
    assert plan is not None
    made.write_plan(SUITE, {**plan, "description": "Icons & <captions>"})
    build(SUITE, made)
    return made


@pytest.fixture(scope="module")
def root(source: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of comparisons: one with its archive, an older one with tables alone; rendered, not to be changed."""
    folder = tmp_path_factory.mktemp("reference")
    pack(SUITE, source, folder / SUITE / ARCHIVE)
    (folder / SUITE / "README.md").write_text("notes")
    (folder / SUITE / "tables").mkdir()
    (folder / SUITE / "tables" / "gone.csv").write_text("of an earlier version")
    (folder / "older").mkdir()
    shutil.copy(source.suite(SUITE) / "plan.json", folder / "older")
    (folder / "older" / PAGE).write_text("as it was")
    (folder / "no comparison").mkdir()
    result = CliRunner().invoke(app, ["reference", str(folder)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "older: has no archive of its runs and stays as it is" in result.stdout
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.promise("an archive of runs gives the tables of its store, byte for byte")
def test_a_store_imported_from_the_archive_reports_the_same_bytes(source: Store, root: Path, tmp_path: Path) -> None:
    """Tables, figures, page and records: all that a report writes."""
    outcome = merge(root / SUITE / ARCHIVE, Store(tmp_path / "here"))
    assert (len(outcome.new), outcome.problems) == (16, [])
    build(SUITE, Store(tmp_path / "here"))
    expected = contents(source.suite(SUITE))
    assert contents(tmp_path / "here" / SUITE) == expected
    assert b'<span class="failed">1 failed</span>' in expected[PAGE]


def test_pages_and_tables_are_those_of_the_source_and_the_older_one_is_left_alone(source: Store, root: Path) -> None:
    report = contents(source.suite(SUITE))
    shown = {name: content for name, content in report.items() if name == PAGE or name.startswith("tables/")}
    rendered = contents(root / SUITE)
    assert rendered.pop(ARCHIVE)
    assert rendered == {**shown, "README.md": b"notes"}
    assert (root / "older" / PAGE).read_text() == "as it was"
    claims = read_claims(resources.published())
    again = over_all([bare(root / "older"), summary(root / SUITE, SUITE, source, claims)])
    assert sorted(again) == [CLAIMS, INDEX]
    assert again[CLAIMS] == (root / CLAIMS).read_bytes()


def test_the_index_names_every_comparison_with_its_answer(root: Path) -> None:
    page = (root / INDEX).read_text()
    assert "Icons &amp; &lt;captions&gt;" in page
    assert page.count("<section") == 2
    assert "Is a method better than clip on" in page
    assert "40 % shuffled captions: clip has" in page
    apart = "of 3 pairs of methods under 40 % shuffled captions"
    states = "15 done, 1 failed, 2 missing of 18"
    for fact in ("n = 3 seeds (0, 1, 2)", "0123456789ab", "a CPU, 2 cores", apart, states):
        assert fact in page, fact
    assert "not known: it takes an oracle" in page
    links = re.findall(r'href="([^"#:]+)"', page)
    assert f"{SUITE}/{PAGE}" in links
    assert f"{SUITE}/README.md" in links
    assert f"{SUITE}/{ARCHIVE}" in links
    assert CLAIMS in links
    assert all((root / link).is_file() for link in links)
    assert "not committed, so nothing of it can be computed anew" in page


def test_the_index_says_the_resolution_if_there_is_an_oracle(bounded: Store, tmp_path: Path) -> None:
    (tmp_path / "bounded").mkdir()
    shown = summary(tmp_path / "bounded", SUITE, bounded, read_claims(resources.published()))
    assert re.search(r"\d+\.\d \(\d+\.\d to \d+\.\d\) under 40 % shuffled captions", shown.entry.facts["resolution"])
    assert shown.claims == "", "another folder judges them"


def test_changed_files_and_several_machines_are_named(source: Store, tmp_path: Path) -> None:
    copy = Store(shutil.copytree(source.root, tmp_path / "copy"))
    paths = sorted(copy.root.glob("runs/*/environment.json"))
    content = json.loads(paths[0].read_text())
    other = {**content, "commit": "f" * 40 + "+", "hardware": {"device": "an H200"}}
    paths[0].write_text(json.dumps(other))
    paths[1].write_text("{}")
    facts = summary(tmp_path / SUITE, SUITE, copy, read_claims(resources.published())).entry.facts
    assert facts["commit"] == f"0123456789ab ({len(paths) - 2} runs); {'f' * 12}+ (1 runs)"
    assert facts["hardware"] == f"a CPU, 2 cores ({len(paths) - 2} runs); an H200 (1 runs)"


def test_a_report_from_the_folder_of_comparisons_says_where_its_runs_are(root: Path) -> None:
    result = CliRunner().invoke(app, ["report", SUITE, "--results", str(root)])
    assert isinstance(result.exception, UserError)
    assert f"no plan; `bench import {root / SUITE / ARCHIVE} --results DIR` brings it" in str(result.exception)


def test_a_damaged_archive_is_one_line_and_nothing_is_written(root: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    (copy / INDEX).unlink()
    content = (copy / SUITE / ARCHIVE).read_bytes()
    (copy / SUITE / ARCHIVE).write_bytes(content[: len(content) // 2])
    before = contents(copy)
    result = CliRunner().invoke(app, ["reference", str(copy)])
    assert isinstance(result.exception, UserError)
    assert "runs.tar.xz: cannot be unpacked as a tar archive" in str(result.exception)
    assert contents(copy) == before


def test_a_folder_without_comparisons_and_an_archive_of_two_suites_are_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no comparison; `bench pack SUITE --out"):
        comparisons(tmp_path)
    shutil.unpack_archive(root / SUITE / ARCHIVE, tmp_path / "both", filter="data")
    plan = (tmp_path / "both" / SUITE / "plan.json").read_text()
    (tmp_path / "both" / "other").mkdir()
    (tmp_path / "both" / "other" / "plan.json").write_text(plan.replace(f'"suite": "{SUITE}"', '"suite": "other"'))
    (tmp_path / "two").mkdir()
    shutil.make_archive(str(tmp_path / "two" / "runs"), "xztar", tmp_path / "both")
    with pytest.raises(UserError, match="holds the plans of 2 suites"), opened(tmp_path / "two"):
        pytest.fail("it was opened")


def test_what_is_committed_is_what_its_archives_give() -> None:
    """Every table has its sum in `tables.sha256`; pages over several comparisons are committed whole."""
    claims, summaries = read_claims(resources.published()), list[Summary]()
    for folder in comparisons(COMMITTED):
        with opened(folder) as (suite, store):
            summaries.append(summary(folder, suite, store, claims))
        lines = (folder / "tables.sha256").read_text().splitlines()
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in summaries[-1].tables.items()}
        assert dict(line.split("  ")[::-1] for line in lines) == sums, folder
    for name, content in over_all(summaries).items():
        if name != INDEX:
            assert (COMMITTED / name).read_bytes() == content, f"`bench reference` writes {name} again"
