"""`bench run --launcher slurm` on a real SLURM: what one machine's runs come to, however often a job is sent back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.store import RunStore, Store

pytestmark = pytest.mark.skipif(
    "BENCH_SLURM" not in os.environ,
    reason="needs a SLURM of its own: tests/slurm/run, as root, with Debian's slurm-wlm and munge",
)
PATIENCE = 900.0
ON_CPUS = ("--launcher", "slurm", "--set", "slurm.gpus=0", "--set", "slurm.cpus_per_gpu=1", "--set", "slurm.time='30'")
FEWER = [
    part for change in ("methods=[clip, ncu]", "noise.rates=[0.0]", "budget.samples=1280") for part in ("--set", change)
]
LONG = """
name: long
budget: {samples: 16000}
towers: {dim: 32, vocabulary: 500}
train: {batch: 32, threads: 1, checkpoint_seconds: 0.2}
evaluate: {tasks: [zero_shot]}
methods: [clip]
"""
SCORED = """
name: scored
noise: {rates: [0.4]}
budget: {samples: 6400}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot], curve: []}
methods: [clip, {method: clip, label: clip filtered, keep: {kind: score, share: 0.6}}]
"""
#: fp64 and small steps, so that losses do not depend on the number of ranks (in steps ten times as large last bits grow
#: to 1.07e-9 within ten of them); slow until the file FAST is there
EXACT = """
name: long
budget: {samples: 320}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, bn_group: 8, threads: 1, checkpoint_seconds: 0.1, precision: fp64, eps: 1000.0, lr: 1.0}
evaluate: {tasks: [zero_shot]}
methods: [slow]
"""
STEPS = 20  #: of it
SENT_BACK = [("scontrol", "requeue"), ("scancel", "--signal=USR2")]
SENT_BACK_IDS = ["preempted", "time up"]
SLOW = Path(__file__).parents[1] / "launch" / "slow.py"


def bench(*arguments: str) -> str:
    """The output of a `bench` command that must succeed."""
    found = subprocess.run(
        [sys.executable, "-m", "bench", *arguments], capture_output=True, text=True, timeout=PATIENCE
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout + found.stderr


def slurm(*command: str) -> str:
    """The output of one of SLURM's commands."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200).stdout


def all_nodes() -> str:
    """The nodes of the cluster, as scontrol takes them."""
    return f"nodename={','.join(slurm('sinfo', '--noheader', '--Node', '--format=%N').split())}"


def wait_for(condition: Callable[[], bool], results: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        logs = "".join(path.read_text() for path in results.glob("*/slurm/*.out"))
        assert time.monotonic() < end, f"{slurm('squeue')}\n{logs}"
        time.sleep(0.2)


def states(results: Path) -> list[str]:
    return [run.status()["state"] for run in Store(results).runs()]


def weights(results: Path) -> list[str]:
    found = sorted(results.glob("runs/*/weights-*.safetensors"))
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in found]


def losses(results: Path) -> list[float]:
    (run,) = Store(results).runs()
    return [line["loss"] for line in run.metrics()]


def queue(job: str) -> str:
    """What squeue says of a job, such as PENDING or COMPLETING."""
    return slurm("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T").strip()


def start_soon(job: str) -> None:
    """Let a job that is queued again start before the two minutes that SLURM waits otherwise.

    A start in the second in which the one before was revoked is refused for ever ("Job credential revoked").
    """
    slurm("scontrol", "update", f"jobid={job}", "starttime=now+2")


def task(job: str, rank: int) -> int:
    """The process of a job's task, which all nodes have in /proc."""
    wanted = {f"SLURM_JOB_ID={job}", f"SLURM_PROCID={rank}"}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_text().split("\0")
            ours = "submitit.core._submit" in command and Path(command[0]).name != "srun"
            if ours and wanted <= {*(folder / "environ").read_text().split("\0")}:
                found.append(int(folder.name))
    return min(found)


def submitted(folder: Path, settings: str = LONG, *more: str) -> tuple[Path, RunStore, str]:
    """A long run in training as a job: its results, the run, the job's id."""
    results, suite = folder / "out", folder / "long.yaml"
    suite.write_text(settings)
    said = bench("run", str(suite), "--results", str(results), *ON_CPUS, *more)
    job = re.search(r"job (\d+)", said)
    assert job, said
    wait_for(lambda: bool(list(results.glob("runs/*/checkpoint.pt"))), results)
    (run,) = Store(results).runs()
    return results, run, job[1]


def over_two_nodes(folder: Path) -> tuple[Path, RunStore, str]:
    """A slow run in training as one job over both nodes, with a rank on each."""
    return submitted(folder, EXACT, "--plugin", str(SLOW), "--set", "slurm.nodes=2")


def test_a_suite_is_handed_over_once_and_comes_back_done(tmp_path: Path) -> None:
    results = tmp_path / "out"
    command = ("run", "smoke", "--results", str(results), *FEWER)
    nodes = all_nodes()
    slurm("scontrol", "update", nodes, "state=drain", "reason=jobs wait until they were looked at")
    said = bench(*command, *ON_CPUS)
    assert "3 in SLURM's queue" in said
    jobs = re.findall(r": job (\d+(?:_\d)?)(?:: after job (\S+))?$", said, re.MULTILINE)
    assert len(jobs) == 3, said
    (waits,) = [job for job in jobs if job[1]]
    assert waits[1] in {job for job, after in jobs if not after}, "NCU must wait for the run it starts from"
    again = bench(*command, *ON_CPUS)
    assert "in SLURM's queue" in again
    assert not re.search(r": job \d+", again), "a run was handed over twice"
    assert re.search(rf"job {waits[0]} pending \(Dependency\)", bench("status", "smoke", "--results", str(results)))
    slurm("scontrol", "update", nodes, "state=resume")
    wait_for(lambda: states(results) == ["done"] * 3, results)
    assert "nothing to do: all 3 runs are done" in bench(*command, *ON_CPUS)
    assert "job" not in bench("status", "smoke", "--results", str(results))


def test_several_runs_share_a_job_with_the_clusters_own_options(tmp_path: Path) -> None:
    results, mark = tmp_path / "out", tmp_path / "prepared"
    ours = ("slurm.runs_per_job=2", "slurm.extra={comment: a word, nice: 7}", f"slurm.setup=['date >> {mark}']")
    changes = ("methods=[clip, siglip, ncu]", "noise.rates=[0.0]", "budget.samples=1280", *ours)
    nodes = all_nodes()
    slurm("scontrol", "update", nodes, "state=drain", "reason=jobs wait until they were looked at")
    output = bench(
        "run", "smoke", "--results", str(results), *ON_CPUS, *(part for one in changes for part in ("--set", one))
    )
    assert "4 in SLURM's queue" in output
    jobs = re.findall(r": job (\d+(?:_\d)?)(?:: after job \S+)?$", output, re.MULTILINE)
    assert sorted(Counter(jobs).values()) == [1, 1, 2], output  # NCU's reference has a job of its own
    for job in set(jobs):
        shown = slurm("scontrol", "show", "job", job)
        assert "Comment=a word" in shown
        assert "Nice=7" in shown
    slurm("scontrol", "update", nodes, "state=resume")
    wait_for(lambda: states(results) == ["done"] * 4, results)
    assert len(mark.read_text().splitlines()) == 3


def test_a_row_that_another_run_scores_is_one_machines(tmp_path: Path) -> None:
    """The scorer's job comes first; the row finds its weights, scores all pairs and keeps the same ones."""
    suite, results, alone = tmp_path / "scored.yaml", tmp_path / "out", tmp_path / "alone"
    suite.write_text(SCORED)
    said = bench("run", str(suite), "--results", str(results), *ON_CPUS)
    assert re.search(r"^ *clip filtered, .*: after job (\S+)$", said, re.MULTILINE), said
    wait_for(lambda: states(results) == ["done"] * 3, results)
    bench("run", str(suite), "--results", str(alone))
    assert weights(results) == weights(alone)
    assert len(weights(results)) == 3 * 4, "weights of a quarter, a half, three quarters and the whole of each run"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Weights of the long run as one machine makes them."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "long.yaml").write_text(LONG)
    bench("run", str(folder / "long.yaml"), "--results", str(folder / "out"))
    return weights(folder / "out")


@pytest.mark.promise("SLURM: a job that is sent back goes on to the same bytes")
@pytest.mark.parametrize("command", SENT_BACK, ids=SENT_BACK_IDS)
def test_a_job_sent_back_goes_on_to_the_same_bytes(
    command: tuple[str, ...], tmp_path: Path, uninterrupted: list[str]
) -> None:
    results, run, job = submitted(tmp_path)
    slurm(*command, job)
    wait_for(lambda: queue(job) == "PENDING", results)
    assert run.status()["state"] == "interrupted"
    stopped = run.status()["step"]
    assert 0 < stopped < 500
    start_soon(job)
    wait_for(lambda: states(results) == ["done"], results)
    assert weights(results) == uninterrupted


def test_a_cancelled_job_leaves_an_interrupted_run_that_is_handed_over_again(tmp_path: Path) -> None:
    results, run, job = submitted(tmp_path)
    assert f"job {job} running" in bench("status", "long", "--results", str(results))
    slurm("scancel", job)
    wait_for(lambda: queue(job) not in ("RUNNING", "COMPLETING"), results)
    assert run.status()["state"] == "interrupted"
    assert f"job {job} is over" in bench("status", "long", "--results", str(results))
    said = bench("run", str(tmp_path / "long.yaml"), "--results", str(results), *ON_CPUS)
    again = re.search(r"job (\d+)", said)
    assert again
    assert again[1] != job
    slurm("scancel", again[1])


@pytest.fixture
def fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file without which the steps of a job are slow."""
    monkeypatch.setenv("SLOW_UNTIL", str(tmp_path / "fast"))
    return tmp_path / "fast"


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory, unreported: Callable[[Path, str], Path]) -> list[float]:
    """Losses of the slow run as one process makes them."""
    folder = tmp_path_factory.mktemp("exact")
    (folder / "long.yaml").write_text(EXACT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOW_UNTIL", str(folder))
        results = unreported(folder / "out", "long")
        bench("run", str(folder / "long.yaml"), "--results", str(results), "--plugin", str(SLOW))
    return losses(results)


def test_a_run_over_two_nodes_is_that_of_one_process(tmp_path: Path, fast: Path, exact: list[float]) -> None:
    results, run, job = over_two_nodes(tmp_path)
    assert f"job {job} running" in bench("status", "long", "--results", str(results))
    assert "NumNodes=2" in slurm("scontrol", "show", "job", job).split()
    fast.touch()
    wait_for(lambda: states(results) == ["done"], results)
    assert run.environment()["ranks"]["world"] == 2
    assert losses(results) == pytest.approx(exact, rel=1e-9)
    assert len(set(exact)) > 1, "the weights did not move"


@pytest.mark.parametrize(("rank", "nodes"), [(1, 1), (0, 2)], ids=["then on one node", "the first task"])
def test_a_killed_task_of_a_job_over_two_nodes_loses_nothing(
    rank: int, nodes: int, tmp_path: Path, fast: Path, exact: list[float]
) -> None:
    """The ranks that are left have the job queued again; it goes on from its checkpoint, and so does a new job."""
    results, run, job = over_two_nodes(tmp_path)
    os.kill(task(job, rank), signal.SIGKILL)
    wait_for(lambda: queue(job) == "PENDING", results)
    assert states(results) == ["interrupted"]
    assert 0 < run.status()["step"] < STEPS
    fast.touch()
    if nodes == 2:
        start_soon(job)
    else:
        slurm("scancel", job)
        bench("run", str(tmp_path / "long.yaml"), "--results", str(results), *ON_CPUS, "--plugin", str(SLOW))
    wait_for(lambda: states(results) == ["done"], results)
    assert run.environment()["ranks"]["world"] == nodes
    assert losses(results) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("command", SENT_BACK, ids=SENT_BACK_IDS)
def test_a_job_over_two_nodes_that_is_sent_back_goes_on(
    command: tuple[str, ...], tmp_path: Path, fast: Path, exact: list[float]
) -> None:
    results, run, job = over_two_nodes(tmp_path)
    slurm(*command, job)
    wait_for(lambda: queue(job) == "PENDING", results)
    assert run.status()["state"] == "interrupted"
    assert 0 < run.status()["step"] < STEPS
    fast.touch()
    start_soon(job)
    wait_for(lambda: states(results) == ["done"], results)
    assert losses(results) == pytest.approx(exact, rel=1e-9)


def test_a_cancelled_job_over_two_nodes_is_not_queued_again(tmp_path: Path, fast: Path) -> None:  # noqa: ARG001
    results, run, job = over_two_nodes(tmp_path)
    slurm("scancel", job)
    wait_for(lambda: queue(job) not in ("RUNNING", "COMPLETING"), results)
    assert queue(job) == "CANCELLED"
    assert run.status()["state"] == "interrupted"
