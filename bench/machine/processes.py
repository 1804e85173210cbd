"""Further processes, forked from one that has imported what they need, and signals that ask a process to stop."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

#: signals that terminals, shells and SLURM send to every process of a job
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR2}


def start_process(target: Callable[..., object], arguments: Sequence[Any], modules: Sequence[str]) -> BaseProcess:
    """Start a process that calls `target(*arguments)`, a function at the top of a module.

    The first call starts the process that all later ones are forked from, which imports `modules`. `STOP_SIGNALS`
    are blocked in both; a process that has handlers for them unblocks them. A script's main module is not run again, so
    the script needs no main guard.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    process = context.Process(target=target, args=tuple(arguments))
    main = sys.modules["__main__"]
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        sys.modules["__main__"] = ModuleType("__main__")
        process.start()
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    return process


@contextmanager
def stop_requests(ignore_second_sigint: bool = False) -> Iterator[list[int]]:
    """Yield a list that SIGTERM and SIGINT append to, as a request to write a checkpoint and stop.

    After the first of them SIGINT has Python's own handler again, so a second Ctrl-C ends the process at once;
    not with `ignore_second_sigint`.
    """
    requested: list[int] = []

    def note(number: int, _frame: object) -> None:
        requested.append(number)
        if not ignore_second_sigint:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
