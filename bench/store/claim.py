"""Who works on a run: claims with a heartbeat, taken over when their holder is gone.

Claims of one run are numbered files, `claim-1`, `claim-2`, ...; the highest number is the holder. A file is made by
hard link, which fails if the name exists, so of any number of processes that want to follow the same dead holder
exactly one gets the next number. The highest file is never deleted (a released claim stays and says so): numbers
only rise, and a slow process that tries an old number sees the higher one and steps back. No lock server, no flock.

A holder may only seem dead. So every claim has a fence (bench/store/fence.py): a folder through which its holder
writes. Before a process links the next number, it takes the folder of the claim before away, and only afterwards it
reads the run. The heartbeat and the release of a claim go through the fence as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.store import files, process, reading
from bench.store.fence import PREFIX, Busy, Fence, shut_out
from bench.store.files import CLAIM_FILE

STALE_AFTER = 600.0  #: seconds without a heartbeat after which a claim may be taken over
HEARTBEAT = 20.0  #: seconds between heartbeats
ATTEMPTS = 5  #: to claim a folder that other processes delete at the same time
_NAME = re.compile(r"claim-([1-9][0-9]*)")
_RELEASED = "released"
_UNKNOWN_HOST = "an unknown host, as its claim is damaged; the run is free ten minutes after the last heartbeat"
_UNKNOWN = {"host": _UNKNOWN_HOST, "namespace": "", "pid": 0, "started": "", "token": "", "released": False}


def claims(folder: Path) -> dict[int, Path]:
    """Return the claim files of a folder by number, in rising order. Other files are ignored, such as claim-1.bak."""
    matches = filter(None, map(_NAME.fullmatch, os.listdir(folder)))
    return {number: folder / f"claim-{number}" for number in sorted(int(match[1]) for match in matches)}


def _newest(folder: Path) -> int:
    """Return the highest claim number in the folder, or 0 if nobody ever claimed it."""
    return max(claims(folder), default=0)


def _read(path: Path) -> dict[str, Any] | None:
    """Return what a claim says, or None if there is no such file. A damaged claim is one of an unknown process."""
    try:
        content = reading.read_json(path)
        if content is None:
            return None
        types = {name: type(content[name]) for name in _UNKNOWN}
    except (reading.Damaged, KeyError, TypeError):
        return _UNKNOWN
    expected = {name: type(value) for name, value in _UNKNOWN.items()}
    return content if types == expected and 0 < content["pid"] < 2**31 else _UNKNOWN


def _of_number(folder: Path, number: int) -> dict[str, Any] | None:
    """Return what the claim of this number says, as `_read` does; of a damaged one, what its holder's folder says."""
    content = _read(folder / f"claim-{number}")
    for name in os.listdir(folder) if content is _UNKNOWN else ():
        if name.startswith(f"{PREFIX}{number}-"):
            kept = _read(folder / name / _RELEASED)
            if kept is not None and kept is not _UNKNOWN:
                return {**kept, "released": False, "damaged": True}
    return content


def _judged(folder: Path, number: int, stale_after: float, now: float | None) -> tuple[dict[str, Any] | None, bool]:
    """Return what the claim of this number says, None if there is none, and whether its holder is alive."""
    path = folder / f"claim-{number}"
    latest = _of_number(folder, number)
    if latest is None or latest["released"] or process.is_dead(latest):
        return latest, False
    try:
        beat = path.lstat().st_mtime  # a claim is no link; one that leads nowhere has a time, too
    except FileNotFoundError:
        return None, False
    silent = abs((files.clock(folder) if now is None else now) - beat)
    return latest, silent <= stale_after


def holder(folder: Path, stale_after: float = STALE_AFTER) -> dict[str, Any] | None:
    """Return the live holder of a run's folder, or None if it has none: never claimed, released, dead or silent.

    A holder is silent if its last heartbeat is more than `stale_after` seconds away from the present time, both by the
    clock of the file system.
    """
    if not folder.is_dir():
        return None
    latest, alive = _judged(folder, _newest(folder), stale_after, None)
    return latest if alive else None


class Claim:
    """The right to work on a run, as a context manager. `bench.store.writer.RunWriter` writes under it."""

    def __init__(self, folder: Path, stale_after: float = STALE_AFTER, heartbeat: float = HEARTBEAT) -> None:
        self.folder = folder
        self.stale_after = stale_after
        self.heartbeat = heartbeat
        self.number = 0
        self.took_over = False  #: whether the holder before never released its claim
        self._identity = process.identity()
        self.fence = Fence(folder, 0, self._identity["token"])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"claim {folder.name}", daemon=True)

    @property
    def path(self) -> Path:
        return self.folder / f"claim-{self.number}"

    @property
    def lost(self) -> bool:
        """Whether another process took the claim over after too long a silence. The work has to stop then."""
        return self.fence.lost

    def __enter__(self) -> Claim:
        self._acquire()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the claim by one rename, which needs no space on the disk. A lost claim has nothing to release."""
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            (self.fence.path / _RELEASED).replace(self.path)
        files.remove(self.fence.path)

    def delete_folder(self) -> None:
        """Delete the run's folder with all that is in it, and the claim itself. Raises ClaimLost.

        Its status goes first, so that a reader takes a half deleted run for one that was never made. The folder stays
        if another process wants to claim it at the same time.
        """
        names = [name for name in os.listdir(self.folder) if name != self.path.name and not name.startswith(PREFIX)]
        for name in [*sorted(names, key=lambda name: (name != "status.json", name)), self.path.name]:
            self.fence.discard(name)
        files.remove(self.fence.path)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _acquire(self) -> None:
        for _ in range(ATTEMPTS):
            try:
                won = self._attempt()
            except FileNotFoundError:  # the folder was deleted meanwhile, or a later claim shut this one out
                continue
            if won:
                files.clear_scratch(self.folder)
                return
        raise Busy("unknown host", 0)

    def _attempt(self) -> bool:
        """Try to get the number after the newest. Returns False if the folder was deleted meanwhile; raises Busy."""
        self.folder.mkdir(parents=True, exist_ok=True)
        before = _newest(self.folder)
        self.number = before + 1
        self.fence = Fence(self.folder, self.number, self._identity["token"])
        self.fence.path.mkdir()
        try:
            mine = self.fence.path / CLAIM_FILE
            mine.write_text(json.dumps(self._identity))
            (self.fence.path / _RELEASED).write_text(json.dumps({**self._identity, "released": True}))
            files.sync(mine)
            files.sync(mine.with_name(_RELEASED))
            # Both times come from the file system, so the clocks of hosts that share a disk need not agree.
            last, alive = _judged(self.folder, before, self.stale_after, mine.stat().st_mtime)
            self._refuse(last if alive else None)
            if last is not None:
                shut_out(self.folder, before, last["token"])
            try:
                os.link(mine, self.path)
            except FileExistsError:
                self._refuse(_read(self.path), always=True)
            if self._confirmed(before, last):
                self.took_over = last is not None and not last["released"]
                return True
        except BaseException:
            files.remove(self.fence.path)
            raise
        files.remove(self.fence.path)
        return False

    def _confirmed(self, before: int, last: dict[str, Any] | None) -> bool:
        """Return whether the linked number is the newest and follows the claim `last`; then remove older claims.

        Raises Busy if there is a higher number. Without the same claim before it, `delete_folder` ran meanwhile, and
        others may have begun to count anew.
        """
        newest = _newest(self.folder)
        same = _UNKNOWN if last is not None and "damaged" in last else last
        if newest == self.number and _read(self.folder / f"claim-{before}") == same:
            for number, path in claims(self.folder).items():
                if number < self.number:
                    self.fence.discard(path.name)
            return True
        self.fence.discard(self.path.name)
        if newest != self.number:
            self._refuse(_read(self.folder / f"claim-{newest}"), always=True)
        return False

    def _refuse(self, other: dict[str, Any] | None, always: bool = False) -> None:
        if other is not None:
            raise Busy(other["host"], other["pid"])
        if always:
            raise Busy("unknown host", 0)

    def _beat(self) -> None:
        """Touch the claim through the fence: the two names are one file, and the name in the fence ends with it."""
        while not self._stop.wait(self.heartbeat):
            with contextlib.suppress(
                OSError
            ):  # a disk that is unreachable for a moment costs one heartbeat, not the run
                os.utime(self.fence.path / CLAIM_FILE)
