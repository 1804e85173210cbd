"""The nursery of a `bench` process that tests forked: forked as well, for it would import for seconds what is here.

`tests/launch/test_nursery.py` and `test_side_by_side_gives_the_bytes_of_in_turn` start one as users do.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from bench.launch import nursery
from bench.launch.rank import STOPPING


class _Process:
    """As much of `subprocess.Popen` as a nursery uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def prepare() -> None:
    """Fork a process that waits to be this process's first nursery; this process must have one thread."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        ours.close()
        _, descriptors, _, _ = socket.recv_fds(theirs, 1, 1)
        theirs.close()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # as they are where a team starts its nursery
        sys.exit(nursery._serve(*descriptors) if descriptors else 0)
    theirs.close()
    waiting = [_Process(pid)]

    def start(command: list[str], pass_fds: list[int]) -> Any:
        if not waiting:
            return subprocess.Popen(command, pass_fds=pass_fds)
        socket.send_fds(ours, [b"!"], pass_fds)
        ours.close()
        return waiting.pop()

    nursery.subprocess = SimpleNamespace(Popen=start)  # type: ignore[attr-defined]
