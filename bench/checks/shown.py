"""Results of checks as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from bench.checks.suite import CHECKS, Outcome, Result
from bench.console.text import joined

SIGNS: dict[Outcome, str] = {"passed": "+", "failed": "FAIL", "skipped": "-", "expected": "x"}
LEGEND = "+ passed, - does not apply, x fails as declared"


def verdict(results: Sequence[Result]) -> str:
    """One sentence."""
    counts = {outcome: sum(result.outcome == outcome for result in results) for outcome in SIGNS}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return f"{summary} in {sum(result.seconds for result in results):.0f} s"


def matrix(results: Sequence[Result]) -> str:
    """Methods by checks."""
    methods = list(dict.fromkeys(result.method for result in results))
    checks = [check.name for check in CHECKS if any(result.check == check.name for result in results)]
    result_of = {(result.method, result.check): result for result in results}
    width = max(map(len, methods))
    lines = [f"{number:>{width}}  {check}" for number, check in enumerate(checks, 1)]
    lines += ["", " " * width + "".join(f"{number:>5}" for number in range(1, len(checks) + 1))]
    for method in methods:
        cells = "".join(f"{SIGNS[result_of[method, check].outcome]:>5}" for check in checks)
        seconds = sum(result_of[method, check].seconds for check in checks)
        lines.append(f"{method:<{width}}{cells}  {seconds:5.1f} s")
    return joined([*lines, "", LEGEND])


def as_json(results: Sequence[Result]) -> str:
    """A list with an object for each result."""
    return json.dumps([asdict(result) for result in results], indent=1) + "\n"
