"""Results of checks in a file: what a plug-in says of itself stays text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

from bench.checks.shown import line, matrix, write
from bench.checks.suite import CHECKS, Result

EVIL = '<script>alert(1)</script>"><img src=x onerror=y> | [x](javascript:z)\n| fake |\x1b[2J'


def results(name: str, reason: str) -> list[Result]:
    return [Result(name, check.name, "failed", 0.5, reason) for check in CHECKS[:2]]


class Tags(HTMLParser):
    """Elements with the names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, [name for name, _ in attrs]))


def test_a_plugins_words_add_no_element_row_or_link(tmp_path: Path) -> None:
    for name, made in (("clean", results("mine", "why")), ("evil", results(f"mine{EVIL}", EVIL))):
        for suffix in (".html", ".md", ".json"):
            write(tmp_path / f"{name}{suffix}", made)
    clean, evil = (Tags((tmp_path / f"{name}.html").read_text()).found for name in ("clean", "evil"))
    assert evil == clean
    plain, text = ((tmp_path / f"{name}.md").read_text().splitlines() for name in ("clean", "evil"))
    assert len(text) == len(plain)
    assert "<script>" not in "".join(text).replace(r"\<", "")
    assert all(r"](" not in row.replace(r"\]", "") for row in text)
    assert json.loads((tmp_path / "evil.json").read_text())[0]["reason"] == EVIL


def test_a_line_of_the_table_and_the_matrix_cannot_be_faked() -> None:
    bad = results(f"mine{EVIL}", EVIL)
    assert len(matrix(bad).split("\n")) == len(matrix(results("mine", "")).split("\n"))
    assert EVIL in line(bad[0]), "console.text.echo makes it visible"
