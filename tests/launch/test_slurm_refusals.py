"""What `--launcher slurm` says where it cannot be used, and how it reads a time limit. The rest is in tests/slurm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.launch.launchers.slurm import minutes, parcels
from bench.store.jobs import Job


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("90", 90),
        ("90:01", 91),
        ("1:30:00", 90),
        ("24:00:00", 1440),
        ("2-12", 3600),
        ("2-12:30", 3630),
        ("1-0:0:1", 1441),
    ],
)
def test_a_time_limit_is_read_as_sbatch_reads_it(limit: str, expected: int) -> None:
    assert minutes(limit) == expected


def test_a_machine_without_slurm_is_told_so_before_anything_is_made(
    start_bench: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    command = ("run", "smoke", "--results", tmp_path / "out", "--launcher", "slurm")
    code, output = start_bench(*command, env={"PATH": str(tmp_path / "bin")}).finish()
    assert code == 2, output
    assert "--launcher slurm: sbatch is not on this machine" in output
    assert not (tmp_path / "out").exists()


def test_runs_share_jobs_unless_others_wait_for_them() -> None:
    runs: list[Any] = [SimpleNamespace(id=name) for name in "abcdefg"]
    parts = parcels(runs, {"b", "f", "elsewhere", None}, 2)
    assert ["".join(one.id for one in part) for part in parts] == ["b", "f", "ac", "de", "g"]
    assert [len(part) for part in parcels(runs, set(), 1)] == [1] * 7


def test_a_job_is_shown_with_what_it_waits_for() -> None:
    assert Job("7_1", "PENDING", "Dependency", "x.out").shown == "job 7_1 pending (Dependency)"
    assert Job("7", "RUNNING", "None", "x.out").shown == "job 7 running"
    assert Job("7", None, "", "x.out").shown == "job 7 is over, its log is x.out"
