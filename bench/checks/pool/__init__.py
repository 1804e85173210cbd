"""Starts the ranks of `bench check` when they are first needed, and asks them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bench.checks.subject import Failed
from bench.checks.trainings import Training
from bench.machine.private_folder import ScratchFolder

PATIENCE = 900.0  #: seconds to wait for one task, on a busy machine too, before the ranks are given up
Results = dict[str, list[dict[str, Any]]]  #: layout -> for each rank: training's name -> its results


class Ranks:
    """Three processes under gloo. A context manager: leaving it ends them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._scratch: ScratchFolder | None = None
        self._folder = Path()
        self._numbers = itertools.count()
        self._asked: dict[str, str] = {}

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, name: str, trainings: Mapping[str, Training]) -> None:
        """Start these trainings in all layouts; `answer(name)` waits for them. A second call does nothing."""
        if name in self._asked:
            return
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        task = f"task{next(self._numbers)}"
        line = json.dumps({"id": task, "trainings": {key: asdict(one) for key, one in trainings.items()}})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self._asked[name] = task

    def answer(self, name: str) -> Results:
        """Return the results of `ask`. Raises Failed if a rank raised or hangs; the next `ask` starts new ranks."""
        from bench.checks.pool.rank import LAYOUTS

        task = self._asked.pop(name)
        if not self._wait(f"done {task}\n"):
            message = self._last_words()
            self.close()
            raise Failed(f"a rank failed: {message}")
        results = {
            layout: [
                torch.load(self._folder / f"{task}-{layout}-{rank}.pt", weights_only=True)
                for rank in range(first, first + world)
            ]
            for layout, (first, world, _) in LAYOUTS.items()
        }
        for path in self._folder.glob(f"{task}-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return results

    def _last_words(self) -> str:
        errors = sorted(self._folder.glob("error-*.txt"), key=lambda path: path.stat().st_mtime)
        for path in (*errors, self._folder / "stderr.txt"):
            lines = path.read_text().strip().splitlines()
            if lines:
                return lines[-1]
        return f"no answer in {PATIENCE:g} s"

    def start(self) -> None:
        """Start the ranks unless they run already; they import their modules while the caller goes on."""
        if self._process is not None:
            return
        self._scratch = ScratchFolder("check")
        self._folder = self._scratch.path
        with (self._folder / "stderr.txt").open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.checks.pool.rank", str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def _wait(self, line: str) -> bool:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while selector.select(PATIENCE):
                received = self._process.stdout.readline()
                if received in (line, ""):
                    return received == line
        return False

    def close(self) -> None:
        """End the ranks and remove what they wrote."""
        if self._process is None:
            return
        process, self._process, self._asked = self._process, None, {}
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # they have nothing to save, and an orderly end takes seconds
        process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        if self._scratch is not None:
            self._scratch.remove()
