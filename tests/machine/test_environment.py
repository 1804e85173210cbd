"""What a run ran on is recorded as it is, and a peak of memory is one run's own."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bench
from bench.machine import environment as machine
from bench.machine.capacity import cores

CPU = torch.device("cpu")
ROOT = Path(bench.__file__).parents[1]


def test_packages_hardware_and_ranks_are_those_of_this_process() -> None:
    found = machine.environment(CPU, ranks=3)
    assert found["packages"]["torch"] == importlib.metadata.version("torch")
    assert set(found["packages"]) == set(machine.PACKAGES)
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["hardware"]["threads"] == torch.get_num_threads()
    assert found["hardware"]["cores"] == os.cpu_count()
    assert found["ranks"] == {"world": 3, "devices": [found["hardware"]["device"]] * 3}
    model, _, instructions = found["hardware"]["device"].rpartition(" (")
    assert model
    assert instructions == f"{torch.backends.cpu.get_cpu_capability()})"
    assert machine.environment(CPU)["ranks"]["world"] == 1


def test_a_package_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PACKAGES", ("torch", "no-such-package-anywhere"))
    assert machine.environment(CPU)["packages"]["no-such-package-anywhere"] is None


def test_the_commit_is_the_checkouts_and_says_whether_it_was_changed() -> None:
    git = ["git", "-C", str(ROOT)]
    inside = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    found = machine.environment(CPU)["commit"]
    if inside.returncode:
        assert found is None
        return
    status = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    assert found == inside.stdout.strip() + "+" * bool(status.stdout.strip())


def test_outside_of_a_checkout_there_is_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.environment(CPU)["commit"] is None, "without git"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell no resident set")
def test_a_peak_is_of_what_came_after_the_last_reset() -> None:
    """In a process of its own, so that nothing else allocates."""
    code = (
        "import torch\nfrom bench.machine.environment import peak_memory, reset_peak_memory\n"
        "cpu = torch.device('cpu')\nbase = peak_memory(cpu)\n"
        "x = torch.ones(64, 2**20)\nhigh = peak_memory(cpu)\ndel x\nkept = peak_memory(cpu)\n"
        "reset_peak_memory(cpu)\nprint(high - base, kept > high - 2**23, high - peak_memory(cpu))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, kept, freed = done.stdout.split()
    assert kept == "True"
    assert int(grown) > 200 * 2**20, "64 Mi numbers of 4 bytes, in bytes"
    writable = os.access("/proc/self/clear_refs", os.W_OK)
    assert int(freed) > 200 * 2**20 or not writable


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not bind processes to cores")
def test_cores_are_those_that_this_process_may_use() -> None:
    code = (
        "import os\nfrom bench.machine.capacity import cores\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nprint(cores())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
    assert cores() == len(os.sched_getaffinity(0))
