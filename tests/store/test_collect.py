"""`bench store gc` on real runs: what goes, what stays, and that runs are complete or can be made so afterwards."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.errors import UserError
from bench.store import Store, process
from bench.store.claim import STALE_AFTER
from bench.store.collect import CACHED_FEATURES, LEFTOVERS, OLD_CHECKPOINTS, OLD_WEIGHTS, UNNAMED_RUNS, collect_garbage

KEPT = {"weights-100.safetensors", "ledger.json", "settings.json", "status.json", "metrics.jsonl"}


def ids(store: Path) -> set[str]:
    return {run.id for run in Store(store).runs()}


def aged(path: Path) -> None:
    old = path.stat().st_mtime - STALE_AFTER - 60
    os.utime(path, (old, old))


def test_it_shows_by_default_and_changes_nothing(store: Path, tiny: SimpleNamespace) -> None:
    before = tiny.contents(store)
    result = tiny.bench(store, "store", "gc")
    sizes = {
        kind: sum(item.bytes for item in collect_garbage(Store(store))[0] if item.kind == kind)
        for kind in (OLD_CHECKPOINTS, OLD_WEIGHTS)
    }
    assert result.exit_code == 0
    assert f"3  {sizes[OLD_CHECKPOINTS] / 2**20:.1f} MiB  checkpoints of complete runs" in result.stdout
    assert f"would free {sum(sizes.values()) / 2**20:.1f} MiB; --yes does it" in result.stdout
    assert tiny.contents(store) == before
    assert sizes[OLD_CHECKPOINTS] == sum(path.stat().st_size for path in store.rglob("checkpoint.pt"))


def test_afterwards_every_run_is_complete(store: Path, tiny: SimpleNamespace) -> None:
    before = tiny.contents(store)
    assert tiny.bench(store, "store", "gc", "--yes").exit_code == 0
    after = tiny.contents(store)
    gone = {Path(name).name for name in before.keys() - after.keys()}
    assert gone == {"checkpoint.pt", "weights-025.safetensors", "weights-050.safetensors", "weights-075.safetensors"}
    assert all(before[name] == digest for name, digest in after.items())
    cells = {cell["run"] for cell in Store(store).plan("tiny")["cells"]}  # type: ignore[index]
    for run in Store(store).runs():  # the one that ncu starts from among them
        assert {path.name for path in run.folder.iterdir()} >= KEPT
        assert bool(run.records()) == (run.id in cells)
    assert "nothing to do: all 3 runs are done" in tiny.bench(store, "run", "SUITE").stdout
    assert tiny.bench(store, "report", "SUITE").exit_code == 0
    assert "would free 0.0 MiB\n" in tiny.bench(store, "store", "gc").stdout


def test_what_is_asked_for_later_is_made_again(store: Path, tiny: SimpleNamespace) -> None:
    tiny.bench(store, "store", "gc", "--yes")
    before = tiny.contents(store)
    task = tiny.bench(store, "run", "SUITE", "--only", "clip", "--set", "evaluate.tasks=[zero_shot, retrieval]")
    assert "runs: 1 done" in task.stdout
    assert not list(store.rglob("checkpoint.pt"))  # measured on the final weights, not trained again
    point = tiny.bench(store, "run", "SUITE", "--only", "clip", "--set", "evaluate.curve=[0.25, 0.5]")
    assert "runs: 1 done" in point.stdout
    assert not list(store.rglob("checkpoint.pt"))  # trained again in a folder that is gone now
    (run,) = [path.parent for path in store.rglob("weights-025.safetensors")]
    assert {record.at for record in Store(store).run(run.name).records()} == {0.25, 0.5, 1.0}
    after = tiny.contents(store)
    changed = {name for name, digest in before.items() if name.startswith("runs/") and after[name] != digest}
    assert {Path(name).name for name in changed} == {"hashes.json", "ledger.json"}  # which grow


def test_a_damaged_run_is_left_alone_and_named(store: Path, tiny: SimpleNamespace) -> None:
    first, *_ = Store(store).runs()
    first.path("ledger.json").write_text("{")
    result = tiny.bench(store, "store", "gc", "--yes")
    assert result.exit_code == 1
    (named,) = [line for line in result.stderr.splitlines() if line.startswith("left alone: ")]
    assert named.startswith(f"left alone: {first.path('ledger.json')}: ")
    assert len(list(store.rglob("checkpoint.pt"))) == 1


def test_weights_that_a_suite_has_still_to_measure_are_kept(store: Path, tiny: SimpleNamespace) -> None:
    tiny.bench(store, "run", "SUITE", "--plan-only", "--set", "evaluate.curve=[0.25]")
    runs = {item.path.parent.name for item in collect_garbage(Store(store))[0] if item.kind == OLD_WEIGHTS}
    assert runs == {cell["reference_run"] for cell in Store(store).plan("tiny")["cells"] if cell["reference_run"]}  # type: ignore[index]
    plan = json.loads((store / "tiny" / "plan.json").read_text())
    for run in {cell["run"] for cell in plan["cells"]}:
        assert (store / "runs" / run / "weights-025.safetensors").exists()


def test_runs_that_no_suite_names_go_whole(store: Path, tiny: SimpleNamespace) -> None:
    old = ids(store)
    (own,) = [one.id for one in tiny.planned(store) if one.run.method == "clip" and one.run.budget.value == 128]
    tiny.bench(store, "run", "SUITE", "--plan-only", "--set", "methods=[clip]")
    assert {item.path.name for item in collect_garbage(Store(store))[0] if item.kind == UNNAMED_RUNS} == old - {own}
    result = tiny.bench(store, "store", "gc", "--yes")
    for identity in old - {own}:
        assert f"{identity[:16]}  " in result.stdout
    assert os.listdir(store / "runs") == [own]
    assert "nothing to do" in tiny.bench(store, "run", "SUITE", "--set", "methods=[clip]").stdout


def test_trials_of_a_search_that_goes_on_are_kept(store: Path) -> None:
    """No plan names them until every row is chosen."""
    path = store / "tiny" / "plan.json"
    plan = json.loads(path.read_text())
    trials = [cell["run"] for cell in plan["cells"]]
    path.write_text(json.dumps({**plan, "cells": []}))
    assert {item.kind for item in collect_garbage(Store(store))[0]} >= {UNNAMED_RUNS}
    Store(store).name_trials(
        "tiny", [*trials, *(cell["reference_run"] for cell in plan["cells"] if cell["reference_run"])]
    )
    assert UNNAMED_RUNS not in {item.kind for item in collect_garbage(Store(store))[0]}
    Store(store).forget_trials("tiny")
    assert {item.kind for item in collect_garbage(Store(store))[0]} >= {UNNAMED_RUNS}


def test_what_a_trial_starts_from_is_kept(store: Path) -> None:
    """No cell names it, the trial does."""
    for path in store.glob("*/plan.json"):
        plan = json.loads(path.read_text())
        starts = [cell["reference_run"] for cell in plan["cells"] if cell["reference_run"]]
        for cell in plan["cells"]:
            cell["reference_run"] = None
        trials = [{"changes": {}, "run": "0" * 64, "reference_run": start, "score": 0.1} for start in starts]
        chosen = {"chosen": {}, "score": 0.1, "trials": trials, "ledger": {"flops": 1, "train_seconds": 1}}
        choice = {**chosen, "points": 1, "default": None, "edge": []}
        rung = {"budget": "128 samples", "settings": 1, "seeds": [1000]}
        search = {"rungs": [rung], "rate": 0.4, "lr": [1e-4, 1e-2], "weight_decay": None}
        plan["tuning"] = {**search, "methods": {"ncu": choice}}
        path.write_text(json.dumps(plan))
    assert UNNAMED_RUNS not in {item.kind for item in collect_garbage(Store(store))[0]}


def test_a_run_that_a_process_works_on_is_left_alone(store: Path, tiny: SimpleNamespace) -> None:
    tiny.bench(store, "run", "SUITE", "--plan-only", "--set", "methods=[clip]")
    unnamed = next(item.path for item in collect_garbage(Store(store))[0] if item.kind == UNNAMED_RUNS)
    with Store(store).run(unnamed.name).claim() as claim:
        for delete in (False, True):
            assert unnamed not in {item.path for item in collect_garbage(Store(store), delete=delete)[0]}
        assert not claim.fence.lost
    assert unnamed.exists()
    collect_garbage(Store(store), delete=True)
    assert not unnamed.exists()


def test_an_unfinished_run_keeps_its_checkpoint(tmp_path: Path, tiny: SimpleNamespace) -> None:
    store = tmp_path / "results"
    one = tiny.planned(store)[0]
    tiny.bench(store, "run", "SUITE", "--plan-only")
    tiny.interrupted(one, store, after=5)
    assert collect_garbage(Store(store), delete=True) == ([], [])
    assert Store(store).run(one.id).path("checkpoint.pt").exists()


def test_leftovers_go_when_they_are_old(store: Path) -> None:
    run = next(Store(store).runs())
    run.path("features/abc").mkdir(parents=True)
    run.path("features/abc/x.safetensors").write_bytes(b"xyz")
    places = [run.folder, store, store / "runs", store / "tiny"]
    for place in places:
        for name in (".tmp-old", ".tmp-new"):
            (place / name).mkdir()
            (place / name / "file").write_bytes(b"1234")
        for path in (place / ".tmp-old" / "file", place / ".tmp-old"):
            aged(path)
    found = [item for item in collect_garbage(Store(store))[0] if item.kind in (LEFTOVERS, CACHED_FEATURES)]
    old = {place / ".tmp-old" for place in places}
    assert {(item.path, item.bytes) for item in found if item.path in old} == {(path, 4) for path in old}
    assert {item.path for item in found} == old | {run.path("features")}
    collect_garbage(Store(store), delete=True)
    assert not any(item.path.exists() for item in found)
    assert all((place / ".tmp-new").exists() for place in places)


def test_what_a_killed_process_of_this_machine_left_goes_at_once(store: Path, tiny: SimpleNamespace) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    (store / "tiny" / "figures").mkdir(exist_ok=True)
    names = [f".tmp-radar.pdf-{process.machine_mark()}-{pid}-0123abcd" for pid in (ended.pid, os.getpid())]
    for name in names:
        (store / "tiny" / "figures" / name).write_bytes(b"1234")
    assert re.search(rf"^1 +0.0 MiB +{LEFTOVERS}$", tiny.bench(store, "store", "gc").stdout, re.MULTILINE)
    collect_garbage(Store(store), delete=True)
    assert [(store / "tiny" / "figures" / name).exists() for name in names] == [False, True]


def test_where_nothing_says_what_is_needed_nothing_goes(store: Path, tiny: SimpleNamespace) -> None:
    before = tiny.contents(store / "runs")
    path = store / "tiny" / "plan.json"
    path.write_text(path.read_text()[:-50])
    with pytest.raises(UserError, match=r"plan.json: cannot be read, so what it needs is unknown"):
        tiny.bench(store, "store", "gc", "--yes")
    path.unlink()
    with pytest.raises(UserError, match="no suite has a plan here"):
        tiny.bench(store, "store", "gc", "--yes")
    assert tiny.contents(store / "runs") == before
