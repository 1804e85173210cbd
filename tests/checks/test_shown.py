"""Results of checks: what a plug-in says of itself stays text."""

from __future__ import annotations

from bench.checks.suite import CHECKS, Result, checks_matrix

EVIL = '<script>alert(1)</script>"><img src=x onerror=y> | [x](javascript:z)\n| fake |\x1b[2J'


def results(name: str, reason: str) -> list[Result]:
    return [Result(name, check.name, "failed", 0.5, reason) for check in CHECKS[:2]]


def test_a_line_of_the_table_and_the_matrix_cannot_be_faked() -> None:
    bad = results(f"mine{EVIL}", EVIL)
    assert len(checks_matrix(bad).split("\n")) == len(checks_matrix(results("mine", "")).split("\n"))
    assert EVIL in str(bad[0]), "console.text.echo makes it visible"
