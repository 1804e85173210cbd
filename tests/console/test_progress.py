"""Bars on a terminal, few lines in a pipe."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re

from bench.console import progress

TITLE = "clip, clean, seed 0"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_come_at_stages_and_every_few_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress.Progress(stream, clock) as shown:
        shown.run_started(TITLE, 0, 2)
        shown.stage("train")
        for step in range(1, 32):
            clock.now += 0.5
            shown.step(step, 31, 2.0 / step, 1234.5)
        shown.stage("evaluate")
        shown.stage("evaluate")
        for done in range(1, 7):
            clock.now += 2
            shown.measured(done, 6)
        shown.run_finished(TITLE, "done", "")
        shown.run_finished("ncu, clean, seed 0", "failed", "no reference")
    assert stream.getvalue().splitlines() == [
        "[1/2] clip, clean, seed 0: started",
        "[1/2] clip, clean, seed 0: train",
        "[1/2] clip, clean, seed 0: step 10/31, loss 0.2, 1,234 samples/s, 10 s left",
        "[1/2] clip, clean, seed 0: step 20/31, loss 0.1, 1,234 samples/s, 6 s left",
        "[1/2] clip, clean, seed 0: step 30/31, loss 0.06667, 1,234 samples/s, 0 s left",
        "[1/2] clip, clean, seed 0: step 31/31, loss 0.06452, 1,234 samples/s, 0 s left",
        "[1/2] clip, clean, seed 0: evaluate",
        "[1/2] clip, clean, seed 0: 3 of 6 measured",
        "[1/2] clip, clean, seed 0: 6 of 6 measured",
        "[1/2] clip, clean, seed 0: done",
        "1 run left, about 28 s",
        "ncu, clean, seed 0: failed: no reference",
    ]


def test_what_comes_before_the_runs_is_said_at_once_and_then_every_few_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    shown = progress.Progress(stream, clock)
    shown.preparing("looking for data", "cc3m")
    for number in range(1, 5):
        shown.preparing("planning", f"run {number}", number, 4)
        clock.now += 2
    shown.run_started(TITLE, 0, 1)
    shown.preparing("planning", "run 1", 1, 1)
    assert stream.getvalue().splitlines() == [
        "looking for data: cc3m",
        "planning 1 of 4: run 1",
        "planning 4 of 4: run 4",
        "[1/1] clip, clean, seed 0: started",
        "planning 1 of 1: run 1",
    ]


def test_a_resumed_stage_has_its_own_pace() -> None:
    stream, clock = io.StringIO(), Clock()
    shown = progress.Progress(stream, clock)
    shown.run_started(TITLE, 0, 1)
    for step in (90, 91, 100):
        clock.now += 10
        shown.step(step, 100, 1.0, 1.0)
    assert [line.rsplit(", ", 1)[1] for line in stream.getvalue().splitlines()[1:]] == [
        "? left",
        "1:30 min left",
        "0 s left",
    ]


def test_a_terminal_gets_bars() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        shown = progress.progress_on(terminal)
        assert isinstance(shown, progress.Bars)
        with shown:
            shown.preparing("planning", "clip on RN50", 1, 24)
            shown._bars.refresh()
            shown.run_started(TITLE, 0, 2)
            shown.stage("train")
            shown.step(3, 4, 0.5, 4096.0)
            shown.run_finished(TITLE, "done", "[50 %] of 2")
    written = b""
    with os.fdopen(ours, "rb", buffering=0) as reader, contextlib.suppress(OSError):  # a terminal ends with EIO
        while chunk := reader.read(65536):  # and hands out what it has in pieces
            written += chunk
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode())
    assert "clip, clean, seed 0: done: [50 %] of 2" in text
    assert "suite" in text
    assert "1/24" in text
    assert "clip on RN50" in text
    assert "planning" not in text[text.index("suite") :]
    assert "1 run left, about 0 s" in text
    assert "1/2" in text


def test_runs_beside_each_other_have_one_pace() -> None:
    stream, clock = io.StringIO(), Clock()
    shown = progress.Progress(stream, clock)
    teams = [shown.beside(), shown.beside()]
    for index, team in enumerate(teams):
        team.run_started(f"run {index}", 10 + index, 16)
    for index, team in enumerate(teams):
        clock.now += 30
        team.run_finished(f"run {index}", "done")
    assert [line for line in stream.getvalue().splitlines() if "left" in line] == [
        "5 runs left, about 2:30 min",
        "4 runs left, about 2:00 min",
    ]


def test_a_pipe_gets_lines() -> None:
    assert type(progress.progress_on(io.StringIO())) is progress.Progress


def test_durations() -> None:
    assert [progress.duration(seconds) for seconds in (0.4, 59.4, 61, 3599.6, 7260)] == [
        "0 s",
        "59 s",
        "1:01 min",
        "1:00 h",
        "2:01 h",
    ]
