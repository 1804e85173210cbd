"""The environment of a run: recorded next to its results, not part of its identity."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from bench.machine.commit import commit

PACKAGES = (
    "torch",
    "torchvision",
    "open_clip_torch",
    "timm",
    "numpy",
    "pillow",
    "scikit-learn",
    "tokenizers",
    "robust-cl-bench",
)


def environment(device: torch.device, ranks: int = 1) -> dict[str, Any]:
    """Return the versions of packages that can change a number, the commit, the hardware and the number of ranks."""
    return {
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "commit": commit(),
        "hardware": {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "ranks": {"world": ranks, "devices": _devices(device, ranks)},
    }


def _devices(device: torch.device, ranks: int) -> list[str]:
    """Return the device of each rank: ranks of one run use consecutive GPUs, beginning with this process's."""
    if device.type != "cuda":
        return [_cpu_name()] * ranks
    first, count = torch.cuda.current_device(), torch.cuda.device_count()
    return [torch.cuda.get_device_name((first + rank) % count) for rank in range(ranks)]


@functools.cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    """Return the model and the vector instructions that torch uses on it: other instructions give other bytes."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = names[0] if names else platform.processor() or platform.machine()
    return f"{model} ({torch.backends.cpu.get_cpu_capability()})"


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak, so that it does not include earlier runs of this process. For host memory on Linux only."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Return bytes: the device's peak on a GPU, else this process's largest resident set since the last reset."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
