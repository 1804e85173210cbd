"""Finished is finished: no verb changes a byte of a run that is done, except `bench store gc`, which frees space."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.console.progress import Progress
from bench.launch.claimed import mark_failed, work_on_run
from bench.planning.planned import Planned
from bench.store import RunStore, Store
from bench.store.files import write_json
from bench.store.merge import merge_store

GROWING = {"hashes.json", "ledger.json"}  #: files of a run with what evaluations of later suites add


def state(store: Path) -> dict[str, tuple[int, int, bytes]]:
    """Inode, time of the last change and bytes of every file of every run, but claims."""
    paths = [path for path in sorted(store.glob("runs/*/**/*")) if path.is_file() and "claim" not in path.parts]
    return {
        str(path.relative_to(store)): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in paths
    }


def clip(planned: list[Planned]) -> Planned:
    """The run of clip that no other starts from."""
    (one,) = [one for one in planned if one.run.method == "clip" and one.run.budget.value == 128]
    return one


class Looking(Progress):
    """Notes the state of a run at every stage that it is shown to be in."""

    def __init__(self, run: RunStore) -> None:
        super().__init__()
        self.run, self.states = run, set[str]()

    def stage(self, name: str) -> None:
        self.states.add(self.run.status()["state"])

    def step(self, step: int, steps: int, loss: float, samples_per_second: float) -> None:
        self.states.add(self.run.status()["state"])


@pytest.mark.promise("a finished run does not change, whatever verb works on it")
def test_what_later_suites_and_other_verbs_do_changes_no_finished_run(store: Path, tiny: SimpleNamespace) -> None:
    before = state(store)
    weights = next(store.glob("runs/*/weights-050.safetensors"))
    more = ["--only", "clip", "--set", "evaluate.tasks=[zero_shot, retrieval]"]
    assert "runs: 1 done" in tiny.bench(store, "run", "SUITE", *more).stdout
    for verb in (["run", "SUITE"], ["report", "SUITE"], ["status", "SUITE"], ["store", "gc"]):
        assert tiny.bench(store, *verb).exit_code == 0
    suite = str(store.with_name("tiny.yaml"))
    assert tiny.bench(store, "eval", str(weights), "--suite", suite).exit_code == 0
    assert tiny.bench(store, "store", "import", str(store.rename(store.with_name("there")))).exit_code == 0
    store.with_name("there").rename(store.with_name("again"))
    after = state(store.with_name("again"))
    changed = {Path(name).name for name in before if after[name] != before[name]}
    assert changed == GROWING
    assert {Path(name).parts[2] for name in after.keys() - before.keys()} == {"evaluations"}


def test_weights_that_were_freed_are_made_again_beside_the_run(store: Path, tiny: SimpleNamespace) -> None:
    one = clip(tiny.planned(store, "evaluate.curve=[0.25, 0.5]"))
    assert tiny.bench(store, "store", "gc", "--yes").exit_code == 0
    run, before = Store(store).run(one.id), state(store)
    looking = Looking(run)
    asked = iter(range(10**6))
    stopped = work_on_run(one, Store(store), looking, lambda: next(asked) >= 2)
    assert stopped[0] == "interrupted"
    assert (run.path("again") / "checkpoint.pt").exists(), "the next call goes on from here"
    assert work_on_run(one, Store(store), looking, lambda: False)[0] == "done"
    assert looking.states == {"done"}
    after = state(store)
    assert {Path(name).name for name in before if after[name] != before[name]} == GROWING
    assert {record.at for record in run.records()} == {0.25, 0.5, 1.0}
    assert {Path(name).name for name in after.keys() - before.keys()} >= {"weights-025.safetensors"}
    assert not run.path("again").exists()


class Unplugged(Progress):
    """Fails when the evaluation begins."""

    def stage(self, name: str) -> None:
        raise RuntimeError(f"no terminal for {name}")


def test_no_failure_and_no_stop_touches_the_status(store: Path, tiny: SimpleNamespace) -> None:
    one = clip(tiny.planned(store))
    folder = next(Store(store).run(one.id).path("evaluations").iterdir())
    folder.rename(store / "away")
    before = state(store)
    assert work_on_run(one, Store(store), Progress(), lambda: True)[0] == "interrupted"
    assert mark_failed(one, Store(store), "no", {"type": "Process", "message": "killed"})[0] == "failed"
    assert work_on_run(one, Store(store), Unplugged(), lambda: False)[0] == "failed"
    assert state(store) == before
    assert Store(store).run(one.id).status()["state"] == "done"


def test_an_import_replaces_no_finished_run_whatever_the_other_store_claims(
    finished: Path, store: Path, tmp_path: Path
) -> None:
    for run in Store(store).runs():
        write_json(run.path("status.json"), {**run.status(), "step": 10**6})  # theirs is "further"
        write_json(run.path("ledger.json"), {**run.ledger(), "samples": 1})
        shutil.rmtree(run.path("evaluations"), ignore_errors=True)
    ours = Path(shutil.copytree(finished, tmp_path / "ours"))
    before = state(ours)
    found = merge_store(store, Store(ours))
    assert not found.advanced
    assert len(found.known) == 3
    assert state(ours) == before


def test_every_file_has_the_mode_of_the_umask(finished: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    wrong = [path for path in finished.rglob("*") if path.is_file() and path.stat().st_mode & 0o777 != 0o666 & ~umask]
    assert not wrong


def test_a_report_is_stale_once_an_evaluation_was_added(store: Path, tiny: SimpleNamespace) -> None:
    from reports.build import is_fresh

    assert tiny.bench(store, "report", "SUITE").exit_code == 0
    assert is_fresh("tiny", Store(store))
    evaluation = next(store.glob("runs/*/evaluations/*"))
    evaluation.rename(evaluation.with_name("moved"))
    assert not is_fresh("tiny", Store(store))
