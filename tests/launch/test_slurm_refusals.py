"""What `--launcher slurm` asks sbatch for, and says where it cannot be used. The rest is in tests/slurm."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bench
from bench.errors import UserError
from bench.launch.launchers.slurm import job_groups, time_limit_minutes
from bench.store import Store
from bench.store.jobs import submitted_jobs
from bench.suite.suite import load_suite


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
    assert time_limit_minutes(limit) == expected


def test_a_machine_without_slurm_is_told_so_before_anything_is_made(
    start_bench: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    command = ("run", "smoke", "--results", tmp_path / "out", "--launcher", "slurm")
    code, output = start_bench(*command, env={"PATH": str(tmp_path / "bin")}).finish()
    assert code == 2, output
    assert "--launcher slurm: sbatch is not on this machine" in output
    assert not (tmp_path / "out").exists()


SUITE = """
name: nodes
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, bn_group: 2, threads: 1}
evaluate: {tasks: [zero_shot], curve: []}
slurm: {nodes: 2, gpus: 0, cpus_per_gpu: 3, runs_per_job: 2}
methods: [clip, siglip]
"""


@pytest.fixture
def handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[bench.Summary, str]]:
    """Hand a suite with these changes to an sbatch that keeps the script; return the summary and the script's lines.

    The other commands of SLURM say nothing: no job is in the queue.
    """
    pytest.importorskip("submitit")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("squeue", "srun", "scontrol", "sbatch"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    (tools / "sbatch").write_text(f'#!/bin/sh\ncp "$1" {tmp_path}/script\necho Submitted batch job 7\n')
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    (tmp_path / "nodes.yaml").write_text(SUITE)

    def hand_over(*changes: str, **request: Any) -> tuple[bench.Summary, str]:
        suite = load_suite(tmp_path / "nodes.yaml", list(changes))
        summary = bench.run_suite(suite, tmp_path / "out", launcher="slurm", **request)
        return summary, (tmp_path / "script").read_text()

    return hand_over


@pytest.mark.parametrize(
    ("changes", "asked", "tasks", "cpus"),
    [
        ([], {}, 1, 3),
        (["slurm.gpus=4"], {}, 4, 3),
        (["slurm.nodes=4"], {"processes": 2}, 2, 3),
        (["slurm.nodes=1"], {"processes": 2}, None, 6),
    ],
)
def test_a_job_over_nodes_has_a_task_a_rank(
    handed_over: Callable[..., tuple[bench.Summary, str]],
    changes: list[str],
    asked: dict[str, int],
    tasks: int | None,
    cpus: int,
) -> None:
    """Two runs in one job; a job of one node is one task, which has the cores of all ranks."""
    summary, script = handed_over(*changes, **asked)
    assert len(summary.queued) == 2
    lines = script.splitlines()
    assert f"#SBATCH --nodes={dict(part.split('=') for part in changes).get('slurm.nodes', 2)}" in lines
    assert (f"#SBATCH --ntasks-per-node={tasks}" in lines) == (tasks is not None)
    assert f"#SBATCH --cpus-per-task={cpus}" in lines
    assert ("#SBATCH --gpus-per-node=4" in lines) == ("slurm.gpus=4" in changes)
    assert ("--kill-on-bad-exit=0" in script) == (tasks is not None)


def test_jobs_before_one_that_sbatch_refuses_are_known(
    handed_over: Callable[..., tuple[bench.Summary, str]], tmp_path: Path
) -> None:
    """The same command, given when there is room again, does not submit them a second time."""
    (tmp_path / "bin" / "scontrol").write_text("#!/bin/sh\necho 'MaxArraySize            = 1'\n")
    refusing = f"#!/bin/sh\nmkdir {tmp_path}/once 2>/dev/null || {{ echo too many jobs >&2; exit 1; }}\n"
    (tmp_path / "bin" / "sbatch").write_text(f"{refusing}echo Submitted batch job 7\n")
    with pytest.raises(UserError, match=r"^--launcher slurm: sbatch says: .*too many jobs"):
        handed_over("slurm.runs_per_job=1")
    store = Store(tmp_path / "out")
    ids = [path.name for path in (tmp_path / "out" / "runs").iterdir()]
    assert [job.id for job in submitted_jobs(store.run(one) for one in ids).values()] == ["7"]


def test_what_a_job_over_nodes_cannot_be_is_refused(
    handed_over: Callable[..., tuple[bench.Summary, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"^train\.batch: 16 does not divide among 6 processes; use another"):
        handed_over("slurm.nodes=3", "slurm.gpus=2")
    with pytest.raises(UserError, match=r"^--processes 2: is for jobs without GPUs; set slurm\.gpus: 0"):
        handed_over("slurm.gpus=2", processes=2)
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "n",
        "MASTER_PORT": "9",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=r"^--launcher slurm: not under torchrun, which started 2 ranks"):
        handed_over()


def test_runs_share_jobs_unless_others_wait_for_them() -> None:
    runs: list[Any] = [SimpleNamespace(id=name) for name in "abcdefg"]
    parts = job_groups(runs, {"b", "f", "elsewhere", None}, 2)
    assert ["".join(one.id for one in part) for part in parts] == ["b", "f", "ac", "de", "g"]
    assert [len(part) for part in job_groups(runs, set(), 1)] == [1] * 7


def test_commands_of_the_suite_are_printed_before_anything_is_submitted(
    handed_over: Callable[..., tuple[bench.Summary, str]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho refused >&2\nexit 1\n")
    with pytest.raises(UserError, match=r"sbatch says: .*refused"):
        handed_over("slurm.setup=['module load cuda', 'curl x | sh']")
    first, second = [line for line in capfd.readouterr().err.splitlines() if line.startswith("slurm.setup")]
    assert first == "slurm.setup, before each job: module load cuda"
    assert second == "slurm.setup, before each job: curl x | sh"
