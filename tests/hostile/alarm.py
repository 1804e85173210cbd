"""Ends what hangs, so that the test that found it fails and the others go on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Hang(BaseException):
    """It took longer than it may; no `except Exception` swallows it."""


@contextmanager
def ended_within(seconds: int) -> Iterator[None]:
    """Raise Hang in the main thread if the block takes longer."""

    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
