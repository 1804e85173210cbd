"""TensorBoard's event files."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.store import RunWriter


class TensorBoard:
    """Writes an event file to `folder`/<title>-<id>; `tensorboard --logdir` of `folder` shows all runs.

    The folder is put in its place out of the claim's own one, in the place of what earlier processes left, and its file
    stays open. So a process that lost its claim puts no folder there, and writes to a file that has no name any more.
    """

    def __init__(self, folder: Path, run: RunWriter, title: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        fence = run.own_claim.fence
        own = folder / f"{re.sub(r'[^0-9A-Za-z.-]+', '_', title)}-{run.id[:8]}"
        name = os.path.relpath(own, fence.folder)
        with fence.guarded():
            fresh = fence.new()
            fresh.mkdir()
            file = (fresh / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}").open("wb")
        self._records = RecordWriter(file)
        try:
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
            fence.discard(name)
            fence.publish(fresh, name)
        except BaseException:
            file.close()
            raise

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """See `bench.launch.trackers.Sink`."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        points = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=points)))

    def record(self, name: str, at: float, step: int, value: float) -> None:
        """See `bench.launch.trackers.Sink`."""
        self.line(step, {name: value})

    def close(self) -> None:
        """See `bench.launch.trackers.Sink`."""
        self._records.close()
