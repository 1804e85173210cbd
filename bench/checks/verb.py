"""Checks one adapter or all, from Python and for `bench check`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from bench.adapters import registry
from bench.checks import shown
from bench.checks.pool import Ranks
from bench.checks.subject import Subject
from bench.checks.suite import Result, examine, examine_on_features, subject_of
from bench.errors import UserError
from methods.protocol import Method

Say = Callable[[str], object]


def check(adapter: str | Path | type[Method], say: Say | None = None, *, features: bool = False) -> list[Result]:
    """Run every check on one adapter: a method's name, a file with one, or its class; returns a result for each.

    `say` receives each result as a line as soon as it is known. `features`: run those that involve towers on heads that
    read stored features. Raises UserError if there is no such method, or if a file cannot be imported.
    """
    target = str(_file_of(adapter)) if isinstance(adapter, type) else str(adapter)
    with _one_thread():
        return _examined([subject_of(target, features)], say or _ignore, failures_only=False)


def check_all(say: Say | None = None, *, features: bool = False) -> list[Result]:
    """Run every check on every method that is known; `say` receives the failures as lines; `features` as in `check`."""
    with _one_thread():
        subjects = [replace(_named(name), features=features) for name in registry.names()]
        return _examined(subjects, say or _ignore, failures_only=True)


def _ignore(_: str) -> None:
    """Drop a line that nobody asked for."""


def _examined(subjects: Sequence[Subject], say: Say, failures_only: bool) -> list[Result]:
    results: list[Result] = []
    with Ranks() as pool:
        for subject in subjects:
            say(f"{subject.name}: {subject.kind.about.title}")
            for result in (examine_on_features if subject.features else examine)(subject, pool):
                results.append(result)
                if result.outcome == "failed" or not failures_only:
                    say(shown.line(result))
    return results


@contextmanager
def _one_thread() -> Iterator[None]:
    """The ranks work beside this process, and bits should not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _file_of(adapter: type[Method]) -> Path:
    try:
        return Path(inspect.getfile(adapter))
    except (OSError, TypeError) as error:
        raise UserError(f"{adapter.__name__}: has no source file; write the adapter to a file of its own") from error


def _named(name: str) -> Subject:
    source = registry.source(name)
    return Subject(name, source.path if source.plugin else None)
