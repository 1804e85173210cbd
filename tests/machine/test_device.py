"""A run budgeted in seconds and any other run refuse to share this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.errors import UserError
from bench.machine.device_lock import InUse, hold_device, lock_file

HOLD = """
import sys
from bench.machine.device_lock import hold_device
with hold_device(alone=sys.argv[1] == "alone"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_lock(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not this machine's lock: other tests run beside this one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


@contextmanager
def held(how: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, how], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.parametrize(("theirs", "alone"), [("alone", False), ("alone", True), ("shared", True)])
def test_timed_runs_do_not_share(theirs: str, alone: bool) -> None:
    with held(theirs), pytest.raises(InUse, match="device"), hold_device(alone):
        pass


def test_others_share_and_a_killed_holder_frees_the_device() -> None:
    with held("shared") as process:
        with hold_device(alone=False):
            pass
        process.kill()
        process.wait()
        with hold_device(alone=True):
            pass


def test_no_link_is_followed_and_the_lock_is_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "victim"
    target.write_text("precious")
    lock = lock_file()
    assert lock.parent == tmp_path
    lock.symlink_to(target)
    with pytest.raises(UserError, match="lock: cannot be opened as a lock file"), hold_device(alone=True):
        pass
    lock.unlink()
    with hold_device(alone=True):
        assert lock.stat().st_mode & 0o777 == 0o600, "nobody else may hold it"
    monkeypatch.setattr("bench.machine.device_lock.lock_file", lambda: lock)
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(UserError, match="should be yours; remove it, or set TMPDIR"), hold_device(alone=True):
        pass
    lock.unlink()
    lock.mkdir()
    with pytest.raises(UserError, match="cannot be opened as a lock file"), hold_device(alone=True):
        pass
    assert target.read_text() == "precious"
