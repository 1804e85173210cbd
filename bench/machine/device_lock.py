"""A lock on this machine's device: a run with a budget in seconds needs the device alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bench.machine.private_folder import open_file, private_folder

LOCK = "device"  #: file of the private folder


class InUse(Exception):
    """Another bench run uses the device, and one of the two needs it alone."""


@contextmanager
def device(alone: bool) -> Iterator[None]:
    """Hold this machine's device, `alone` or together with others. Raises InUse if another process conflicts.

    The operating system releases the lock when the process ends, however it ends. Raises UserError if the private
    folder of the lock is not this user's alone.
    """
    descriptor = open_file(LOCK)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            reason = "a budget in seconds needs it alone" if alone else "a run timed in seconds has it alone"
            path = private_folder() / LOCK
            raise InUse(f"this machine's device is in use by another bench run; {reason} ({path})") from error
        yield
    finally:
        os.close(descriptor)
