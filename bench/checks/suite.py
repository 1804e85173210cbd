"""The list of checks, and their results on one adapter or all, from Python and for `bench check`."""

from __future__ import annotations

import contextlib
import inspect
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import torch

from bench.adapters import registry
from bench.checks import card, encoding, needs, numbers, objective, precision, training
from bench.checks.pool import RankPool
from bench.checks.subject import Failed, Skipped, Subject
from bench.console.text import join_lines
from bench.errors import UserError
from methods.protocol import Method

Say = Callable[[str], object]
Outcome = Literal["passed", "failed", "skipped", "expected"]


@dataclass(frozen=True)
class Check:
    """One property that every method should have."""

    name: str
    run: Callable[..., None]  #: gets a Subject; that of ranks the pool as well, that of cards the names of checks

    @property
    def about(self) -> str:
        """The first line of the docstring of its function."""
        return (self.run.__doc__ or "").partition("\n")[0]


@dataclass(frozen=True)
class Result:
    """The result of one check of one method; "expected" is a failure that the method declares."""

    method: str
    check: str
    outcome: Outcome
    seconds: float
    reason: str = ""

    def __str__(self) -> str:
        """One row of the table of one method."""
        return f"{self.check:<16} {self.outcome:<9} {self.seconds:6.2f} s  {self.reason}".rstrip()


CHECKS: tuple[Check, ...] = (
    Check("card", card.card),
    Check("refusals", card.refusals),
    Check("oracles", card.known_values),
    Check("identities", card.identities),
    Check("gradient", objective.gradient),
    Check("tiles", objective.tiles),
    Check("permutation", objective.permutation),
    Check("purity", objective.purity),
    Check("state", objective.state),
    Check("extremes", numbers.extremes),
    Check("fp32", precision.fp32),
    Check("scalars", numbers.scalars),
    Check("reports", numbers.reports),
    Check("micro_batches", encoding.micro_batches),
    Check("mixed_precision", encoding.mixed_precision),
    Check("randomness", encoding.randomness),
    Check("needs", needs.needs),
    Check("cost", encoding.cost),
    Check("resume", training.resume),
    Check("noise_mask", training.noise_mask),
    Check("learns", training.learns),
    Check("ranks", training.ranks),
)


def run_checks(
    subject: Subject, pool: RankPool, checks: tuple[Check, ...] = CHECKS, following: Subject | None = None
) -> Iterator[Result]:
    """Run checks on one method. Ranks get their work first and are read last: they use the other core meanwhile.

    following: the method that is checked after it, for which the ranks then train without a pause.
    """
    if any(check.run is training.ranks for check in checks):
        for one in filter(None, (subject, following)):
            with contextlib.suppress(Exception):  # the check itself meets the same error and reports it
                pool.ask(one.name, training.rank_trainings(one))
    for check in checks:
        started = time.perf_counter()
        outcome, reason = _outcome(subject, pool, check)
        yield Result(subject.name, check.name, outcome, time.perf_counter() - started, reason)


def _outcome(subject: Subject, pool: RankPool, check: Check) -> tuple[Outcome, str]:
    known = subject.kind.known_failures.get(check.name)
    try:
        given: dict[object, list[object]] = {training.ranks: [pool], card.card: [[one.name for one in CHECKS]]}
        check.run(subject, *given.get(check.run, ()))
    except Skipped as skipped:
        return "skipped", str(skipped)
    except UserError:
        raise
    except Exception as error:  # whatever an adapter raises is a mistake in that adapter, and one row of the table
        message = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
        reason = " ".join(message.split())
        return ("expected", f"{known} ({reason})") if known else ("failed", reason)
    if known:
        return "failed", f"passes, but is declared to fail: {known}"
    return "passed", ""


def subject_of(target: str) -> Subject:
    """Return the method of this name or in this file. Raises UserError if there is none or it cannot be imported."""
    path, name = Path(target), target
    if path.suffix == ".py" or path.is_file():
        if not path.is_file():
            raise UserError(f"{target}: no such file")
        name = registry.add_plugin(path)
    registry.find_method(name)
    source = registry.method_source(name)
    return Subject(name, source.path if source.plugin else None)


def check(adapter: str | Path | type[Method], say: Say = str) -> list[Result]:
    """Run every check on one adapter: a method's name, a file with one, or its class; returns a result for each.

    `say` receives each result as a line as soon as it is known. Raises UserError if there is no such method, or if a
    file cannot be imported.
    """
    target = str(adapter)
    if isinstance(adapter, type):
        try:
            target = inspect.getfile(adapter)
        except (OSError, TypeError) as error:
            reason = "has no source file; write the adapter to a file of its own"
            raise UserError(f"{adapter.__name__}: {reason}") from error
    return _examined([target], say, failures_only=False)


def check_all(say: Say = str) -> list[Result]:
    """Run every check on every method that is known; `say` receives the failures as lines."""
    return _examined(registry.method_names(), say, failures_only=True)


def _examined(targets: Sequence[str], say: Say, failures_only: bool) -> list[Result]:
    results: list[Result] = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the ranks run at the same time, and bits should not depend on the machine
    try:
        with RankPool() as pool:
            subjects = [subject_of(target) for target in targets]
            for subject, following in zip_longest(subjects, subjects[1:]):
                say(f"{subject.name}: {subject.kind.about.title}")
                for result in run_checks(subject, pool, following=following):
                    results.append(result)
                    if result.outcome == "failed" or not failures_only:
                        say(str(result))
    finally:
        torch.set_num_threads(before)
    return results


OUTCOME_SIGNS: dict[Outcome, str] = {"passed": "+", "failed": "FAIL", "skipped": "-", "expected": "x"}
LEGEND = "+ passed, - does not apply, x fails as declared"


def checks_verdict(results: Sequence[Result]) -> str:
    """One sentence."""
    counts = {outcome: sum(result.outcome == outcome for result in results) for outcome in OUTCOME_SIGNS}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return f"{summary} in {sum(result.seconds for result in results):.0f} s"


def checks_matrix(results: Sequence[Result]) -> str:
    """Methods by checks."""
    methods = list(dict.fromkeys(result.method for result in results))
    checks = [check.name for check in CHECKS if any(result.check == check.name for result in results)]
    result_of = {(result.method, result.check): result for result in results}
    width = max(map(len, methods))
    lines = [f"{number:>{width}}  {check}" for number, check in enumerate(checks, 1)]
    lines += ["", " " * width + "".join(f"{number:>5}" for number in range(1, len(checks) + 1))]
    for method in methods:
        cells = "".join(f"{OUTCOME_SIGNS[result_of[method, check].outcome]:>5}" for check in checks)
        seconds = sum(result_of[method, check].seconds for check in checks)
        lines.append(f"{method:<{width}}{cells}  {seconds:5.1f} s")
    return join_lines([*lines, "", LEGEND])


def results_json(results: Sequence[Result]) -> str:
    """A list with an object for each result."""
    return json.dumps([asdict(result) for result in results], indent=1) + "\n"
