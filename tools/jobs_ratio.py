"""Whether several runs at a time pay on this machine: `bench run --jobs 1` and `--jobs auto` in turn.

    python tools/jobs_ratio.py [--runs 6] [--epochs 1] [--rounds 2]

Each command is a new process with an empty store and makes runs of CLIP on the embedded pack. A line a command: seconds
of wall, CPU seconds of the command with its processes, and cores that other processes kept busy meanwhile (Linux). The
last line has the ratio of the fastest walls, `auto` over one at a time; it speaks of the machine only if others kept
no core busy. Records of both must have the same bytes.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITE = """\
name: jobs_ratio
seeds: [{seeds}]
budget: {{epochs: {epochs}}}
train: {{batch: 128, threads: 1}}
evaluate: {{tasks: [zero_shot]}}
methods: [clip]
"""
JOBS = ("1", "auto")


@dataclass(frozen=True)
class Taken:
    """What a command took."""

    wall: float  #: seconds
    cpu: float  #: seconds of the processor, of all its processes
    others: float | None  #: cores that other processes kept busy meanwhile; None where that is not known
    records: dict[str, bytes]


def machine_seconds() -> float | None:
    """CPU seconds that all processes of this machine have taken since it started; None if it does not say."""
    try:
        user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    except OSError:
        return None
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """CPU seconds of all processes that this one has started and waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(suite: Path, jobs: str) -> Taken:
    """Make the runs of a suite in an empty store. Raises CalledProcessError if a run fails."""
    with tempfile.TemporaryDirectory() as results:
        machine, own, began = machine_seconds(), own_seconds(), time.perf_counter()
        command = [sys.executable, "-m", "bench", "run", str(suite), "--results", results, "--jobs", jobs]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        wall, cpu, after = time.perf_counter() - began, own_seconds() - own, machine_seconds()
        others = None if machine is None or after is None else max(0.0, after - machine - cpu) / wall
        paths = sorted(Path(results).glob("runs/*/evaluations/*/records.json"))
        return Taken(wall, cpu, others, {str(path.relative_to(results)): path.read_bytes() for path in paths})


def main(arguments: list[str] | None = None) -> float:
    """Measure, print and return the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("runs", 6), ("epochs", 1), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args(arguments)
    walls: dict[str, list[float]] = {jobs: [] for jobs in JOBS}
    records = []
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "jobs_ratio.yaml"
        suite.write_text(SUITE.format(seeds=", ".join(map(str, range(asked.runs))), epochs=asked.epochs))
        for _ in range(asked.rounds):
            for jobs in JOBS:
                taken = run(suite, jobs)
                walls[jobs].append(taken.wall)
                records.append(taken.records)
                busy = "?" if taken.others is None else f"{taken.others:.1f}"
                print(f"--jobs {jobs:5} {taken.wall:6.1f} s, {taken.cpu:6.1f} CPU s, others kept {busy} cores busy")
                sys.stdout.flush()
    if not records[0] or any(one != records[0] for one in records):
        raise SystemExit("the records differ")
    ratio = min(walls["auto"]) / min(walls["1"])
    print(f"auto over one at a time: {ratio:.2f} of the wall, {asked.runs} runs, the same records")
    return ratio


if __name__ == "__main__":
    main()
