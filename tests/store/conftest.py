"""A store with real tiny runs, made once, and copied for every test that changes one."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.cli import app
from bench.console.progress import Progress
from bench.launch.claimed import work_on_run
from bench.planning import planner
from bench.planning.planned import Planned
from bench.store import Store
from bench.suite.suite import load_suite

Members = dict[str, bytes]  #: path in an archive -> content
SUITE = """\
name: tiny
noise: {rates: [0.4]}
budget: {samples: 128}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}, curve: [0.5]}
methods: [clip, ncu]
"""


def bench(store: Path, *arguments: str) -> Result:
    """A verb on a store; "SUITE" stands for the suite's file."""
    suite = store.with_name("tiny.yaml")
    suite.write_text(SUITE)
    given = [str(suite) if one == "SUITE" else one for one in arguments]
    return CliRunner().invoke(app, [*given, "--results", str(store)], catch_exceptions=False)


def contents(folder: Path) -> dict[str, str]:
    """sha256 of every file but claims, by path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "claim" not in path.parts
    }


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def members(archive: Path) -> Members:
    """The files of a tar."""
    with tarfile.open(archive) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]


def packed(path: Path, content: Members) -> Path:
    """A tar of these files."""
    with tarfile.open(path, "w:xz") as tar:
        for name, part in content.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(part), int(time.time())  # the time of a claim is its heartbeat
            tar.addfile(info, io.BytesIO(part))
    return path


def planned(store: Path, *changes: str) -> list[Planned]:
    """The suite's runs: clip, the clip that ncu starts from, ncu."""
    store.with_name("tiny.yaml").write_text(SUITE)
    return planner.plan(load_suite(store.with_name("tiny.yaml"), changes).runs(), Store(store))


def interrupted(one: Planned, store: Path, after: int) -> None:
    """Train some steps of a run and stop with a checkpoint."""
    asked = iter(range(10**6))
    state, message = work_on_run(one, Store(store), Progress(), lambda: next(asked) + 1 >= after)
    assert state == "interrupted", message


@pytest.fixture(scope="session")
def tiny() -> SimpleNamespace:
    """What the tests of merging and collecting share."""
    return SimpleNamespace(bench=bench, contents=contents, planned=planned, interrupted=interrupted)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all runs of the suite; not to be changed."""
    store = tmp_path_factory.mktemp("finished") / "results"
    with mock.patch("bench.machine.environment.commit", return_value="0" * 40):  # of a checkout without changes
        assert bench(store, "run", "SUITE").exit_code == 0
    return store


@pytest.fixture
def store(finished: Path, tmp_path: Path, unreported: Callable[[Path, str], Path]) -> Path:
    """A copy of it; `bench run` leaves its report as it is."""
    return unreported(Path(shutil.copytree(finished, tmp_path / "results")), "tiny")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A store that is not there yet."""
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "results"
