"""The command line, called in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from bench.cli import app


def call_bench(*words: object) -> str:
    """Return what `bench WORDS` prints; it must succeed."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
