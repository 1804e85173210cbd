"""A lock on this machine's device: a run with a budget in seconds needs the device alone."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cores() -> int:
    """Return the CPU cores that this process may use; in a cluster's job these are its share of the node."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class InUse(Exception):
    """Another bench run uses the device, and one of the two needs it alone."""


@contextmanager
def device(alone: bool) -> Iterator[None]:
    """Hold this machine's device, `alone` or together with others. Raises InUse if another process conflicts.

    The operating system releases the lock when the process ends, however it ends.
    """
    path = Path(tempfile.gettempdir()) / f"robust-cl-bench-{os.getuid()}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            reason = "a budget in seconds needs it alone" if alone else "a run timed in seconds has it alone"
            raise InUse(f"this machine's device is in use by another bench run; {reason} ({path})") from error
        yield
