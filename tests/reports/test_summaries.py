"""The report explains each method in two sentences."""

from __future__ import annotations

import re

import pytest

from bench.adapters import registry


@pytest.mark.parametrize("name", registry.method_names())
def test_a_summary_has_exactly_two_sentences(name: str) -> None:
    summary = registry.find_method(name).about.summary
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", summary)
    assert len(sentences) == 2, sentences
    assert all(re.search(r"[^.!?][.!?]$", sentence) for sentence in sentences)
    assert "\n" not in summary
