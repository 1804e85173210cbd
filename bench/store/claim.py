"""Who works on a run: claims with a heartbeat, taken over when their holder is gone.

Claims of one run are numbered files, `claim-1`, `claim-2`, ...; the highest number is the holder. A file is made by
hard link, which fails if the name exists, so of any number of processes that want to follow the same dead holder
exactly one gets the next number. The highest file is never deleted (a released claim stays and says so): numbers
only rise, and a slow process that tries an old number sees the higher one and steps back. No lock server, no flock.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.store.files import CLAIM_FILE, clear_scratch, scratch, sync, write_json

STALE_AFTER = 600.0  #: seconds without a heartbeat after which a claim may be taken over
HEARTBEAT = 20.0  #: seconds between heartbeats


class Busy(Exception):
    """Another live process holds the run."""

    def __init__(self, host: str, pid: int) -> None:
        super().__init__(f"held by process {pid} on {host}")
        self.host = host
        self.pid = pid


def _process(pid: int) -> tuple[str, str]:
    """Return the state letter and the start time (ticks since boot) of a process; both are empty without /proc.

    The start time distinguishes a process from a later one with the same number.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]


def _namespace() -> str:
    """Return the name of this process's PID namespace, or "" if the system has none.

    Containers on one host may share its name, but a process number means something in its own namespace only.
    """
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _identity() -> dict[str, Any]:
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "namespace": _namespace(),
        "pid": pid,
        "started": _process(pid)[1],
        "token": uuid.uuid4().hex,
        "released": False,
    }


def _is_dead(holder: dict[str, Any]) -> bool:
    """Return True only if this process can know that the holder is gone: on the same host, in the same namespace."""
    if holder["host"] != socket.gethostname() or holder["namespace"] != _namespace():
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    state, started = _process(holder["pid"])
    return state == "Z" or started != holder["started"]


def _newest(folder: Path) -> int:
    """Return the highest claim number in the folder, or 0 if nobody ever claimed it."""
    numbers = [name[6:] for name in os.listdir(folder) if name.startswith("claim-")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        holder: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return holder


def holder(folder: Path, stale_after: float = STALE_AFTER, now: float | None = None) -> dict[str, Any] | None:
    """Return the live holder of a run's folder, or None if it has none: never claimed, released, dead or silent.

    A holder is silent after `stale_after` seconds without a heartbeat. `now` is the time of the file system's clock;
    the default is the time of this machine.
    """
    if not folder.is_dir():
        return None
    path = folder / f"claim-{_newest(folder)}"
    latest = _read(path)
    if latest is None or latest["released"] or _is_dead(latest):
        return None
    try:
        silent = (time.time() if now is None else now) - path.stat().st_mtime
    except FileNotFoundError:
        return None
    return None if silent > stale_after else latest


class Claim:
    """The right to work on a run, as a context manager. `lost` becomes true if another process takes it over."""

    def __init__(self, folder: Path, stale_after: float = STALE_AFTER, heartbeat: float = HEARTBEAT) -> None:
        self.folder = folder
        self.stale_after = stale_after
        self.heartbeat = heartbeat
        self.number = 0
        self._identity = _identity()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"claim {folder.name}", daemon=True)

    @property
    def path(self) -> Path:
        return self.folder / f"claim-{self.number}"

    @property
    def lost(self) -> bool:
        """Whether another process took the claim over after too long a silence. The work has to stop then."""
        return _newest(self.folder) != self.number

    def __enter__(self) -> Claim:
        self._acquire()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if not self.lost:
            write_json(self.path, {**self._identity, "released": True})

    def _acquire(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        number = _newest(self.folder)
        with scratch(self.folder / CLAIM_FILE) as mine:
            mine.write_text(json.dumps(self._identity))
            sync(mine)
            # Both times come from the file system, so the clocks of hosts that share a disk need not agree.
            self._refuse(holder(self.folder, self.stale_after, now=mine.stat().st_mtime))
            self.number = number + 1
            try:
                os.link(mine, self.path)
            except FileExistsError:
                self._refuse(_read(self.path), always=True)
        if self.lost:
            self.path.unlink(missing_ok=True)
            self._refuse(_read(self.folder / f"claim-{_newest(self.folder)}"), always=True)
        for path in self.folder.glob("claim-*"):
            if path != self.path:
                path.unlink(missing_ok=True)
        clear_scratch(self.folder)

    def _refuse(self, other: dict[str, Any] | None, always: bool = False) -> None:
        if other is not None:
            raise Busy(other["host"], other["pid"])
        if always:
            raise Busy("unknown host", 0)

    def _beat(self) -> None:
        while not self._stop.wait(self.heartbeat):
            with contextlib.suppress(
                OSError
            ):  # a disk that is unreachable for a moment costs one heartbeat, not the run
                os.utime(self.path)
