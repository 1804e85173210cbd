"""What a process may use in a container, read from files as Linux writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.machine import capacity

GIB = 2**30


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The group of this process, two below the root of all groups; nothing limits it yet."""
    own = tmp_path / "groups" / "box" / "job"
    own.mkdir(parents=True)
    (tmp_path / "own").write_text("3:cpuset:/other\n0::/box/job\n")
    (tmp_path / "meminfo").write_text("MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\nHugePages_Total: 0\n")
    for name, path in (
        ("CGROUPS", tmp_path / "groups"),
        ("OWN_CGROUP", tmp_path / "own"),
        ("MEMORY_INFO", tmp_path / "meminfo"),
    ):
        monkeypatch.setattr(capacity, name, path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    return own


def test_without_limits_it_is_all_of_the_machine(group: Path) -> None:
    assert (capacity.cores(), capacity.free_memory()) == (64, 8 * GIB)
    for name in ("cpu.max", "memory.max"):
        (group / name).write_text("max 100000\n" if name == "cpu.max" else "max\n")
    assert (capacity.cores(), capacity.free_memory()) == (64, 8 * GIB)


def test_the_narrowest_of_all_groups_counts(group: Path) -> None:
    (group / "cpu.max").write_text("800000 100000\n")
    assert capacity.cores() == 8
    (group.parent / "cpu.max").write_text("250000 100000\n")
    assert capacity.cores() == 2, "half a core is none"
    (group / "cpu.max").write_text("50000 100000\n")
    assert capacity.cores() == 1, "but one is always there"
    (group.parent / "memory.max").write_text(f"{3 * GIB}\n")
    (group.parent / "memory.stat").write_text(f"anon {GIB}\nfile {2 * GIB}\n")
    assert capacity.free_memory() == 2 * GIB, "what a cache holds can be taken"
    (group.parent / "memory.stat").write_text(f"anon {4 * GIB}\n")
    assert capacity.free_memory() == 0


@pytest.mark.usefixtures("group")
def test_a_system_without_these_files_says_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    capacity.OWN_CGROUP.unlink()
    capacity.MEMORY_INFO.unlink()
    assert (capacity.cores(), capacity.free_memory()) == (64, None)
    monkeypatch.setattr("sys.platform", "darwin")
    assert capacity.cores() == os.cpu_count()
