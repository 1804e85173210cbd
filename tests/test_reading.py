"""Files of others are opened without waiting, and what is too long is refused before any of it is read."""

from __future__ import annotations

import io
import os
import resource
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import reading


def test_what_is_too_long_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * 10)
    assert reading.read_file(path, 10) == b"x" * 10
    os.truncate(path, 1 << 40)  # a hole, which takes no disk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(reading.Unfit, match=r"^it has more than 1,073,741,824 bytes$"):
        reading.read_file(path, 1 << 30)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # in KiB


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a FIFO"), (tmp_path, "a folder"), (Path("/dev/zero"), "a device")):
        with pytest.raises(reading.Unfit, match=f"^it is {kind}, not a file$"):
            reading.read_file(path, 10)


def test_pyarrow_holds_no_bytes_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of its threads that frees them as the process ends aborts a command that went well, with exit code 134."""

    class Unread(io.FileIO):
        def read(self, *_: Any) -> bytes:
            raise AssertionError("read by Python")

        def readinto(self, *_: Any) -> int:
            raise AssertionError("read by Python")

    table = pa.table({name: ["text"] * 100 for name in "abc"})
    pq.write_table(table, tmp_path / "table.parquet")
    monkeypatch.setattr(reading, "open_file", Unread)
    assert reading.read_parquet(tmp_path / "table.parquet").equals(table)
