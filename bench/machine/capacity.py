"""The cores and the memory that this process may use: those of the machine, or less in a container or a cluster's job.

Linux limits groups of processes by files below /sys/fs/cgroup (version 2). A group lies in others, and no process has
more than any of these allows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")  #: names the group of this process
MEMORY_INFO = Path("/proc/meminfo")


def cores() -> int:
    """Return the CPU cores that this process may use, at least 1; in a cluster's job its share of the node."""
    own = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    for group in _groups("cpu.max"):
        quota, period = (group / "cpu.max").read_text().split()
        if quota != "max":
            own = min(own, max(1, int(quota) // int(period)))
    return own


def free_memory() -> int | None:
    """Return the bytes that this process and those it starts can still allocate; None if unknown."""
    free = _entry(MEMORY_INFO, "MemAvailable:")
    for group in _groups("memory.max") if free is not None else ():
        limit, taken = (group / "memory.max").read_text().strip(), _entry(group / "memory.stat", "anon")
        if limit != "max":
            free = min(free or 0, max(0, int(limit) - (taken or 0)))
    return free


def _entry(path: Path, name: str) -> int | None:
    """Return the bytes that a file of lines "NAME NUMBER [kB]" gives for a name; None without the file or the name."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    return next((int(word[1]) * (1024 if word[2:] == ["kB"] else 1) for word in words if word[0] == name), None)


def _groups(name: str) -> Iterator[Path]:
    """Yield the group of this process and those that it lies in, as far as they have a file of this name."""
    try:
        own = [line.removeprefix("0::/") for line in OWN_CGROUP.read_text().splitlines() if line.startswith("0::/")]
    except OSError:
        return
    for group in own:
        folders = (CGROUPS / group, *(CGROUPS / group).parents)
        yield from (folder for folder in folders if folder.is_relative_to(CGROUPS) and (folder / name).is_file())
