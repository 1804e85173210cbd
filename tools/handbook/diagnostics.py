"""The figures of what methods learned, in the committed comparisons."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

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
        plan = json.loads(report.with_name("plan.json").read_text(encoding="utf-8"))
        for anchor, number in _FIGURE.findall(report.read_text(encoding="utf-8")):
            row = plan["methods"][int(number) - 1]
            link = f"{report.relative_to(ROOT).as_posix()}#{anchor}"
            found.setdefault(row["method"], []).append(Figure(plan["suite"], row["label"], link))
    return found
