"""A report over 500 stored runs, each with the 20 or 21 evaluations of the emoji suites, in under five seconds.

The limit is for a report that is made again; CPU seconds of a first one, and of one after another run has finished,
stand beside it, and those of importing matplotlib and pandas, which tell how fast the machine is just now.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ..reports.stores import METHODS, write_store

LIMIT = 5.0  #: seconds
FIRST = 25.0  #: CPU seconds of a first report, in those of the imports: 18 to 21 on a busy machine, 19 to 23 before
EMPTY = "import matplotlib, pandas"
CODE = """
import sys
from bench.store import Store
from reports.build import build
build("emoji_noisy", Store(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 methods, 5 noise rates, 5 seeds, 4 points of a curve."""
    methods = [(f"{label}{i}", title, quality, score) for i in range(3) for label, title, quality, score in METHODS]
    root = tmp_path_factory.mktemp("many")
    store = write_store(root, methods=methods[:20], rates=(0.0, 0.1, 0.2, 0.3, 0.4), seeds=range(5))
    assert len(list(store.runs())) == 500
    return root


def cpu_seconds(code: str, root: Path) -> float:
    """CPU seconds of a new process and of all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def forget(root: Path) -> None:
    """As before the first report."""
    for name in ("figures", "tables"):
        shutil.rmtree(root / "emoji_noisy" / name, ignore_errors=True)
    for name in ("figures.json", "report.html", "records.csv"):
        (root / "emoji_noisy" / name).unlink(missing_ok=True)


def another_number(root: Path) -> None:
    """As if another run had finished."""
    path = min(root.glob("runs/*/evaluations/zero_shot.concept@emoji.iid@1/records.json"))
    lines = json.loads(path.read_text())
    lines[0]["value"] *= 0.99
    path.write_text(json.dumps(lines))


def test_a_report_over_500_runs(benchmark: BenchmarkFixture, root: Path) -> None:
    """A new process each time, imports included."""
    empty = min(cpu_seconds(EMPTY, root) for _ in range(3))
    seconds: dict[str, float] = {}
    kinds: dict[str, Callable[[Path], None]] = {"first": forget, "another run": another_number, "again": lambda _: None}
    for kind, change in kinds.items():
        change(root)
        seconds[kind] = cpu_seconds(CODE, root)
    ratios = {kind: spent / empty for kind, spent in seconds.items()}
    text = ", ".join(f"{kind} {seconds[kind]:.1f} ({ratio:.1f} times)" for kind, ratio in ratios.items())
    benchmark.extra_info.update(peer=f"`{EMPTY}`, {empty:.2f} CPU seconds", ratio=text)
    print(f"\nCPU seconds: {text}; {EMPTY}: {empty:.2f}", file=sys.stderr)
    assert ratios["first"] < FIRST
    command = [sys.executable, "-c", CODE, str(root)]
    benchmark.pedantic(subprocess.run, args=(command,), kwargs={"check": True}, rounds=3, iterations=1)
    assert benchmark.stats.stats.min < LIMIT
