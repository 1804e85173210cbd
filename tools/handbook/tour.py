"""The tour as a page: the cells of `docs/tour.ipynb` with the outputs that are committed in it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from tools.handbook.links import ROOT, SCHEME

NOTEBOOK = "docs/tour.ipynb"
_ENDS = 15  #: lines of a long output that its beginning and its end show
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s]+)")


def pages() -> dict[str, str | bytes]:
    """Return the page and its figures by path."""
    cells = json.loads((ROOT / NOTEBOOK).read_text(encoding="utf-8"))["cells"]
    figures: dict[str, str | bytes] = {}
    parts = [part for cell in cells for part in _cell(cell, figures)]
    parts.insert(
        1, f"This page is a notebook, [docs/tour.ipynb]({SCHEME}{NOTEBOOK}), with the outputs of one run of it."
    )
    return {"tour.md": "\n\n".join(parts) + "\n", **figures}


def _cell(cell: dict[str, Any], figures: dict[str, str | bytes]) -> Iterator[str]:
    """The Markdown of a cell and its outputs; adds the figures that it shows."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield _LINK.sub(_link, source)
        return
    yield _fenced(source, "python")
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            name = f"tour-{len(figures) + 1}.png"
            figures[name] = base64.b64decode(data["image/png"])
            yield f"![What the cell above draws]({name})"
        elif "text/html" in data:
            yield _fenced("".join(data["text/html"]), "{raw} html")
        else:
            yield _fenced(_brief("".join(output.get("text") or data["text/plain"])), "text")


def _brief(text: str) -> str:
    """The text, or the ends of a long one, such as the progress of many runs."""
    lines = text.splitlines()
    left = len(lines) - 2 * _ENDS
    return text if left < _ENDS else "\n".join((*lines[:_ENDS], f"... {left} lines ...", *lines[-_ENDS:]))


def _link(match: re.Match[str]) -> str:
    """A link of the notebook, which is seen from docs/, as a page one folder deeper has it."""
    path = match.group()
    return f"{SCHEME}{path.removeprefix('../')}" if path.startswith("../") else f"../{path}"


def _fenced(text: str, kind: str) -> str:
    return f"`````{kind}\n{text.rstrip()}\n`````"
