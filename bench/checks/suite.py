"""The list of checks, and their results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.adapters import registry
from bench.checks import card, encoding, needs, numbers, objective, precision, training
from bench.checks.pool import Ranks
from bench.checks.subject import Failed, Skipped, Subject
from bench.errors import UserError

Outcome = Literal["passed", "failed", "skipped", "expected"]


@dataclass(frozen=True)
class Check:
    """One property that every method should have."""

    name: str
    run: Callable[[Subject, Ranks], None]

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


def _alone(check: Callable[[Subject], None]) -> Callable[[Subject, Ranks], None]:
    def run(subject: Subject, _: Ranks) -> None:
        check(subject)

    run.__doc__ = check.__doc__
    return run


def _card(subject: Subject, _: Ranks) -> None:
    card.card(subject, tuple(check.name for check in CHECKS))


_card.__doc__ = card.card.__doc__

CHECKS: tuple[Check, ...] = (
    Check("card", _card),
    Check("refusals", _alone(card.refusals)),
    Check("oracles", _alone(card.known_values)),
    Check("identities", _alone(card.identities)),
    Check("gradient", _alone(objective.gradient)),
    Check("tiles", _alone(objective.tiles)),
    Check("permutation", _alone(objective.permutation)),
    Check("purity", _alone(objective.purity)),
    Check("state", _alone(objective.state)),
    Check("extremes", _alone(numbers.extremes)),
    Check("fp32", _alone(precision.fp32)),
    Check("scalars", _alone(numbers.scalars)),
    Check("reports", _alone(numbers.reports)),
    Check("micro_batches", _alone(encoding.micro_batches)),
    Check("mixed_precision", _alone(encoding.mixed_precision)),
    Check("randomness", _alone(encoding.randomness)),
    Check("needs", _alone(needs.needs)),
    Check("cost", _alone(encoding.cost)),
    Check("resume", _alone(training.resume)),
    Check("noise_mask", _alone(training.noise_mask)),
    Check("learns", _alone(training.learns)),
    Check("ranks", training.ranks),
)


#: these ask nothing of towers, or ask what `encode` reads of pixels and tokens
WITHOUT_TOWERS = ("card", "refusals", "oracles", "identities", "needs")
ON_FEATURES = tuple(check for check in CHECKS if check.name not in WITHOUT_TOWERS)


def examine(subject: Subject, pool: Ranks, checks: tuple[Check, ...] = CHECKS) -> Iterator[Result]:
    """Run checks on one method. Ranks get their work first and are read last: they use the other core meanwhile."""
    if any(check.run is training.ranks for check in checks):
        with contextlib.suppress(Exception):  # the check itself meets the same error and reports it
            pool.ask(subject.key, training.rank_trainings(subject))
    for check in checks:
        started = time.perf_counter()
        outcome, reason = _outcome(subject, pool, check)
        yield Result(subject.name, check.name, outcome, time.perf_counter() - started, reason)


def examine_on_features(subject: Subject, pool: Ranks, checks: tuple[Check, ...] = ON_FEATURES) -> Iterator[Result]:
    """Run checks on a method whose towers read stored features; all are skipped if it needs what these lack."""
    lacking = subject.lacking({})
    if not lacking:
        yield from examine(subject, pool, checks)
        return
    reason = f"not applicable on stored features: needs {', '.join(lacking)}"
    yield from (Result(subject.name, check.name, "skipped", 0.0, reason) for check in checks)


def _outcome(subject: Subject, pool: Ranks, check: Check) -> tuple[Outcome, str]:
    known = subject.kind.known_failures.get(check.name)
    try:
        check.run(subject, pool)
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


def subject_of(target: str, features: bool = False) -> Subject:
    """Return the method of this name or in this file, on stored features if asked.

    Raises UserError if there is none or it cannot be imported.
    """
    path, plugin = Path(target), None
    if path.suffix == ".py" or path.is_file():
        if not path.is_file():
            raise UserError(f"{target}: no such file")
        name = registry.add_plugin(path)
        plugin = path.resolve() if registry.source(name).plugin else None
    else:
        name = target
    registry.find(name)
    return Subject(name, plugin, features)
