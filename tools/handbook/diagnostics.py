"""The figures of what methods learned, in the committed comparisons."""

from __future__ import annotations

import base64
import json
import re
import tarfile
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

from bench.store.outgoing.pack import ARCHIVE
from tools.handbook.links import ROOT

_FIGURE = re.compile(r'id="(figure-diagnostics-(\d+)-[^"]*)".*?src="data:image/(\w+);base64,([^"]*)" alt="([^"]*)"')


@dataclass(frozen=True)
class Figure:
    """One figure of a report."""

    comparison: str  #: its folder
    label: str  #: the row's
    link: str  #: path in the checkout, with the figure's anchor
    caption: str
    format: str  #: such as "webp"
    image: bytes


def figures() -> dict[str, list[Figure]]:
    """Return by method the figures in `results/reference/*/report.html`, whose ids begin with the row's number."""
    found: dict[str, list[Figure]] = {}
    for report in sorted((ROOT / "results" / "reference").glob("*/report.html")):
        plan = _plan(report.parent)
        for anchor, number, form, image, caption in _FIGURE.findall(report.read_text(encoding="utf-8")):
            row = plan["methods"][int(number) - 1]
            link = f"{report.relative_to(ROOT).as_posix()}#{anchor}"
            made = Figure(report.parent.name, row["label"], link, unescape(caption), form, base64.b64decode(image))
            found.setdefault(row["method"], []).append(made)
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
