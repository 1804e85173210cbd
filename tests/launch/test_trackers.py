"""Metrics and records that are streamed: every stored number once, however often the run was interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.errors import UserError
from bench.launch.trackers import TRACKERS, refuse_missing_tracker, tracked_writer
from bench.store import ClaimLost, Record, RunStore, RunWriter, Store, writing


def a_record(at: float, value: float) -> Record:
    return Record("r", at, "emoji/iid", "zero_shot/concept", "top1", "cosine", value, 9, None, None, True, "1", "c")


def lines_of(first: int, last: int) -> list[dict[str, object]]:
    return [
        {"step": step, "phase": "train", "loss": 1 / (1 + step), "terms": {"a": step * 2.0}}
        for step in range(first, last)
    ]


def interrupted(run: RunStore, name: str) -> None:
    """A run of 41 steps that logs each tenth: it dies after 3 lines, and goes on from step 20."""
    with writing(run) as writer, tracked_writer(writer, name, "clip, 40 % shuffled captions, seed 0", 41) as out:
        for line in lines_of(0, 3):
            out.append_metrics({**line, "step": int(str(line["step"])) * 10})
    with writing(run) as writer:
        writer.truncate_metrics(20)
    with writing(run) as writer, tracked_writer(writer, name, "clip, 40 % shuffled captions, seed 0", 41) as out:
        for line in lines_of(2, 4):
            out.append_metrics({**line, "step": int(str(line["step"])) * 10})
        out.write_records("half", [a_record(0.5, 0.25)], {})
        out.write_records("end", [a_record(1.0, 0.75)], {})
        out.write_records("end", [a_record(1.0, 0.5)], {})  # published before: the first stands


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs the extra tensorboard")
def test_tensorboard_has_every_point_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = Store(tmp_path).run("a" * 64)
    interrupted(run, "tensorboard")
    (folder,) = (tmp_path / "tensorboard").iterdir()
    assert folder.name == "clip_40_shuffled_captions_seed_0-aaaaaaaa"
    found = EventAccumulator(str(folder)).Reload()
    points = {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert points == {
        "loss": [(10 * n, pytest.approx(1 / (1 + n))) for n in range(4)],
        "terms/a": [(10 * n, 2.0 * n) for n in range(4)],
        "emoji/iid/zero_shot/concept/top1/cosine": [(21, 0.25), (41, 0.75)],
    }
    assert [line["step"] for line in run.metrics()] == [0, 10, 20, 30]


def shut_out_of(out: RunWriter) -> None:
    """What the next holder of a claim does first, after a long silence."""
    out.own_claim.fence.path.rename(out.folder / f".tmp-{uuid.uuid4().hex}")


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs the extra tensorboard")
@pytest.mark.parametrize("opened", [True, False])
def test_a_process_that_lost_its_claim_adds_no_point(tmp_path: Path, opened: bool) -> None:
    """It sleeps before it opens the files, or with the files open; another one goes on."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = Store(tmp_path).run("a" * 64)
    with writing(run) as sleeper, tracked_writer(sleeper, "tensorboard", "clip", 40) as out:
        if opened:
            out.append_metrics({"step": 0, "loss": 1.0})
        shut_out_of(sleeper)
        with writing(run) as writer, tracked_writer(writer, "tensorboard", "clip", 40) as other:
            other.append_metrics({"step": 1, "loss": 2.0})
        with pytest.raises(ClaimLost):
            out.append_metrics({"step": 7, "loss": 7.0})
    (folder,) = (tmp_path / "tensorboard").iterdir()
    points = [(point.step, point.value) for point in EventAccumulator(str(folder)).Reload().Scalars("loss")]
    assert points == ([(0, 1.0), (1, 2.0)] if opened else [(1, 2.0)])
    assert len(list(folder.iterdir())) == 1


def test_a_service_is_sent_nothing_and_no_end_after_the_claim_is_lost(tmp_path: Path) -> None:
    sent: list[object] = []

    class Service:
        def line(self, step: int, values: Mapping[str, float]) -> None:
            sent.append((step, dict(values)))

        def record(self, name: str, at: float, step: int, value: float) -> None:
            sent.append((name, value))

        def close(self) -> None:
            sent.append("end")

    TRACKERS["service"] = lambda *_: Service()
    try:
        run = Store(tmp_path).run("a" * 64)
        with writing(run) as writer, tracked_writer(writer, "service", "clip", 40) as out:
            out.append_metrics({"step": 0, "loss": 1.0})
            shut_out_of(writer)
            for write in (
                lambda: out.append_metrics({"step": 1, "loss": 2.0}),
                lambda: out.write_records("end", [a_record(1.0, 0.75)], {}),
            ):
                with pytest.raises(ClaimLost):
                    write()
        with writing(run) as writer, tracked_writer(writer, "service", "clip", 40) as out:
            shut_out_of(writer)
            with pytest.raises(ClaimLost):
                out.append_metrics({"step": 1, "loss": 2.0})
    finally:
        del TRACKERS["service"]
    assert sent == [(0, {"loss": 1.0})]


@pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra wandb")
def test_weights_and_biases_has_every_point_once_offline(tmp_path: Path) -> None:
    script = Path(__file__).with_name("wandb_offline.py")
    env = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "PYTHONPATH": str(Path(__file__).parent)}
    found = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=1200, env=env)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split("\n")[-3:-1] == [
        "[0, 10, 20, 30]",
        "{'at 50%': 0.25, 'end': 0.75}",
    ]


def test_a_tracker_that_is_not_there_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"--track tensorbord: .*did you mean 'tensorboard'"):
        refuse_missing_tracker("tensorbord")
    monkeypatch.setattr("bench.launch.trackers.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install 'robust-cl-bench\[wandb\]'"):
        refuse_missing_tracker("wandb")


@pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra wandb")
def test_weights_and_biases_without_a_login_is_refused(tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")} | {"HOME": str(tmp_path)}
    command = [sys.executable, "-m", "bench", "run", "smoke", "--results", str(tmp_path / "out"), "--track", "wandb"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=1200, env=env)
    assert found.returncode == 2, found.stderr
    assert "set WANDB_MODE=offline" in found.stderr


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs the extra tensorboard")
def test_a_run_streams_what_it_stores(
    start_bench: Callable[..., Any], tmp_path: Path, unreported: Callable[[Path, str], Path]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    changes = ("--only", "clip", "--set", "noise.rates=[0.0]", "--set", "evaluate.tasks=[zero_shot]")
    command = ("run", "smoke", "--results", unreported(tmp_path, "smoke"), "--track", "tensorboard", *changes)
    code, output = start_bench(*command).finish()
    assert code == 0, output
    (run,) = Store(tmp_path).runs()
    (folder,) = (tmp_path / "tensorboard").iterdir()
    events = EventAccumulator(str(folder)).Reload()
    assert [point.step for point in events.Scalars("loss")] == [line["step"] for line in run.metrics()]
    values = {record.value for record in run.records() if record.at == 1.0}
    last = {events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"] if tag.startswith("emoji")}
    assert sorted(last) == pytest.approx(sorted(values))
