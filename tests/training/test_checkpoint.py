"""Checkpoints and kept weights: what is written is read back to the same bits, and nothing else fits."""

from __future__ import annotations

import copy
import errno
import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.hashing import file_hash
from bench.launch.execute import _leave_checkpoint
from bench.store import ClaimLost, Damaged, RunStore, RunWriter, Store, writing
from bench.store.reading import refuse_bad_archive
from bench.suite.settings import SNAPSHOTS, TrainSettings
from bench.towers.build import OpenClipTowers
from bench.training import checkpoint
from bench.training.ledger import Ledger
from bench.training.optimizer import make_optimiser, set_trainable
from methods.protocol import Facts, Phase
from methods.sogclr import Sogclr

from ..towers.small import fresh_towers

Writer = Callable[[RunStore], RunWriter]


def made(seed: int, dim: int = 8) -> tuple[Sogclr, OpenClipTowers, torch.optim.Optimizer]:
    """A method with state of its own, its towers, and their optimiser."""
    towers = fresh_towers(dim=dim, seed=seed)
    method = Sogclr(Sogclr.Config(), Facts(rows=40, batch=8, dim=dim, seed=seed))
    set_trainable(method, towers, Phase())
    return method, towers, make_optimiser(method, towers, Phase(), TrainSettings(batch=8))


def steps(method: Sogclr, towers: OpenClipTowers, optimiser: torch.optim.Optimizer, count: int) -> None:
    """Optimiser steps on drawn gradients, the same for the same start."""
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        for parameter in (*towers.parameters(), *method.parameters()):
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimiser.step()


def save(
    out: RunWriter,
    step: int,
    method: Sogclr,
    towers: OpenClipTowers,
    optimiser: torch.optim.Optimizer,
    ledger: Ledger | None = None,
) -> None:
    with checkpoint.CheckpointWriter(out, 9) as checkpoints:
        checkpoints.save(step, method, towers, optimiser, ledger or Ledger())


def tensors(*modules: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {f"{n}.{name}": x.clone() for n, one in enumerate(modules) for name, x in one.state_dict().items()}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(x, other[name]) for name, x in one.items())


@settings(deadline=None)
@given(st.sampled_from((*SNAPSHOTS, 1.0)), st.sampled_from((*SNAPSHOTS, 1.0)))
def test_weights_are_named_by_percent_so_that_names_sort_as_budgets_do(one: float, other: float) -> None:
    names = [checkpoint.weights_name(at) for at in (one, other)]
    assert (names[0] < names[1]) == (one < other)
    assert int(names[0].removeprefix("weights-").removesuffix(".safetensors")) == one * 100
    assert len({len(checkpoint.weights_name(at)) for at in (*SNAPSHOTS, 1.0)}) == 1


def test_a_checkpoint_gives_the_steps_that_follow_to_the_bit(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    assert checkpoint.load_checkpoint(out) is None
    method, towers, optimiser = made(0)
    steps(method, towers, optimiser, 3)
    ledger = Ledger(samples=24, flops=3000, train_seconds=1.5, peak_memory_bytes=99)
    save(out, 3, method, towers, optimiser, ledger)
    kept = tensors(method, towers)
    steps(method, towers, optimiser, 2)
    assert not equal(kept, tensors(method, towers))

    saved = checkpoint.load_checkpoint(out)
    assert saved is not None
    assert saved["step"] == 3
    assert Ledger(**saved["ledger"]) == ledger
    other = made(1)
    other[0].load_state_dict(saved["method"])
    other[1].load_state_dict(saved["towers"])
    other[2].load_state_dict(saved["optimiser"])
    assert equal(kept, tensors(other[0], other[1]))
    steps(*other, 2)
    assert equal(tensors(method, towers), tensors(other[0], other[1])), "moments and step counts are part of it"


def test_a_later_checkpoint_takes_the_place_of_the_earlier_in_one_step(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    method, towers, optimiser = made(0)
    for step in (1, 2):
        save(out, step, method, towers, optimiser)
    saved = checkpoint.load_checkpoint(out)
    assert saved is not None
    assert saved["step"] == 2
    names = {path.name for path in out.folder.iterdir() if "claim" not in path.name}
    assert names == {checkpoint.CHECKPOINT_FILE, "status.json"}
    assert (out.status()["state"], out.status()["step"], out.status()["steps"]) == ("running", 2, 9)


class Gate(RunWriter):
    """A run's writer whose `before` is called when a checkpoint is about to be written."""

    def __init__(self, out: RunWriter, before: Callable[[], object]) -> None:
        super().__init__(out.own_claim)
        self.before = before

    def write_path(self, name: str, writer: Callable[[Path], object]) -> None:
        def written(path: Path) -> None:
            path.write_bytes(b"the beginning of a checkpoint")
            self.before()
            writer(path)

        super().write_path(name, written)


def test_a_checkpoint_holds_the_state_of_its_step_while_training_goes_on(tmp_path: Path, writer: Writer) -> None:
    out, gate = writer(Store(tmp_path).run("a")), threading.Event()
    model = made(0)
    steps(*model, 2)
    kept, moments = tensors(*model[:2]), copy.deepcopy(model[2].state_dict())
    with checkpoint.CheckpointWriter(Gate(out, lambda: gate.wait(60)), 9) as checkpoints:
        checkpoints.save(2, *model, Ledger(samples=16))
        steps(*model, 3)
        assert not checkpoints.due(1e-9), "one is being written"
        assert checkpoints.due(0), "with 0 there is one after every step"
        assert "step" not in out.status(), "a status names what is published"
        assert not out.path(checkpoint.CHECKPOINT_FILE).exists()
        gate.set()
        checkpoints.wait()
        assert out.status()["step"] == 2
        assert checkpoints.due(1e-9)
        assert not checkpoints.due(1e9)
    assert not equal(kept, tensors(*model[:2]))
    saved = checkpoint.load_checkpoint(out)
    assert saved is not None
    assert (saved["step"], saved["ledger"]["samples"]) == (2, 16)
    assert equal(
        kept, {f"{n}.{name}": x for n, part in enumerate(("method", "towers")) for name, x in saved[part].items()}
    )
    for number, state in moments["state"].items():
        assert equal(state, saved["optimiser"]["state"][number])


def test_the_copy_gives_the_bytes_of_the_state(tmp_path: Path) -> None:
    model = made(0)
    steps(*model, 2)
    model[1].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    whole = torch.arange(12.0)
    shared = {"whole": whole, "part": whole[3:9:2], "again": [whole.view(3, 4).T], "none": torch.empty(0), "n": 3}
    state = {"towers": model[1].state_dict(), "optimiser": model[2].state_dict(), "shared": shared}
    written = []
    for number, one in enumerate((state, checkpoint.host_copy(state))):
        (tmp_path / str(number)).mkdir()
        torch.save(one, tmp_path / str(number) / "state")  # whose name is in the file
        written.append((tmp_path / str(number) / "state").read_bytes())
    assert written[0] == written[1]
    copied = checkpoint.host_copy(state)
    copied["shared"]["whole"][5] = -1
    assert copied["shared"]["part"][1] == -1, "what shares memory shares it in the copy"
    assert whole[5] == 5


def test_an_error_of_the_thread_is_that_of_the_next_call(tmp_path: Path, writer: Writer) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out, model = writer(Store(tmp_path).run("a")), made(0)
    save(out, 1, *model)
    for call in ("due", "save", "wait", "end"):
        checkpoints = checkpoint.CheckpointWriter(Gate(out, full), 9)
        with pytest.raises(OSError, match="No space left on device"), checkpoints:  # noqa: PT012
            checkpoints.save(2, *model, Ledger())
            wait_for(lambda of=checkpoints: of._writing.done())
            if call == "due":
                checkpoints.due(1e9)
            elif call == "save":
                checkpoints.save(3, *model, Ledger())
            elif call == "wait":
                checkpoints.wait()
        assert checkpoint.checkpoint_step(out) == out.status()["step"] == 1, call
    assert [path.name for path in out.fence.path.iterdir()] == ["holder.json"], "what was begun is gone"


def test_an_error_of_training_waits_for_the_checkpoint_and_is_the_one_that_counts(
    tmp_path: Path, writer: Writer
) -> None:
    out, gate = writer(Store(tmp_path).run("a")), threading.Event()
    with pytest.raises(KeyError), checkpoint.CheckpointWriter(Gate(out, lambda: gate.wait(60)), 9) as checkpoints:  # noqa: PT012
        checkpoints.save(4, *made(0), Ledger())
        threading.Timer(0.2, gate.set).start()
        raise KeyError
    assert checkpoint.checkpoint_step(out) == 4
    assert not any(thread.name.startswith(checkpoint.THREAD_PREFIX) for thread in threading.enumerate())


def test_a_process_that_lost_its_claim_meanwhile_publishes_nothing(tmp_path: Path, writer: Writer) -> None:
    run = Store(tmp_path).run("a")
    out, begun, gate = writer(run), threading.Event(), threading.Event()
    save(out, 1, *made(0))
    with checkpoint.CheckpointWriter(Gate(out, lambda: (begun.set(), gate.wait(60))), 9) as checkpoints:
        checkpoints.save(2, *made(1), Ledger())
        assert begun.wait(60)
        os.utime(out.own_claim.path, (1, 1))  # it was silent for long
        with writing(run) as other:
            before = {path: path.read_bytes() for path in run.folder.iterdir() if path.is_file()}
            gate.set()
            with pytest.raises(ClaimLost):
                checkpoints.wait()
            assert {path: path.read_bytes() for path in run.folder.iterdir() if path.is_file()} == before
            assert checkpoint.checkpoint_step(other) == 1


def test_a_kill_while_a_checkpoint_is_written_costs_that_one(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a")
    pid = os.fork()
    if not pid:
        try:
            with writing(run) as out:
                save(out, 1, *made(0))
                killed = Gate(out, lambda: os.kill(os.getpid(), signal.SIGKILL))
                save(killed, 2, *made(0))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert checkpoint.checkpoint_step(run) == run.status()["step"] == 1
    with writing(run) as out:
        save(out, 2, *made(0))
        assert checkpoint.checkpoint_step(out) == 2


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_damaged_checkpoint_is_an_error_and_not_a_fresh_start(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    save(out, 1, *made(0))
    path = out.path(checkpoint.CHECKPOINT_FILE)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(Damaged, match=r"checkpoint\.pt: is not a checkpoint: "):
        checkpoint.load_checkpoint(out)


@pytest.mark.promise("a changed bit of a checkpoint is found before a run goes on")
def test_no_flipped_bit_changes_what_a_checkpoint_gives(tmp_path: Path) -> None:
    """`repair` compares the checksums of the archive before a run goes on; what they do not cover changes nothing."""
    run = Store(tmp_path).run("a")
    path = run.path(checkpoint.CHECKPOINT_FILE)
    path.parent.mkdir(parents=True)
    state = {"step": 3, "towers": {"a": torch.rand(8)}, "method": {}, "optimiser": {"lr": 0.5}, "ledger": {}}
    torch.save(state, path)
    content, found = path.read_bytes(), 0
    for place in range(0, len(content), 4):
        changed = bytearray(content)
        changed[place] ^= 1 << place // 4 % 8
        path.write_bytes(changed)
        try:
            refuse_bad_archive(path)
            loaded = checkpoint.load_checkpoint(run)
        except Damaged:
            found += 1
        else:
            assert loaded is not None
            torch.testing.assert_close(loaded, state, rtol=0, atol=0)
    assert found > len(content) // 4 / 3


def test_an_archive_that_is_no_checkpoint_is_moved_aside_and_said(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    torch.save({"step": 1}, out.path(checkpoint.CHECKPOINT_FILE))
    said = _leave_checkpoint(out, 8, [1.0])
    assert "it should hold step, ledger" in said
    assert "moved to checkpoint.pt.damaged-1: training starts from the beginning" in said
    assert _leave_checkpoint(out, 8, [1.0]) == ""


@pytest.mark.parametrize("at", [0.25, 1.0])
def test_kept_weights_are_of_towers_and_method_to_the_bit(tmp_path: Path, writer: Writer, at: float) -> None:
    out = writer(Store(tmp_path).run("a"))
    method, towers, optimiser = made(0)
    steps(method, towers, optimiser, 1)
    checkpoint.save_weights(out, at, method, towers)
    path = out.path(checkpoint.weights_name(at))
    other, theirs, _ = made(1)
    assert not equal(tensors(method, towers), tensors(other, theirs))
    checkpoint.load_weights(path, other, theirs)
    assert equal(tensors(method, towers), tensors(other, theirs))
    assert file_hash(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert out.hashes() == {path.name: file_hash(path)}, "a run that is not finished has hashes of its weights"
    checkpoint.save_weights(writer(Store(tmp_path).run("b")), at, other, theirs)
    assert file_hash(Store(tmp_path).run("b").path(path.name)) == file_hash(path)


def test_weights_of_other_towers_are_refused(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    method, towers, _ = made(0)
    checkpoint.save_weights(out, 1.0, method, towers)
    wider, theirs, _ = made(0, dim=16)
    with pytest.raises(RuntimeError, match="size mismatch"):
        checkpoint.load_weights(out.path(checkpoint.weights_name(1.0)), wider, theirs)


def test_what_is_kept_does_not_share_memory_with_what_trains_on(tmp_path: Path, writer: Writer) -> None:
    out = writer(Store(tmp_path).run("a"))
    method, towers, optimiser = made(0)
    before = tensors(method, towers)
    checkpoint.save_weights(out, 0.5, method, towers)
    steps(method, towers, optimiser, 1)
    checkpoint.load_weights(out.path(checkpoint.weights_name(0.5)), method, towers)
    assert equal(before, tensors(method, towers))
