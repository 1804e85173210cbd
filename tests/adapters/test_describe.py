"""`bench methods`: what it says of a method, and that it fits the terminal."""

from __future__ import annotations

import pytest

from bench.adapters import registry
from bench.adapters.describe import describe_method, method_summaries


@pytest.mark.parametrize("width", [60, 110, 160])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_lost(width: int) -> None:
    text, unbroken = (
        "\n\n".join(describe_method(name, one) for name in registry.method_names()) for one in (width, 10_000)
    )
    longest = max(len(word) for word in text.split())
    assert max(map(len, text.splitlines())) <= max(width, longest + 12)  # a word is never cut
    assert "".join(text.split()) == "".join(unbroken.split())  # lines break at hyphens, too


def test_every_method_has_a_line_with_its_paper() -> None:
    lines = method_summaries(registry.method_names())
    assert [line.split()[0] for line in lines] == list(registry.method_names())
    assert all(line.endswith(registry.find_method(line.split()[0]).about.paper) for line in lines)


@pytest.mark.parametrize("name", list(registry.method_names()))
def test_a_method_is_told_by_title_paper_cost_and_settings(name: str) -> None:
    about, text = registry.find_method(name).about, " ".join(describe_method(name).split())
    assert text.startswith(f"{name}: {about.title} ({about.paper})")
    assert "text forwards per pair" in text
    assert all(field in text for field in registry.find_method(name).Config.__dataclass_fields__)
