"""The fork server of a `bench` process that tests forked: forked as well, for it would import for seconds what is here.

`test_side_by_side_gives_the_bytes_of_in_turn` starts one as users do.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from multiprocessing import util

from bench.machine.processes import STOP_SIGNALS


def prepare() -> None:
    """Fork a process that waits to be this process's fork server; this process must have one thread."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        ours.close()
        request, given, _, _ = socket.recv_fds(theirs, 1 << 20, 2)
        if request:
            _serve(*json.loads(request), given)
        os._exit(0)
    theirs.close()
    start = util.spawnv_passfds

    def spawn(path: str, arguments: list[str], descriptors: list[int]) -> int:
        if "forkserver" not in arguments[-1]:
            return int(start(path, arguments, descriptors))
        socket.send_fds(ours, [json.dumps([arguments[-1], descriptors]).encode()], descriptors)
        util.spawnv_passfds = start
        return pid

    util.spawnv_passfds = spawn


def _serve(code: str, wanted: list[int], given: list[int]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # as they are where `start` starts one
    high = [os.dup2(one, 900 + number) for number, one in enumerate(given)]  # where no wanted number is taken
    for one, number in zip(high, wanted, strict=True):
        os.dup2(one, number)
        os.close(one)
    exec(code)  # which multiprocessing would have given to a new interpreter
