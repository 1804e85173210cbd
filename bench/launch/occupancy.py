"""How many runs are made at the same time if the user leaves it open (`--jobs auto`). Their number changes no result.

On a CPU it is one run for each `train.threads` cores, as far as memory goes: the first run shows how much one takes.

On GPUs it is at first one run a GPU. Kernels of small towers leave most of a GPU idle, so twice as many are tried while
GPUs and host have memory for them, and stay if all together then do more FLOPs a second. The suite's own runs are
timed, so this calibration costs nothing. A GPU computes for one process at a time, unless NVIDIA's MPS daemon runs
(`nvidia-cuda-mps-control -d`): CUDA finds it by itself, and the calibration sees what it brings.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from bench.machine.capacity import cores, free_memory
from bench.planning.planned import Planned

WORTHWHILE = 3e11  #: training FLOPs, ten seconds of a core: for fewer it does not pay to start a second process
SHARE = 0.8  #: of the free memory that further runs may take
PER_GPU = 16  #: runs at most on a GPU; each has a context of its own, and MPS serves 48 at most
STEADY = 6  #: messages on steps, each half a second after the one before, that tell how fast a run is
GAIN = 1.1  #: by how much FLOPs a second have to rise for the runs that came last to stay


class AtWork(Protocol):
    """What is known of a team. `bench.launch.team.Team` is one."""

    has_worked: bool  #: whether it has made steps, measured something or ended a run
    rates: list[float]  #: FLOPs a second at each message on the steps of its runs
    gpu_memory: tuple[int, int] | None  #: free and all bytes of its GPU; None on a CPU and before its first step

    @property
    def pid(self) -> int:
        """The id of its first process."""


def gpus() -> int:
    """Return the number of GPUs that torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def most(waiting: Sequence[Planned], ranks: int) -> int:
    """Return how many of the runs that wait may at most be made at the same time.

    One at a time if a budget is in seconds, if a run has several processes, or if all of them are soon done. A run that
    reads shards has processes that decode for it, so a GPU gets one such run.
    """
    flops = sum(one.resolved.flops for one in waiting)
    if ranks > 1 or flops < WORTHWHILE or any(one.run.budget.timed for one in waiting):
        return 1
    by_cores, devices = cores() // max(one.run.train.threads for one in waiting), gpus()
    if devices:
        in_memory = all(one.run.data.embedded or one.run.data.on_features for one in waiting)
        by_cores = min(devices * PER_GPU, max(devices, by_cores)) if in_memory else devices
    return max(1, min(by_cores, len(waiting)))


@dataclass
class Occupancy:
    """How many teams may work at the same time: `allowed`, which `update` changes while they work."""

    most: int
    gpus: int  #: 0: the teams compute on the CPU
    allowed: int = 1
    settled: bool = False  #: whether `allowed` stays as it is
    _fewer: int = field(default=0, init=False)  #: teams before the last ones came
    _before: float = field(default=0.0, init=False)  #: their FLOPs a second

    def update(self, teams: Sequence[AtWork]) -> None:
        """Look at the teams that work, and allow more of them if there is room."""
        if self.settled or self.most == 1:
            return
        if self.gpus:
            self._try_more_on_gpus(teams)
        elif teams[0].has_worked:
            self.allowed, self.settled = min(self.most, 1 + self._further(teams[0])), True

    def _further(self, team: AtWork) -> int:
        """Return how many teams like this one the host's free memory takes."""
        need, free = _peak_memory(team.pid), free_memory()
        return self.most if not need or free is None else int(SHARE * free) // need

    def _try_more_on_gpus(self, teams: Sequence[AtWork]) -> None:
        """Compare the FLOPs a second of all teams with those before the last ones came, once all are steady."""
        steady = [team for team in teams[: self.allowed] if len(team.rates) >= STEADY]
        if len(steady) < self.allowed:
            return
        now = sum(statistics.median(team.rates[-STEADY:]) for team in steady)
        here = math.ceil(self.allowed / self.gpus)
        on_a_gpu = min(_room(team.gpu_memory, here) for team in steady)
        further = min(self.allowed, self.gpus * on_a_gpu, self._further(steady[0]), self.most - self.allowed)
        if now < GAIN * self._before:
            self.allowed, self.settled = self._fewer, True
        elif further:
            self._fewer, self._before = self.allowed, now
            self.allowed += further
            for team in steady:
                team.rates.clear()
        else:
            self.settled = True


def _room(memory: tuple[int, int] | None, teams: int) -> int:
    """Return for how many more a GPU has memory, of which `teams` take what is not free."""
    if memory is None:
        return 0
    free, total = memory
    return int(SHARE * free * teams / max(1, total - free))


def _peak_memory(pid: int) -> int:
    """Return the most bytes that a process has held so far; 0 if the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
