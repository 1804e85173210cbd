"""Types are checked beside the other tests: mypy alone would leave a core idle for a minute."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_mypy_finds_nothing() -> None:
    root = Path(__file__).parents[1]
    found = subprocess.run([sys.executable, "-m", "mypy"], cwd=root, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
