"""A launcher is one entry: `bench run --launcher NAME` and `bench.run_suite` take it from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bench
from bench.cli import app
from bench.launch.launchers import LAUNCHERS, Launcher, LaunchOptions

SUITE = """\
name: launched
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
methods: [clip]
"""


@pytest.fixture
def requests() -> Iterator[list[LaunchOptions]]:
    """A launcher that notes what it was asked, and then makes runs as the local one does."""
    seen: list[LaunchOptions] = []

    def prepare(suite, store, request):
        seen.append(request)
        return LAUNCHERS["local"].prepare(suite, store, LaunchOptions())

    LAUNCHERS.add(Launcher("noting", "notes what it is asked", prepare))
    yield seen
    LAUNCHERS.remove("noting")


def test_one_entry_adds_a_launcher(
    requests: list[LaunchOptions], tmp_path: Path, unreported: Callable[[Path, str], Path]
) -> None:
    (tmp_path / "launched.yaml").write_text(SUITE)
    results = unreported(tmp_path / "out", "launched")
    command = ["run", str(tmp_path / "launched.yaml"), "--results", str(results), "--launcher", "noting"]
    result = CliRunner().invoke(app, [*command, "--jobs", "3"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "runs: 1 done" in result.stdout
    summary = bench.run_suite(tmp_path / "launched.yaml", tmp_path / "out", launcher="noting", processes=2)
    assert len(summary.skipped) == 1
    assert requests == [LaunchOptions(jobs=3), LaunchOptions(processes=2)]
    with pytest.raises(bench.UserError, match="'noting' is already a launcher"):
        LAUNCHERS.add(Launcher("noting", "again", LAUNCHERS["local"].prepare))


def test_shipped_launchers_are_known() -> None:
    assert LAUNCHERS.names() == ("local", "slurm", "ray")
