"""Progress of a suite: bars on a terminal, plain lines if the output is piped."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TextIO

from bench.console.text import echo, visible

LINE_INTERVAL = 5.0  #: seconds between plain lines of the same stage


def duration(seconds: float) -> str:
    """Write seconds for a person: "42 s", "3:05 min", "2:10 h", "19.5 days"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    if whole < 48 * 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
    return f"{whole / 86400:,.1f} days"


@dataclass
class Pace:
    """Rate at which the runs of a suite end; all runs that are executed at the same time share it."""

    total: int = 0  #: runs, without those that were already complete
    done: int = 0
    began: float | None = None
    said: float | None = None

    def start(self, now: float, left: int) -> None:
        """Note that runs begin, `left` of them."""
        if self.began is None:
            self.began, self.total = now, left

    def end(self, now: float) -> str:
        """Note that a run ended; return how long the others will take at this pace, "" if there are none."""
        self.done += 1
        left = self.total - self.done
        if self.began is None or left < 1:
            return ""
        time_left = duration((now - self.began) / self.done * left)
        return f"{left} {'run' if left == 1 else 'runs'} left, about {time_left}"


class Progress:
    """Plain lines: one when a run starts, changes its stage or ends, and one every few seconds of training."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._prefix = ""
        self._stage = ""
        self._spoken = 0.0
        self._began: tuple[float, int] | None = None
        self._pace = Pace()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Plain lines leave nothing to close."""

    def beside(self) -> Progress:
        """Return the progress of one more run at the same time, on the same stream."""
        other = Progress(self._stream, self._clock)
        other._pace = self._pace
        return other

    def preparing(self, stage: str, what: str, number: int = 0, total: int = 0) -> None:
        """Note a stage before the runs, such as "planning", and its part `number` of `total`, from 1."""
        if stage != self._stage or self._clock() - self._spoken >= LINE_INTERVAL:
            self._prefix, self._stage = "", stage
            self._say(f"{stage} {number} of {total}: {what}" if total else f"{stage}: {what}")

    def run_started(self, title: str, index: int, total: int) -> None:
        """Note that the run of this title starts; `index` counts the `total` runs of the suite from 0."""
        self._prefix = f"[{index + 1}/{total}] {title}"
        self._stage, self._began = "", None
        self._pace.start(self._clock(), total - index)
        self._say("started")

    def stage(self, name: str) -> None:
        """Note what the run does now, such as "train" or "evaluate emoji/iid"."""
        if name != self._stage:
            self._stage, self._began = name, None
            self._say(name)

    def step(self, step: int, steps: int, loss: float, samples_per_second: float) -> None:
        """Note that `step` of `steps` are done."""
        left = self._left(step, steps)
        if self._clock() - self._spoken >= LINE_INTERVAL or step == steps:
            self._say(f"step {step}/{steps}, loss {loss:.4g}, {samples_per_second:,.0f} samples/s, {left} left")

    def measured(self, done: int, total: int) -> None:
        """Note that `done` of `total` evaluations are stored."""
        if self._clock() - self._spoken >= LINE_INTERVAL:
            self._say(f"{done} of {total} measured")

    def run_finished(self, title: str, state: str, message: str = "") -> None:
        """Note the final state of a run in the store's words, or "skipped" if it was complete before."""
        if not self._prefix.endswith(title):
            self._prefix = title  # it ended before it started, because of another run
        self._say(f"{state}: {message}" if message else state)
        now = self._clock()
        left = self._pace.end(now)
        if left and (self._pace.said is None or now - self._pace.said >= LINE_INTERVAL):
            self._pace.said = now
            echo(left, stream=self._stream)

    def _left(self, step: int, steps: int) -> str:
        """Return the time left at the pace since this stage's first step, "?" at that step itself."""
        now = self._clock()
        if self._began is None or step <= self._began[1]:
            self._began = (now, step)
            return "?"
        began, first = self._began
        return duration((now - began) / (step - first) * (steps - step))

    def _say(self, text: str) -> None:
        self._spoken = self._clock()
        echo(": ".join(filter(None, (self._prefix, text))), stream=self._stream)


class Bars(Progress):
    """Bars: one for the suite, and one per running run with its loss, samples per second and time left."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bars = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=Console(file=self._stream),
        )
        # three bars: of what is done before the runs, of the suite, and of a run
        self._before = self._bars.add_task("", total=None, note="", visible=False)
        self._suite = self._bars.add_task("suite", total=None, note="", visible=False)
        self._run = self._bars.add_task("", total=None, note="", visible=False)

    def beside(self) -> Progress:
        other = copy.copy(self)
        other._run = self._bars.add_task("", total=None, note="", visible=False)
        return other

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.update(self._before, visible=False)
        self._bars.stop()

    def preparing(self, stage: str, what: str, number: int = 0, total: int = 0) -> None:
        self._bars.update(
            self._before,
            description=visible(stage),
            note=visible(what),
            total=total or None,
            completed=number,
            visible=True,
        )

    def run_started(self, title: str, index: int, total: int) -> None:
        self._bars.update(self._before, visible=False)
        if self._bars.tasks[self._suite].total is None:  # the runs before the first one were complete
            self._bars.update(self._suite, total=total, completed=index, visible=True)
        self._pace.start(self._clock(), total - index)
        self._bars.reset(self._run, total=None, description=visible(title), note="", visible=True)

    def stage(self, name: str) -> None:
        self._bars.update(self._run, note=visible(name))

    def step(self, step: int, steps: int, loss: float, samples_per_second: float) -> None:
        note = f"loss {loss:.4g}, {samples_per_second:,.0f} samples/s"
        self._bars.update(self._run, total=steps, completed=step, note=note)

    def measured(self, done: int, total: int) -> None:
        self._bars.update(self._run, total=total, completed=done)

    def run_finished(self, title: str, state: str, message: str = "") -> None:
        self._bars.update(self._suite, advance=1, note=self._pace.end(self._clock()))
        self._bars.update(self._run, visible=False)
        line = f"{title}: {state}{': ' if message else ''}{message}"
        self._bars.console.print(visible(line), markup=False)


def progress_on(stream: TextIO | None = None) -> Progress:
    """Return bars if `stream` (default: stderr) is a terminal, else plain lines."""
    stream = stream or sys.stderr
    return Bars(stream) if stream.isatty() else Progress(stream)
