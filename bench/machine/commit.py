"""The commit of this package, where it is known."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str | None:
    """Return the commit as 40 hexadecimal digits, with "+" if tracked files were changed; None outside a checkout."""
    file = Path(__file__)
    git = ["git", "-C", str(file.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", str(file)], capture_output=True, check=True)
        describe = [*git, "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
