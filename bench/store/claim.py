"""Run ownership: claims with a heartbeat, taken over when their holder is gone.

A claim is the folder `claim` of a run. In it lies one folder, which its holder's token names, with `holder.json`: who
holds it, touched by the heartbeat. A process makes all of this under a name of its own, and renames it to `claim`. That
fails unless `claim` is empty or absent, so of any number of processes exactly one succeeds. Before that, it takes away
the inner folder of a holder that is gone; the token keeps a slow process from taking away another one's. No lock
server, no flock.

A holder may only appear to be dead. It therefore writes through its inner folder (bench/store/fence.py), which it loses
with the claim; the heartbeat and the release go through it as well.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import uuid
from pathlib import Path
from typing import Any

from bench.store import files, process, reading
from bench.store.fence import CLAIM, CLAIM_PREFIX, HOLDER, Busy, Fence

STALE_AFTER = 600.0  #: seconds without a heartbeat after which a claim may be taken over
HEARTBEAT_SECONDS = 20.0  #: seconds between heartbeats
CLAIM_ATTEMPTS = 5  #: to claim a folder that other processes delete at the same time
_UNKNOWN_HOST = "an unknown host, as its claim is damaged; the run is free ten minutes after the last heartbeat"
_UNKNOWN = {"host": _UNKNOWN_HOST, "namespace": "", "pid": 0, "started": "", "token": ""}


def live_holder(folder: Path) -> dict[str, Any] | None:
    """Return the live holder of a run's folder, or None if it has none: never claimed, released, dead or silent.

    A holder is silent if its last heartbeat is more than `STALE_AFTER` seconds away from the present time, both by the
    clock of the file system, because hosts that share a disk need not agree on the time.
    """
    return next((alive for one in _holders(folder) if (alive := _alive(one)) is not None), None)


def _holders(folder: Path) -> list[Path]:
    return sorted((folder / CLAIM).glob("*"))


def _alive(own: Path, now: float | None = None) -> dict[str, Any] | None:
    """Return the holder of a claim, given its inner folder, or None if that process is gone."""
    identity = _read(own / HOLDER)
    if identity is None or process.holder_is_dead(identity):
        return None
    try:
        beat = (own / HOLDER).lstat().st_mtime
    except FileNotFoundError:
        return None
    silent = abs((files.file_system_time(own.parents[1]) if now is None else now) - beat)
    return identity if silent <= STALE_AFTER else None


def _read(path: Path) -> dict[str, Any] | None:
    """Return the holder that a claim names, or None if there is no such file; of a damaged one, `_UNKNOWN`."""
    try:
        content = reading.read_json(path)
        if content is None:
            return None
        fits = all(type(content[name]) is type(value) for name, value in _UNKNOWN.items())
    except (reading.Damaged, KeyError, TypeError):
        return _UNKNOWN
    return content if fits and 0 < content["pid"] < 2**31 else _UNKNOWN


class Claim:
    """The right to work on a run, as a context manager. `bench.store.writer.RunWriter` writes under it."""

    def __init__(self, folder: Path, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self.folder = folder
        self.heartbeat = heartbeat
        self._identity = process.process_identity()
        self.fence = Fence(folder, self._identity["token"])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"claim {folder.name}", daemon=True)

    @property
    def path(self) -> Path:
        """The file that the heartbeat touches."""
        return self.fence.path / HOLDER

    def __enter__(self) -> Claim:
        for _ in range(CLAIM_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):  # the folder was deleted meanwhile
                self._acquire()
                self._thread.start()
                return self
        raise Busy("unknown host", 0)

    def __exit__(self, *error: object) -> None:
        """Release the claim by one rename, which needs no space on the disk. A lost claim has nothing to release."""
        self._stop.set()
        self._thread.join()
        self._release()

    def delete_folder(self) -> None:
        """Delete the run's folder with all that is in it, and the claim itself. Raises ClaimLost.

        Its status goes first, so that a reader takes a half deleted run for one that was never made. The folder stays
        if another process wants to claim it at the same time.
        """
        names = [name for name in os.listdir(self.folder) if name != CLAIM and not name.startswith(CLAIM_PREFIX)]
        for name in sorted(names, key=lambda name: (name != "status.json", name)):
            self.fence.discard(name)
        self._release()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _release(self) -> None:
        away = self.folder / f"{CLAIM_PREFIX}{self._identity['token']}"
        with contextlib.suppress(OSError):
            self.fence.path.rename(away)
            self.fence.path.parent.rmdir()
        files.remove(away)

    def _acquire(self) -> None:
        """Make the claim. Raises Busy if it is held, and FileNotFoundError if the folder was deleted meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f"{CLAIM_PREFIX}{self._identity['token']}"
        own = fresh / self.fence.path.name
        try:
            own.mkdir(parents=True)
            (own / HOLDER).write_text(json.dumps(self._identity))
            files.sync(own / HOLDER)
            now = (own / HOLDER).stat().st_mtime
            for other in _holders(self.folder):
                if (alive := _alive(other, now)) is not None:
                    raise Busy(alive["host"], alive["pid"])
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    other.rename(gone := own / uuid.uuid4().hex)
                    files.remove(gone)
            try:
                fresh.rename(self.folder / CLAIM)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                first = next(filter(None, (_read(one / HOLDER) for one in _holders(self.folder))), None)
                raise Busy(*(first["host"], first["pid"]) if first else ("unknown host", 0)) from error
        except BaseException:
            files.remove(fresh)
            raise

    def _beat(self) -> None:
        while not self._stop.wait(self.heartbeat):
            # a disk that is unreachable for a moment costs one heartbeat, not the run
            with contextlib.suppress(OSError):
                os.utime(self.path)
