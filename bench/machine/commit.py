"""The commit of this package, where it is known."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def commit() -> str | None:
    """Return the commit as 40 hexadecimal digits, with "+" if tracked files of the checkout were changed.

    Besides in a checkout, the commit is known if pip installed the package from a repository: pip noted the commit
    (PEP 610). None for any other installed package.
    """
    return _of_checkout(Path(__file__)) or _of_installation()


def _of_checkout(file: Path) -> str | None:
    git = ["git", "-C", str(file.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", str(file)], capture_output=True, check=True)
        describe = [*git, "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _of_installation() -> str | None:
    try:
        noted = distribution("robust-cl-bench").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    source = json.loads(noted or "{}").get("vcs_info", {}).get("commit_id")
    return source if isinstance(source, str) else None
