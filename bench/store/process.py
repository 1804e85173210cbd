"""Identity of the process that wrote a file, and whether it has ended."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def state_and_start(pid: int) -> tuple[str, str]:
    """Return the state letter and the start time (ticks since boot) of a process; both are empty without /proc.

    The start time distinguishes a process from a later one with the same number.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]


def pid_namespace() -> str:
    """Return the name of this process's PID namespace, or "" if the system has none.

    Containers on one host may share its name, but a process number means something in its own namespace only.
    """
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


@functools.cache
def machine_mark() -> str:
    """Return eight characters for this host and PID namespace: process numbers mean something within them only."""
    return hashlib.sha256(f"{socket.gethostname()} {pid_namespace()}".encode()).hexdigest()[:8]


def process_identity() -> dict[str, Any]:
    """Return what a claim records about the process that holds it."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "namespace": pid_namespace(),
        "pid": pid,
        "started": state_and_start(pid)[1],
        "token": uuid.uuid4().hex,
    }


def process_ended(pid: int) -> bool:
    """Return whether this machine has no process of this number. A zombie counts as running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def holder_is_dead(holder: Mapping[str, Any]) -> bool:
    """Return True only if this process can know that the holder is gone: on the same host, in the same namespace."""
    if holder["host"] != socket.gethostname() or holder["namespace"] != pid_namespace():
        return False
    if process_ended(holder["pid"]):
        return True
    state, started = state_and_start(holder["pid"])
    return state == "Z" or started != holder["started"]
