"""Whether a suite's seeds show an ordering that a paper prints: paired t-tests, Holm over a paper's claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from reports.measure import Measure, average_measure, record_measure, values_by_seed
from reports.reference.claims import Claim, ClaimMeasure, Claims, PaperClaims
from reports.results import Results
from reports.statistics.paired import LEVEL, MINIMUM, Difference, adjusted, difference
from reports.statistics.power import detectable
from reports.vocabulary import family

Verdict = Literal["holds", "does not hold", "cannot be told", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "cannot be told", "not tested")
NOT_RUN = "this noise rate was not run"


@dataclass(frozen=True)
class Judged:
    """A claim under one noise."""

    claim: Claim
    noise: str  #: the plan's label, or the rate that was not run
    test: Difference | None = None  #: of the row that is printed as better minus the other, positive if it is so here
    p: float | None = None  #: adjusted over the paper's claims under this noise
    lacks: str = ""  #: why there is no test

    @property
    def verdict(self) -> Verdict:
        """ "does not hold" means that the opposite is shown."""
        if self.test is None or self.p is None:
            return "not tested"
        if self.p > LEVEL:
            return "cannot be told"
        return "holds" if self.test.value > 0 else "does not hold"

    @property
    def detectable(self) -> float | None:
        """The smallest difference that these seeds show with 80 % power, at 5 % and unadjusted."""
        return detectable(self.test.n) * self.test.std if self.test else None


def judge(results: Results, claims: Claims) -> dict[str, list[Judged]]:
    """Judge every claim by a suite's results; paper -> its claims, each under every noise of its rates.

    Holm's procedure runs over the claims of one paper that can be tested under one noise.
    """
    measures = {name: claim_measure(results, one) for name, one in claims.measures.items()}
    return {
        name: [
            one
            for noise in _noises(results, paper)
            for one in _adjusted([_judged(results, claim, noise, measures[claim.measure]) for claim in paper.claims])
        ]
        for name, paper in claims.papers.items()
    }


def claim_measure(results: Results, wanted: ClaimMeasure) -> Measure | None:
    """Return the measure of a suite that stands for a claim's; None if the suite measures a part of it nowhere."""
    parts = []
    for task, metric in wanted.parts:
        own = [one for one in results.measures if task in (one[1], family(one[1])) and one[2] == metric]
        if not own:
            return None
        parts.append(average_measure(task, metric, "", [record_measure(results, *one) for one in own]))
    return average_measure(wanted.label, wanted.label, "", parts)


def _noises(results: Results, paper: PaperClaims) -> Iterator[str | float]:
    """Yield the labels of the suite's noises with the paper's rates, and each rate that the suite has not."""
    for rate in paper.rates:
        labels = [label for label, entry in results.noises.items() if entry["rate"] == rate]
        if not labels:
            yield rate
        yield from labels


def _judged(results: Results, claim: Claim, noise: str | float, measure: Measure | None) -> Judged:
    if isinstance(noise, float):
        return Judged(claim, f"{100 * noise:g} % noise", lacks=NOT_RUN)
    unknown = [label for label in claim.rows if label not in results.methods]
    if unknown:
        return Judged(claim, noise, lacks=f"there is no row {unknown[0]!r}")
    if measure is None or not measure.comparable:
        why = "not measured by this suite" if measure is None else "measured on different data"
        return Judged(claim, noise, lacks=why)
    values = values_by_seed(results, noise, measure, claim.rows)
    better, worse = (values.get(label, {}) for label in claim.rows)
    test = difference(better, worse) if measure.column.higher_is_better else difference(worse, better)
    if test is None:
        return Judged(claim, noise, lacks=f"{len(better.keys() & worse.keys())} of the {MINIMUM} seeds that it takes")
    return Judged(claim, noise, test)


def _adjusted(block: list[Judged]) -> list[Judged]:
    """Return the claims of a paper under one noise with their adjusted p-values."""
    steps = iter(adjusted([one.test.p for one in block if one.test]).tolist())
    return [Judged(one.claim, one.noise, one.test, next(steps)) if one.test else one for one in block]
