"""Committed comparisons: an archive of runs gives the tables of the store it was packed from, byte for byte."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner

from bench import resources
from bench.cli import app
from bench.errors import UserError
from bench.hashing import digest
from bench.store import Store, files
from bench.store.merge import merge_store
from bench.store.pack import ARCHIVE, pack_runs
from reports.build import build
from reports.reference.claims import read_claims
from reports.reference.render import (
    AGREEMENT,
    CLAIMS,
    INDEX,
    PAGE,
    SUMS,
    Comparison,
    comparisons,
    computed,
    opened,
    over_all,
)
from reports.results import load
from reports.statistics.regimes import regimes

from . import recomputed as own
from . import stores

SUITE = "emoji_noisy"
COMMITTED = Path(__file__).parents[2] / "results" / "reference"
STATES = {("ncu", 0.4, 2): "failed", ("ncu", 0.0, 1): "missing", ("ncu", 0.4, 0): "missing"}


@pytest.fixture(autouse=True, scope="module")
def _without_disk() -> Iterator[None]:
    with mock.patch.object(files, "sync"):
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A suite with a failed run, two that were never started and a row without any, and its report."""
    root = tmp_path_factory.mktemp("source")
    methods = [one for one in stores.METHODS if one[0] in ("clip", "sogclr", "ncu")]
    made: Store = stores.write_store(root, methods=methods, curve=(0.5,), states=STATES, checkable=True)
    plan = made.plan(SUITE)
    without = {**plan["methods"][0], "label": "clip on pixels", "inapplicable": {"": "needs pixels"}}
    made.write_plan(SUITE, {**plan, "description": "Icons & <captions>", "methods": [*plan["methods"], without]})
    build(SUITE, made)
    return made


@pytest.fixture(scope="module")
def root(source: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of comparisons, rendered; not to be changed."""
    folder = tmp_path_factory.mktemp("reference")
    pack_runs(SUITE, source, folder / SUITE / ARCHIVE)
    (folder / SUITE / "README.md").write_text("notes")
    (folder / "no comparison").mkdir()
    result = CliRunner().invoke(app, ["board", "reference", str(folder)], catch_exceptions=False)
    assert result.exit_code == 0
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.promise("an archive of runs gives the tables of its store, byte for byte")
def test_a_store_imported_from_the_archive_reports_the_same_bytes(source: Store, root: Path, tmp_path: Path) -> None:
    """Tables, figures, page and records: all that a report writes."""
    outcome = merge_store(root / SUITE / ARCHIVE, Store(tmp_path / "here"))
    assert (len(outcome.new), outcome.problems) == (16, [])
    build(SUITE, Store(tmp_path / "here"))
    expected = contents(source.suite(SUITE))
    assert contents(tmp_path / "here" / SUITE) == expected
    assert b'<span class="failed">1 failed</span>' in expected[PAGE]


def test_pages_and_tables_are_those_of_the_source(source: Store, root: Path, tmp_path: Path) -> None:
    report = contents(source.suite(SUITE))
    shown = {name: content for name, content in report.items() if name == PAGE or name.startswith("tables/")}
    rendered = contents(root / SUITE)
    assert rendered.pop(ARCHIVE)
    sums = rendered.pop(SUMS).decode()
    assert rendered == {**shown, "README.md": b"notes"}
    assert dict(line.split("  ")[::-1] for line in sums.splitlines()) == {
        name: hashlib.sha256(content).hexdigest() for name, content in shown.items() if name != PAGE
    }
    result = CliRunner().invoke(app, ["board", "reference", str(root), "--out", str(tmp_path)], catch_exceptions=False)
    assert result.stdout.split() == [str(tmp_path / name) for name in (f"{SUITE}/{PAGE}", CLAIMS, AGREEMENT, INDEX)]
    assert contents(tmp_path / SUITE) == {**shown, SUMS: sums.encode()}


def test_the_index_names_every_comparison_with_its_answer(root: Path) -> None:
    page = (root / INDEX).read_text()
    head, row = re.findall(r"<tr>(.*?)</tr>", page)
    assert re.findall(r"<th scope=\"col\">([^<]*)", head) == [
        *("comparison", "question", "data", "methods", "seeds", "answer", "speaks of robustness", "last run")
    ]
    _, question, data, methods, seeds, answer, robust, day = re.findall(r"<td[^>]*>(.*?)</td>", row)
    assert question.startswith("Is a method significantly better than CLIP on")
    assert data.endswith(" pairs")
    assert (methods, seeds, robust) == ("3", "3", "unknown")
    assert answer.startswith("Significantly better than CLIP under 40 % shuffled captions: ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day)
    links = re.findall(r'href="([^"#:]+)"', page)
    assert {f"{SUITE}/{PAGE}", CLAIMS, AGREEMENT} <= set(links)
    assert all((root / link).is_file() for link in links)


def test_a_report_from_the_folder_of_comparisons_says_where_its_runs_are(root: Path) -> None:
    result = CliRunner().invoke(app, ["report", SUITE, "--results", str(root)])
    assert isinstance(result.exception, UserError)
    assert f"no plan; `bench store import {root / SUITE / ARCHIVE} --results DIR` brings it" in str(result.exception)


def test_a_damaged_archive_is_one_line_and_nothing_is_written(root: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    (copy / INDEX).unlink()
    content = (copy / SUITE / ARCHIVE).read_bytes()
    (copy / SUITE / ARCHIVE).write_bytes(content[: len(content) // 2])
    before = contents(copy)
    result = CliRunner().invoke(app, ["board", "reference", str(copy)])
    assert isinstance(result.exception, UserError)
    assert "runs.tar.xz: cannot be unpacked as a tar archive" in str(result.exception)
    assert contents(copy) == before


def test_a_folder_without_comparisons_and_an_archive_of_two_suites_are_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no comparison; `bench store pack SUITE --out"):
        comparisons(tmp_path)
    shutil.unpack_archive(root / SUITE / ARCHIVE, tmp_path / "both", filter="data")
    plan = (tmp_path / "both" / SUITE / "plan.json").read_text()
    (tmp_path / "both" / "other").mkdir()
    (tmp_path / "both" / "other" / "plan.json").write_text(plan.replace(f'"suite": "{SUITE}"', '"suite": "other"'))
    (tmp_path / "two").mkdir()
    content = {name: hashlib.sha256(part).hexdigest() for name, part in contents(tmp_path / "both").items()}
    del content["packed.json"]
    (tmp_path / "both" / "packed.json").write_text(json.dumps({"sha256": digest(content)}))
    shutil.make_archive(str(tmp_path / "two" / "runs"), "xztar", tmp_path / "both")
    with pytest.raises(UserError, match="holds the plans of 2 suites"), opened(tmp_path / "two"):
        pytest.fail("it was opened")


def test_what_is_committed_is_what_its_archives_give() -> None:
    """Every table has its sum in `tables.sha256`; pages over several comparisons are committed whole.

    A run has the same result in every archive that holds it, those of parts and of other trials too.
    """
    claims, made, known = read_claims(resources.published_folder()), list[Comparison](), dict[str, str]()
    shared = 0
    for folder in comparisons(COMMITTED):
        with opened(folder) as (suite, store):
            results = load(suite, store)
            made.append(computed(folder.name, results, claims))
            over_budgets = [one.sentence(results) for one in regimes(results)]
            assert own.check(store.root, suite, made[-1].tables, over_budgets) >= 3, "numbers computed by other code"
            stored = ((f"runs/{run.id}/{name}", one) for run in store.runs() for name, one in run.hashes().items())
            shared += same(known, stored, folder)
        assert (folder / SUMS).read_text() == made[-1].sums, folder
    for path in {*COMMITTED.glob("*/*.tar.xz")} - {folder / ARCHIVE for folder in comparisons(COMMITTED)}:
        with tarfile.open(path) as archive:
            members = (one for one in archive if one.name.endswith("/records.json"))
            stored = ((one.name, hashlib.sha256(archive.extractfile(one).read()).hexdigest()) for one in members)
            shared += same(known, stored, path)
    assert shared, "no run is in two archives"
    for name, text in over_all(made).items():
        if name != INDEX:
            assert (COMMITTED / name).read_text() == text, f"`bench board reference` writes {name} again"


def same(known: dict[str, str], stored: Iterable[tuple[str, str]], where: Path) -> int:
    """Note the hashes of records by their names; return how many were known, and are the same."""
    count = 0
    for name, found in stored:
        count += name in known
        assert known.setdefault(name, found) == found, f"{where}: {name} has other bytes elsewhere"
    return count
