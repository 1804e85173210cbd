"""Runs in object storage: one owner at a time, and nothing of an owner that slept through a takeover is published."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from bench.errors import UserError
from bench.store import Busy, Store
from bench.store.remote import history as histories
from bench.store.remote.archives import fetch, keep_state, publish
from bench.store.remote.history import Held, History, Watch, claim
from bench.store.remote.objects import Objects

ID = "ab" * 32
THREADS = 8


@pytest.fixture(params=["memory", "file", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Objects]:
    """Empty storage. `memory` is shared by the process, so it gets a name of its own there and is emptied."""
    name = f"t{uuid.uuid4().hex}"
    if request.param == "s3":
        request.getfixturevalue("s3_server")
        Objects(f"s3://{name}")._fs.mkdir(name)
    there = Objects(f"file://{tmp_path}/objects" if request.param == "file" else f"{request.param}://{name}")
    yield there
    if request.param == "memory" and there._fs.exists(there._root):
        there._fs.rm(there._root, recursive=True)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def elsewhere(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> Held:
    """A claim by a process of another host, of which this one can know the beat alone. Its thread does not run."""
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "elsewhere")
        held = claim(History(objects, ID), Watch())
    objects.write(f"runs/{ID}/beat/{held.number}", b"1")
    return held


def made(folder: Path, text: str) -> Path:
    """The folder of a run in a store, with a checkpoint."""
    run = Store(folder).run(ID).folder
    run.mkdir(parents=True, exist_ok=True)
    (run / "checkpoint.pt").write_text(text)
    return run


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, other threads have their turn after one looked whether a name is free."""
    look = MemoryFileSystem.exists

    def exists(store: MemoryFileSystem, path: str, **options: object) -> bool:
        found = bool(look(store, path, **options))
        time.sleep(0)
        return found

    monkeypatch.setattr(MemoryFileSystem, "exists", exists)


@pytest.mark.usefixtures("restless")
def test_of_many_that_create_an_object_at_once_one_does(objects: Objects) -> None:
    names = [f"names/{number}" for number in range(20)]
    barrier, made_by = threading.Barrier(THREADS), list[str]()

    def create() -> None:
        barrier.wait()
        made_by.extend([name for name in names if objects.create(name, b"1")])

    threads = [threading.Thread(target=create) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made_by) == sorted(names)


@pytest.mark.usefixtures("restless")
def test_of_many_that_claim_at_once_one_owns_the_run(objects: Objects) -> None:
    """Twelve races, each after the end of the one before, so that a higher number is raced for as well."""
    for _ in range(12):
        barrier, owners, refused = threading.Barrier(THREADS), list[Held](), list[Busy]()

        def race(
            barrier: threading.Barrier = barrier, owners: list[Held] = owners, refused: list[Busy] = refused
        ) -> None:
            history = History(objects, ID)
            barrier.wait()
            try:
                owners.append(claim(history, Watch()))
            except Busy as busy:
                refused.append(busy)

        threads = [threading.Thread(target=race) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(owners), len(refused)) == (1, THREADS - 1)
        assert owners[0].end("released")
    assert History(objects, ID).last()[0] == 24


def test_a_claim_is_taken_over_only_after_a_beat_that_did_not_change_for_long(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    first, history, watch = elsewhere(objects, monkeypatch), History(objects, ID), Watch(clock)

    def refused() -> None:
        with pytest.raises(Busy, match="on elsewhere"):
            claim(history, watch)

    clock.now = 10_000.0  # what was before this process looked counts for nothing
    refused()
    clock.now += histories.STALE_AFTER
    refused()
    objects.write(history.name(f"beat/{first.number}"), b"2")
    clock.now += 1.0
    refused()
    clock.now += histories.STALE_AFTER + 1.0
    with claim(history, watch) as second:
        assert second.number == first.number + 1
        assert objects.read(history.name(f"beat/{second.number}")) in (None, b"1")
    assert history.last()[1]["state"] == "released"


def test_who_slept_through_a_takeover_publishes_nothing(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sleeper's claim looks dead; the second owner begins with its checkpoint; then the sleeper wakes."""
    sleeper, history = elsewhere(objects, monkeypatch), History(objects, ID)
    slow = made(tmp_path / "slow", "of the sleeper")
    keep_state(sleeper, slow, 1)
    watch = Watch(clock := Clock())
    with pytest.raises(Busy):
        claim(history, watch)
    clock.now = histories.STALE_AFTER + 1.0
    second = claim(history, watch)
    here = Store(tmp_path / "here")
    fetch(history, second.owner, here)
    assert here.run(ID).path("checkpoint.pt").read_text() == "of the sleeper"
    keep_state(second, made(tmp_path / "here", "of the second"), 1)
    (slow / "checkpoint.pt").write_text("late")
    keep_state(sleeper, slow, 2)
    assert not publish(sleeper, slow, True, evaluations=[])
    assert not sleeper.end("released")
    fetch(history, history.last()[1], there := Store(tmp_path / "there"))
    assert there.run(ID).path("checkpoint.pt").read_text() == "of the second"
    assert publish(second, here.run(ID).folder, True, evaluations=[])
    number, last = history.last()
    assert (number, last["state"], last["result"]["number"]) == (3, "done", 2)
    assert objects.names(history.name("result")) == ["2.tar"]
    assert objects.names(history.name("state")) == []
    fetch(history, last, there, finished=True)
    assert there.run(ID).path("checkpoint.pt").read_text() == "of the second"


def test_an_owner_that_was_replaced_is_told(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "HEARTBEAT", 0.01)
    history, told = History(objects, ID), threading.Event()
    with claim(history, Watch(), told.set):
        assert not told.is_set()
        assert history.append(2, "claimed", {"host": "h", "namespace": "", "pid": 1, "started": "", "token": ""})
        assert told.wait(60)
    assert history.last()[0] == 2, "it wrote an end, though the run is another's"


def test_a_result_that_was_changed_is_refused(objects: Objects, tmp_path: Path) -> None:
    history = History(objects, ID)
    with claim(history, Watch()) as held:
        assert publish(held, made(tmp_path / "here", "true"), True, evaluations=[])
    objects.write(history.name("result/1.tar"), b"forged")
    with pytest.raises(UserError, match=r"result/1.tar: has another sha256"):
        fetch(history, history.last()[1], Store(tmp_path / "there"))
    objects.write(history.name("history/2"), b"{}")
    with pytest.raises(UserError, match=r"history/2: is no entry"):
        history.last()


def test_storage_without_safe_claims_is_refused(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    objects.refuse_unsafe()
    monkeypatch.setattr(objects, "create", lambda name, content: objects.write(name, content) is None)
    with pytest.raises(UserError, match="two workers could own a run"):
        objects.refuse_unsafe()
    with pytest.raises(UserError, match="should be one of file://, memory://, s3://"):
        Objects("ftp://host/results")
