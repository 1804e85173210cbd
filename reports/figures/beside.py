"""Figures of a report, drawn in processes beside the one that makes it, on Linux as many as there are cores."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from subprocess import PIPE, Popen
from typing import IO

from reports.figures.histograms import Learned
from reports.figures.pictures import Picture
from reports.results import Results

Drawn = Mapping[str, Picture | None]  #: by name; None for a figure that there are no numbers for
#: what a drawing process imports before it has the results; writers of files would load when they are first used
_DRAWING = (
    *("reports.figures.figure_registry", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf"),
    *("PIL.PngImagePlugin", "PIL.WebPImagePlugin"),
)
#: for numpy, which needs no more here; a process with one thread can be copied
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Work:
    """The figures that are to be drawn, and what they show."""

    results: Results
    diagnostics: Learned
    names: Sequence[str]
    widths: Sequence[str]

    def draw(self, name: str) -> Picture | None:
        from reports.figures.figure_registry import drawers
        from reports.figures.figure_style import in_sizes

        return in_sizes(drawers(self.results, self.diagnostics)[name], self.widths)

    def all(self) -> Drawn:
        """Draw all in this process."""
        return {name: self.draw(name) for name in self.names}


@contextmanager
def beside(many: bool, early: bool) -> Iterator[Callable[[Work], Callable[[], Drawn]]]:
    """Yield a function that begins to draw, and returns another that waits for the figures.

    Only `many` are worth other processes, which take a second to start. If they are started `early`, they import what
    they need while this process reads the store.
    """
    with ExitStack() as started:
        process = _start(started) if many and early else None

        def begin(work: Work) -> Callable[[], Drawn]:
            return _begin(process or _start(started), work) if many and work.names else work.all

        yield begin


def _start(started: ExitStack) -> Popen[bytes]:
    # No fork, which would copy torch's threads half, and none of multiprocessing's processes, which run the script that
    # asked for the report once more.
    environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", f"from {__name__} import main; main()"]
    process = started.enter_context(Popen(command, stdin=PIPE, stdout=PIPE, env=environment))
    started.callback(process.kill)  # before it is waited for
    return process


def _begin(process: Popen[bytes], work: Work) -> Callable[[], Drawn]:
    """Send the work to the other process; return a function that waits for its figures."""
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as pipe:  # a process that failed is noticed when its figures are due
        pipe.write(pickle.dumps(work))
    return partial(_wait, process, work)


def _wait(process: Popen[bytes], work: Work) -> Drawn:
    """Return the figures that the other process drew; draw them here if it failed."""
    assert process.stdout is not None
    drawn = _received(process.stdout)
    return drawn if process.wait() == 0 and drawn.keys() == set(work.names) else work.all()


def _received(pipe: IO[bytes]) -> dict[str, Picture | None]:
    """Return the figures of all pickles in a pipe from our own process; a pickle from a file is never read."""
    drawn: dict[str, Picture | None] = {}
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            drawn |= pickle.load(pipe)
    return drawn


def main() -> None:
    """Draw the work that stdin has and write the figures to stdout, both pickled, in a process of its own."""
    gc.disable()
    for name in _DRAWING:
        import_module(name)
    work: Work = pickle.load(sys.stdin.buffer)
    places, filled = os.pipe()  # whoever is free takes the next figure
    os.write(filled, b"".join(place.to_bytes(2, "big") for place in range(len(work.names))))
    os.close(filled)
    others = [_forked(work, places) for _ in range(min(_cores(), len(work.names)) - 1)]
    _draw(work, places, sys.stdout.buffer)
    failed = False
    for pid, pipe in others:
        pickle.dump(_received(pipe), sys.stdout.buffer)
        failed |= os.waitpid(pid, 0)[1] != 0
    sys.stdout.flush()
    os._exit(int(failed))  # to tidy up takes a while, in which the other process would wait


def _forked(work: Work, places: int) -> tuple[int, IO[bytes]]:
    """Start a copy of this process, which has imported everything; return its id and the pipe of its figures."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, os.fdopen(read, "rb")
    status = 1
    try:
        os.close(read)
        with os.fdopen(write, "wb") as pipe:
            _draw(work, places, pipe)
        status = 0
    finally:
        os._exit(status)


def _draw(work: Work, places: int, pipe: IO[bytes]) -> None:
    while place := os.read(places, 2):
        name = work.names[int.from_bytes(place, "big")]
        picture = work.draw(name)
        pickle.dump({name: picture and replace(picture, figure=None)}, pipe)


def _cores() -> int:
    """Processes that may draw at the same time; elsewhere than on Linux a copy of a process is not safe to use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
