"""The gradients of open_clip's loss on several ranks are those that docs/why.md prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def test_the_page_prints_what_the_tool_measures(start_script: Callable[..., Any]) -> None:
    code, output = start_script(ROOT / "tools" / "open_clip_gradients.py", "--ranks", 2, 4).finish()
    assert code == 0, output
    measured: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for line in output.splitlines():
        if re.match(r" +\d", line):
            _, local_loss, gathered, length, cosine = line.split()
            measured.setdefault((local_loss.lower(), gathered.lower()), []).append((length, cosine))
    rows = re.findall(
        r"^\| (true|false)(?: \(default\))? \| (true|false)(?: \(default\))? \| (.*) \| (.*) \|$",
        (ROOT / "docs" / "why.md").read_text(),
        re.M,
    )
    printed = {(row[0], row[1]): [(length, row[3]) for length in row[2].split(", ")] for row in rows}
    assert printed == measured
    assert measured["true", "true"] == [("1.0000", "1.0000")] * 2
