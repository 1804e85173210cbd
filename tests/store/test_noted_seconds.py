"""Numbers that every step replaces, and lists that a suite leaves for `bench store gc`."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.store import Store, writing
from bench.store.format import FORMAT, mark
from bench.store.run import TRAIN_SECONDS, TRIALS


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=4))
def test_the_last_noted_seconds_are_read_to_the_bit(tmp_path_factory: object, values: list[float]) -> None:
    run = Store(tmp_path_factory.mktemp("s")).run("a")  # type: ignore[attr-defined]
    assert run.train_seconds() == 0.0
    with writing(run) as out:
        for value in values:
            out.note_train_seconds(value)
    assert run.train_seconds() == values[-1], "a shorter number leaves nothing of a longer one"
    assert run.path(TRAIN_SECONDS).stat().st_size == 25, "every write has one length"


def test_a_note_that_a_power_cut_emptied_is_zero(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a")
    with writing(run) as out:
        out.note_train_seconds(3.5)
    run.path(TRAIN_SECONDS).write_bytes(b"")
    assert run.train_seconds() == 0.0


def test_trials_add_up_until_the_plan_names_them(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.forget_trials("tuned")
    store.name_trials("tuned", ["b", "a"])
    store.name_trials("tuned", ["c", "a"])
    store.name_trials("other", ["z"])
    assert json.loads((tmp_path / "tuned" / TRIALS).read_text()) == ["a", "b", "c"]
    store.forget_trials("tuned")
    assert not (tmp_path / "tuned" / TRIALS).exists()
    assert json.loads((tmp_path / "other" / TRIALS).read_text()) == ["z"]


def test_a_plan_marks_the_store_and_a_mark_is_written_once(tmp_path: Path) -> None:
    Store(tmp_path).write_plan("s", {"cells": []})
    path = tmp_path / "store.json"
    assert json.loads(path.read_text()) == {"format": FORMAT}
    before = path.stat().st_ino
    mark(tmp_path)
    assert path.stat().st_ino == before, "it is not replaced by the same"
    path.write_text('{"format": 1}')
    mark(tmp_path)
    assert json.loads(path.read_text()) == {"format": FORMAT}


def test_half_written_runs_are_no_runs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert list(store.runs()) == []
    first, second = "a" * 64, "b" * 64
    for name in (second, first, "notes"):  # the last is no id, so it is no run
        with writing(store.run(name)) as out:
            out.set_status("done")
    (tmp_path / "runs" / ".tmp-c-1-x").mkdir()
    assert [run.id for run in store.runs()] == [first, second]
    run = store.run("a")
    (run.folder / "evaluations" / ".tmp-k-1-x").mkdir(parents=True)
    assert run.records() == []
