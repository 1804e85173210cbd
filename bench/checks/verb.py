"""`bench check`, apart from its arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from bench.adapters import registry
from bench.checks import shown
from bench.checks.pool import Ranks
from bench.checks.subject import Subject
from bench.checks.suite import Result, examine, subject_of
from bench.errors import UserError


def check(target: str | None, everything: bool, report: Path | None, say: Callable[[str], object]) -> bool:
    """Check one method or all of them, saying each result when it is there; whether nothing failed.

    UserError where `target` is no method, its file cannot be imported, or `report` has no known suffix.
    """
    if (target is None) != everything:
        raise UserError("bench check: say either a method (a name or a file) or --all")
    if report is not None:
        shown.check_format(report)
    torch.set_num_threads(1)  # the ranks work beside this process, and bits should not depend on the machine
    results: list[Result] = []
    with Ranks() as pool:
        pool.start()
        subjects = [subject_of(target)] if target else [_named(name) for name in registry.names()]
        for subject in subjects:
            say(f"{subject.name}: {subject.kind.about.title}")
            for result in examine(subject, pool):
                results.append(result)
                if target or result.outcome == "failed":
                    say(shown.line(result))
    if everything:
        say("\n" + shown.matrix(results))
    say(shown.verdict(results))
    if report is not None:
        shown.write(report, results)
    return all(result.outcome != "failed" for result in results)


def _named(name: str) -> Subject:
    place = registry.source(name)
    return Subject(name, place.path if place.plugin else None)
