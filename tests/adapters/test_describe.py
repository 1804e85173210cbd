"""`bench methods`: what it says of a method, and that it fits the terminal."""

from __future__ import annotations

import pytest

from bench.adapters import registry
from bench.adapters.describe import catalogue, describe


@pytest.mark.parametrize("width", [60, 110, 160])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_lost(width: int) -> None:
    text = catalogue(width)
    longest = max(len(word) for word in text.split())
    assert max(map(len, text.splitlines())) <= max(width, longest + 12)  # a word is never cut
    assert "".join(text.split()) == "".join(catalogue(10_000).split())  # lines break at hyphens, too


@pytest.mark.parametrize("name", list(registry.names()))
def test_a_method_is_told_by_title_paper_cost_and_settings(name: str) -> None:
    about, text = registry.find(name).about, " ".join(describe(name).split())
    assert text.startswith(f"{name}: {about.title} ({about.paper})")
    assert "text forwards a pair" in text
    assert all(field in text for field in registry.find(name).Config.__dataclass_fields__)
