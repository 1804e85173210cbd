"""Which runs are made, which are complete, and what is refused before any of them starts."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

import bench
from bench.console.progress import Progress
from bench.launch.launchers import LaunchOptions, find_launcher
from bench.launch.launchers.local import ranks_of_a_run, refuse_odd_shares, refuse_sharing, run_all
from bench.planning import planner
from bench.planning.flops import StepPrices
from bench.planning.outcomes import RunOutcomes, is_complete
from bench.store import Store, writing
from bench.store.files import write_json
from bench.store.run import weights_name
from bench.suite.launcher_settings import SlurmSettings
from bench.suite.run import Run
from bench.suite.settings import Budget
from bench.training.inputs import Inputs

SUITE = """\
name: chosen
seeds: [0, 1]
budget: {samples: 192}
towers: {dim: 8, vocabulary: 300, image: %s}
train: {batch: 32, bn_group: 8}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
methods: [clip, ncu]
"""


@pytest.fixture
def suite(tmp_path: Path) -> bench.Suite:
    file = tmp_path / "chosen.yaml"
    file.write_text(SUITE % "tiny-resnet")
    return bench.load_suite(file)


@pytest.mark.parametrize(
    ("only", "seeds", "said"), [(["clap"], [], "--only clap: no entry"), ([], [2], "--seeds 2: suite chosen has 0, 1")]
)
def test_what_the_suite_does_not_have_starts_nothing(
    suite: bench.Suite, tmp_path: Path, only: list[str], seeds: list[int], said: str
) -> None:
    with pytest.raises(bench.UserError, match=said):
        bench.run_suite(suite, tmp_path / "out", only=only, seeds=seeds)
    with pytest.raises(bench.UserError, match="--launcher 'here' should be"):
        bench.run_suite(suite, tmp_path / "out", launcher="here")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_a_part_prices_that_part_alone_and_to_the_same_numbers(
    suite: bench.Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bench.dry_run(suite, tmp_path / "whole", gpu="a100")
    priced: list[tuple[str, int]] = []
    count = planner.step_prices

    def counted(run: Run, inputs: Inputs) -> StepPrices:
        priced.append((run.label, run.seed))
        return count(run, inputs)

    monkeypatch.setattr(planner, "step_prices", counted)
    part = bench.dry_run(suite, tmp_path / "part", only=["ncu"], seeds=[1], gpu="a100")
    assert priced == [("clip (reference)", 1), ("ncu", 1)]
    rows = [line.split() for line in part if "seed 1" in line]
    assert len(rows) == 2
    assert all(row in [line.split() for line in whole] for row in rows)
    assert Store(tmp_path / "part").plan("chosen") is None


def test_a_run_that_others_only_start_from_is_made_for_them_alone(suite: bench.Suite, tmp_path: Path) -> None:
    """It is not measured, and not made again while no run needs its weights, as after the import of an archive."""
    store = Store(tmp_path)
    bench.run_suite(suite, tmp_path, seeds=[0])
    (ncu,) = [cell for cell in store.plan("chosen")["cells"] if cell["method"] == "ncu" and cell["seed"] == 0]  # type: ignore[index]
    reference = store.run(ncu["reference_run"])
    assert not list(reference.records())
    assert reference.path(weights_name(1.0)).exists()
    shutil.rmtree(reference.folder)
    assert bench.run_suite(suite, tmp_path, seeds=[0]).done == []
    assert not reference.folder.exists()
    assert [line.split()[1] for line in bench.dry_run(suite, tmp_path, seeds=[0])[1:4]] == ["done"] * 3
    shutil.rmtree(store.run(ncu["run"]).folder)
    assert bench.run_suite(suite, tmp_path, seeds=[0]).done == [reference.id, ncu["run"]]


def test_a_row_without_steps_blocks_itself_alone(suite: bench.Suite, tmp_path: Path) -> None:
    short = suite.changed(budget=(Budget.model_validate({"samples": 64}),))  # half of it is the reference's, one step
    lines = bench.dry_run(short, tmp_path, gpus=8)
    assert sum("clip, clean" in line for line in lines) == 2
    (said,) = [line for line in lines if "ncu" in line]
    assert said.startswith("cannot be executed: ncu: budget.samples: 32 leaves no step for phase ")
    assert any(line.startswith("training ") and " on 8 A100, " in line for line in lines)
    with pytest.raises(bench.UserError, match=r"^ncu: budget\.samples: 32 leaves no step for phase"):
        bench.run_suite(short, tmp_path / "out")
    assert find_launcher("slurm").gpus(suite.changed(slurm=SlurmSettings(nodes=2, gpus=4)), None) == 8


def test_a_run_is_complete_when_all_that_its_suite_asks_is_stored(suite: bench.Suite, tmp_path: Path) -> None:
    store = Store(tmp_path)
    (one,) = planner.plan(suite.narrowed(["clip"], [0]).runs(), store)
    out = store.run(one.id)
    keys = one.evaluation_keys()
    assert keys
    with writing(out) as writer:
        writer.set_status("done")
        for key in keys:
            assert not is_complete(one, store), f"before {key}"
            writer.write_records(key, [], {})
    assert is_complete(one, store)
    for state in ("running", "interrupted", "failed"):
        write_json(out.path("status.json"), {"state": state})
        assert not is_complete(one, store), state


class Stopping(Progress):
    """Sends this process a signal at the first step, as a person or a cluster does."""

    def step(self, step: int, steps: int, loss: float, samples_per_second: float) -> None:
        if step == 1:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_stop_keeps_a_checkpoint_and_books_what_was_not_begun(suite: bench.Suite, tmp_path: Path) -> None:
    store = Store(tmp_path)
    planned = planner.plan(suite.narrowed(["clip"]).runs(), store)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    summary = run_all(planned, store, Stopping())
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert summary == RunOutcomes(interrupted=[one.id for one in planned])
    assert store.run(planned[0].id).status()["step"] == 2, "it had begun the step after the signal"
    assert store.run(planned[0].id).path("checkpoint.pt").exists()
    assert store.run(planned[1].id).status() == {"state": "missing"}


def test_every_outcome_has_its_list() -> None:
    summary = RunOutcomes()
    for state in ("done", "busy", "interrupted", "failed"):
        summary.add(state, f"run {state}", "")
        assert getattr(summary, state) == [f"run {state}"]
    assert RunOutcomes().done == [], "no two summaries share a list"


@pytest.mark.parametrize(
    ("gpus", "processes", "jobs", "said"),
    [
        (1, 1, 1, "--gpus and --processes: give one of them"),
        (2, None, 1, "--gpus 2: this machine has 0 GPUs that torch can use; --processes 2 trains on as many CPU"),
        (1, None, 3, "--gpus 1 x --jobs 3: this machine has 0 GPUs"),
    ],
)
def test_processes_that_the_machine_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch, gpus: int | None, processes: int | None, jobs: int, said: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(bench.UserError) as caught:
        ranks_of_a_run(gpus, processes, jobs)
    assert str(caught.value).startswith(said)


def test_one_process_a_run_unless_more_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert [ranks_of_a_run(None, asked, 2) for asked in (None, 1, 3)] == [1, 1, 3]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert [ranks_of_a_run(gpus, None, 2) for gpus in (None, 1, 2)] == [1, 1, 2]
    with pytest.raises(bench.UserError, match=r"--gpus 3 x --jobs 2: this machine has 4 GPUs that torch can use$"):
        ranks_of_a_run(3, None, 2)
    with pytest.raises(bench.UserError, match="--processes 2: is for machines without GPUs, this one has 4"):
        ranks_of_a_run(None, 2, 1)


def test_a_batch_divides_among_ranks_in_whole_groups_where_towers_have_batchnorm(
    suite: bench.Suite, tmp_path: Path
) -> None:
    store = Store(tmp_path / "out")
    planned = planner.plan(suite.narrowed(["clip"], [0]).runs(), store)
    for count in (1, 2, 4):
        refuse_odd_shares(planned, count)
    with pytest.raises(bench.UserError, match="batch: 32 does not divide among 3 processes"):
        refuse_odd_shares(planned, 3)
    with pytest.raises(bench.UserError, match="bn_group: 8 does not divide the 4 pairs of batch 32 that each of 8"):
        refuse_odd_shares(planned, 8)
    (tmp_path / "vit.yaml").write_text(SUITE % "tiny-vit")
    plain = planner.plan(bench.load_suite(tmp_path / "vit.yaml").narrowed(["clip"], [0]).runs(), store)
    refuse_odd_shares(plain, 8)


@pytest.mark.parametrize("options", [LaunchOptions(jobs=2), LaunchOptions(ranks=2)])
def test_only_budgets_in_seconds_mind_company(options: LaunchOptions) -> None:
    refuse_sharing(False, options)
    refuse_sharing(True, LaunchOptions())
    with pytest.raises(bench.UserError, match="device seconds"):
        refuse_sharing(True, options)
