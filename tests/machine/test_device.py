"""A run budgeted in seconds and any other run refuse to share this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.machine.device_lock import InUse, device

HOLD = """
import sys
from bench.machine.device_lock import device
with device(alone=sys.argv[1] == "alone"):
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
    with held(theirs), pytest.raises(InUse, match="device"), device(alone):
        pass


def test_others_share_and_a_killed_holder_frees_the_device() -> None:
    with held("shared") as process:
        with device(alone=False):
            pass
        process.kill()
        process.wait()
        with device(alone=True):
            pass
