"""Whether a comparison can speak of robustness at all: four checks under each noise, with fixed limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from reports.headlines import Named, along, memorised
from reports.measure import record_measure
from reports.reference.agreement import FEWEST, agreement_of
from reports.results import Results, once
from reports.statistics.contrasts import Contrast, headline_contrasts
from reports.statistics.paired import MINIMUM, mean
from reports.tables.table import signed

TRAINED_OUT = 0.03  #: share of its level below which the gain of the last quarter of a run has to be
LEARNED_WRONG = 0.05  #: by how much the baseline's share of memorised wrong captions must exceed chance
ONE_ORDER = 0.9  #: share of the rank correlation that one order alone would give, from which on it is one order
NAMED = 4  #: methods that a sentence names; tables have them all
QUARTER = 0.75  #: share of a run at which its last quarter begins

Outcome = Literal["pass", "fail", "unknown"]
QUESTION = "Can this comparison speak of robustness?"
ANSWERS: Mapping[Outcome, str] = {"pass": "yes", "fail": "no", "unknown": "unknown"}


@dataclass(frozen=True)
class Check:
    """One of the four checks under one noise."""

    name: str
    outcome: Outcome
    sentence: str  #: with its numbers
    means: str  #: what a comparison that fails it speaks of instead


@dataclass(frozen=True)
class Validity:
    """The four checks under one noise, at one budget."""

    noise: str
    checks: tuple[Check, ...]

    @property
    def outcome(self) -> Outcome:
        """ "pass" if all checks pass, "fail" if one fails."""
        found = {one.outcome for one in self.checks}
        return "fail" if "fail" in found else "unknown" if "unknown" in found else "pass"

    @property
    def sentence(self) -> str:
        """The answer, the first check that decides it, and the names of the others that do not pass."""
        first = next((one for one in self.checks if one.outcome == self.outcome), self.checks[0])
        others = [f"{one.name} ({one.outcome})" for one in self.checks if one.outcome != "pass" and one is not first]
        more = f" Also: {', '.join(others)}." if others else ""
        about = {
            "pass": "all four checks pass.",
            "fail": f"{first.sentence}; it speaks of {first.means}.",
            "unknown": f"{first.sentence}.",
        }
        return f"{self.noise}: {ANSWERS[self.outcome]}; {about[self.outcome]}{more}"

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence a check."""
        return tuple(f"{one.name}: {one.outcome} ({one.sentence})" for one in self.checks)


@once
def validity(results: Results, rows: tuple[str, ...] = ()) -> tuple[Validity, ...]:
    """The checks under every noise, the longest budget first; `rows`: those in question, besides the baseline.

    Without `rows`, those in question for "trained out" are the significantly better ones, or all if none is better.

    Empty without noise or numbers, and where the primary metric is better when lower: that is the success of an attack.
    """
    contrasts = {one.noise: one for one in headline_contrasts(results) if one.measure.column.higher_is_better}
    noises = [noise for noise, one in contrasts.items() if results.noises[noise]["kind"] and one.values]
    noises.sort(key=lambda noise: -results.budget(noise))
    return tuple(
        Validity(
            noise,
            (
                _learned_wrong(results, noise),
                _trained_out(results, contrasts, noise, rows),
                _own_order(results, contrasts, noise),
                _tuned(results, noise, rows),
            ),
        )
        for noise in noises
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _learned_wrong(results: Results, noise: str) -> Check:
    """(c) Did the baseline memorise wrong captions at all?"""
    base, found = results.baseline, "memorisation was not measured"
    outcome: Outcome = "unknown"
    named = memorised(results)
    if named and (own := _along(results, noise, base, named, 1.0)):
        share, chance = mean(list(own.values())), record_measure(results, *named).column.chance or 0.0
        outcome = "pass" if share - chance > LEARNED_WRONG else "fail"
        found = f"{results.named(base)} has memorised {_percent(share)} of its wrong captions at the end (chance "
        found += f"{_percent(chance)}, required {_percent(chance + LEARNED_WRONG)})"
    return Check("wrong captions learned", outcome, found, "speed of learning, not robustness")


def _trained_out(results: Results, contrasts: Mapping[str, Contrast], noise: str, rows: Sequence[str]) -> Check:
    """(a) Have the baseline, the oracle and the rows in question converged?"""
    own = contrasts[noise]
    better = [label for label in own.gains if "better" in own.verdicts(label)]
    bounds = list(filter(None, (own.baseline, own.oracle)))
    asked = list(dict.fromkeys((*bounds, *(rows or better or own.gains))))
    gains = {label: _last_quarter(results, contrasts, noise, label) for label in asked}
    known = {label: gain for label, gain in gains.items() if gain is not None}
    others = sorted((label for label in known if label not in bounds), key=lambda label: -known[label])
    listed = [*(label for label in bounds if label in known), *others[:NAMED]]
    named = ", ".join(f"{results.named(label)} {signed(known[label])} %" for label in listed)
    if more := others[NAMED:]:
        above = sum(known[label] >= TRAINED_OUT for label in more)
        named += f" and {len(more)} more" + (f", {above} of them above the limit" if above else " below that")
    found = f"gain of the last quarter of training, relative to the level: {named} (limit {_percent(TRAINED_OUT)})"
    lacking = ", ".join(results.named(label) for label in asked if label not in known)
    outcome: Outcome = "unknown" if lacking else "pass"
    if lacking:
        unknown = f"the gain of the last quarter is unknown for {lacking}: no points along the run, no shorter budget"
        found = f"{found}; {unknown}" if known else unknown
    if any(gain >= TRAINED_OUT for gain in known.values()):
        outcome = "fail"
    return Check("trained out", outcome, found, "early training, not robustness")


def _last_quarter(results: Results, contrasts: Mapping[str, Contrast], noise: str, label: str) -> float | None:
    """The gain of the last quarter of training over the final level; None if it is not known.

    With a shorter budget, at which it has learned: by the slope over the logarithm of the budget, as each run has its
    own schedule. Otherwise from the point at 75 % of the run to its end, on the number that was measured there; its
    schedule's end is in it.
    """
    block, values = results.noises[noise], contrasts[noise].values.get(label, {})
    same = ("kind", "rate", "towers")
    shorter = {
        results.budget(other): contrasts[other].values.get(label, {})
        for other in contrasts
        if all(results.noises[other].get(key) == block.get(key) for key in same)
        and results.budget(other) < results.budget(noise)
    }
    if shorter and values.keys() & shorter[max(shorter)].keys():
        before, share = shorter[max(shorter)], math.log(1 / QUARTER) / math.log(results.budget(noise) / max(shorter))
    else:
        before, values = (_along(results, noise, label, along(results), at) for at in (QUARTER, 1.0))
        share = 1.0
    shared = values.keys() & before.keys()
    level = mean([values[seed] for seed in shared]) if shared else 0.0
    return share * (level - mean([before[seed] for seed in shared])) / level if level > 0 else None


def _along(results: Results, noise: str, label: str, named: Named, at: float) -> dict[int, float]:
    """Seed -> a number that was measured along the runs, at a share of them, whichever point is selected."""
    score = results.methods[label]["score"]
    found = {run.seed: run.of_last.find(*named, score, at) for run in results.of(label, noise)}
    return {seed: one.value for seed, one in found.items() if one}


def _own_order(results: Results, contrasts: Mapping[str, Contrast], noise: str) -> Check:
    """(b) Does the order of the rows under noise differ from the order on clean pairs?"""
    clean, own = contrasts.get(results.clean(noise) or ""), contrasts[noise]
    sides = [{label: one.values[label] for label in one.ranked if label in one.values} for one in (clean, own) if one]
    agreed = agreement_of(noise, *sides) if clean else None
    outcome: Outcome = "unknown"
    found = f"the order on clean pairs is unknown: it takes {FEWEST} rows with {MINIMUM} seeds on both"
    if agreed and not agreed.one_order:
        found = "the order on clean pairs and under noise cannot be compared: these seeds rank no rows reliably"
    elif agreed:
        most = agreed.one_order
        outcome = "fail" if agreed.high >= most or agreed.rho > ONE_ORDER * most else "pass"
        found = f"Spearman of the means of {len(agreed.rows)} rows on clean and on noisy pairs is {agreed.rho:.2f} "
        found += f"({agreed.low:.2f} to {agreed.high:.2f}), where one order alone would give {most:.2f}"
    return Check("not the clean order", outcome, found, "the level on clean pairs, not robustness")


def _tuned(results: Results, noise: str, rows: Sequence[str]) -> Check:
    """(d) Is every best trial inside its space?"""
    known = results.at_edge or {}
    edges = {label: edge for label, edge in known.items() if not rows or label in {results.baseline, *rows}}
    at = [label for label, edge in edges.items() if edge]
    lacking = [label for label in rows or results.ranked if label not in known]
    outcome: Outcome = "fail" if at else "pass" if edges and not lacking else "unknown"
    found = f"the best trial lies at an edge of its space for {len(at)} of {len(edges)} rows"
    tuned = results.plan["tuning"]
    if edges and lacking:
        found += f"; {', '.join(map(results.named, lacking))} had no trials"
    elif outcome == "unknown":
        found = "where the best trials lie in their spaces is not stored" if tuned else "no entry was tuned"
    if edges:
        budgets = [tuned["rungs"][-1]["budget"], f"{results.budget(noise):g} {results.plan['budget']['unit']}"]
        told = [results.told(budget) for budget in budgets]
        saw, read = told if told[0] != budgets[0] else budgets  # in one unit
        found += f"; the trials had at most {saw}, and the runs have {read}" if saw != read else ""
    return Check("tuned", outcome, found, "unequal tuning, not robustness")
