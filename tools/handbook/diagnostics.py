"""The figures of what methods learned, in the committed comparisons."""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.store.outgoing.pack import ARCHIVE
from tools.handbook.links import ROOT

_FIGURE = re.compile(r'id="(figure-diagnostics-(\d+)-[^"]*)"')


@dataclass(frozen=True)
class Figure:
    """One figure of a report."""

    suite: str
    label: str  #: the row's
    link: str  #: path in the checkout, with the figure's anchor


def figures() -> dict[str, list[Figure]]:
    """Return by method the figures in `results/reference/*/report.html`, whose ids begin with the row's number."""
    found: dict[str, list[Figure]] = {}
    for report in sorted((ROOT / "results" / "reference").glob("*/report.html")):
        plan = _plan(report.parent)
        for anchor, number in _FIGURE.findall(report.read_text(encoding="utf-8")):
            row = plan["methods"][int(number) - 1]
            link = f"{report.relative_to(ROOT).as_posix()}#{anchor}"
            found.setdefault(row["method"], []).append(Figure(plan["suite"], row["label"], link))
    return found


def _plan(folder: Path) -> dict[str, Any]:
    """Return the plan of a committed comparison: a file of its own, or a member of the archive of its runs."""
    plan: dict[str, Any]
    if (path := folder / "plan.json").is_file():
        plan = json.loads(path.read_text(encoding="utf-8"))
        return plan
    with tarfile.open(folder / ARCHIVE, "r|xz") as archive:
        content = next(archive.extractfile(one) for one in archive if one.name.endswith("/plan.json"))
        plan = json.loads(content.read() if content else b"null")
    return plan
