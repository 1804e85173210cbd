"""Who uses this machine's device: a run that is budgeted in seconds needs it alone."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cores() -> int:
    """CPU cores that this process may use: a job's share of its node, not the whole of it."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class InUse(Exception):
    """Another bench run has the device, and one of the two needs it alone."""


@contextmanager
def device(alone: bool) -> Iterator[None]:
    """Hold this machine's device, together with others or `alone`. Raises InUse where the two meet.

    The lock is the operating system's and goes with its process, however that ends.
    """
    path = Path(tempfile.gettempdir()) / f"robust-cl-bench-{os.getuid()}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            reason = "a budget in seconds needs it alone" if alone else "a run timed in seconds has it alone"
            raise InUse(f"this machine's device is in use by another bench run; {reason} ({path})") from error
        yield
