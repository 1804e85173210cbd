"""The papers' main orderings, results/published/claims.yaml, and whether they hold in a suite.

Paired t-tests; Holm's correction over the claims of one paper that can be tested under one noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from reports.measure import Measure, average_measure, record_measure, values_by_seed
from reports.results import Results
from reports.statistics.chance import unlearned
from reports.statistics.paired import LEVEL, MINIMUM, Difference, adjusted, difference
from reports.statistics.power import detectable
from reports.vocabulary import family

Verdict = Literal["holds", "does not hold", "inconclusive", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "inconclusive", "not tested")
NOT_RUN = "this noise rate was not run"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Claim(_Model):
    """One ordering as printed, and the rows and the measure that stand for it here."""

    better: str  #: as the paper calls it
    worse: str
    printed: tuple[int | float, int | float]  #: of the better and of the worse one, as printed
    table: str  #: its number in the paper
    dataset: str  #: as printed
    metric: str
    rows: tuple[str, str]  #: labels of a suite
    measure: str  #: key of `Claims.measures`
    pretrain: str = ""  #: beginning of the numbers' training data, if the table has several
    backbone: str = ""  #: beginning of the numbers' towers, if the table has several
    settings: tuple[str, str] = ("", "")  #: of the better and of the worse one


class PaperClaims(_Model):
    """The claims of a paper with its setting."""

    printed: str  #: what they were made with
    differs: str  #: why the order may be another one here
    comparison: str = ""  #: folder of results/reference that they are judged by, if it is not that of all claims
    rates: tuple[float, ...]  #: noise rates under which they are judged
    claims: tuple[Claim, ...]


class Part(_Model):
    """The mean over the data sets that are measured with a task, or a family of tasks, and a metric."""

    task: str
    metric: str
    datasets: tuple[str, ...] = ()  #: only these; all if empty


class ClaimMeasure(_Model):
    """The mean over its parts."""

    label: str
    parts: tuple[Part, ...]


class Claims(_Model):
    """All claims with the measures that they name."""

    comparison: str  #: folder of results/reference that they are judged by, unless a paper names another
    measures: Mapping[str, ClaimMeasure]
    papers: Mapping[str, PaperClaims]
    without_claims: Mapping[str, str] = {}  #: papers with numbers that have no claim, and why

    def judged_by(self, comparison: str) -> Claims:
        """Return the claims of the papers that a comparison judges."""
        papers = {name: one for name, one in self.papers.items() if (one.comparison or self.comparison) == comparison}
        return self.model_copy(update={"papers": papers})


def read_claims(folder: Path) -> Claims:
    """Return the claims that lie next to the papers' numbers."""
    return Claims.model_validate(yaml.safe_load((folder / "claims.yaml").read_text("utf-8")))


@dataclass(frozen=True)
class Judged:
    """A claim under one noise."""

    claim: Claim
    noise: str  #: the plan's label, or the rate that was not run
    test: Difference | None = None  #: of the row that is printed as better minus the other, positive if it is so here
    p: float | None = None  #: adjusted over the paper's claims under this noise
    lacks: str = ""  #: why there is no test
    clean: Difference | None = None  #: the same on clean pairs; None if they are this noise, or were not trained

    @property
    def verdict(self) -> Verdict:
        """ "does not hold" means that the opposite is significant."""
        if self.test is None or self.p is None:
            return "not tested"
        if self.p > LEVEL:
            return "inconclusive"
        return "holds" if self.test.value > 0 else "does not hold"

    @property
    def detectable(self) -> float | None:
        """The smallest difference detected with 80 % power, at 5 % and unadjusted; None where seeds have no spread."""
        return detectable(self.test.n) * self.test.std or None if self.test else None


def judge(results: Results, claims: Claims) -> dict[str, list[Judged]]:
    """Judge every claim by a suite's results; paper -> its claims, each under every noise of its rates."""
    measures = {name: claim_measure(results, one) for name, one in claims.measures.items()}
    judged = {}
    for name, paper in claims.papers.items():
        judged[name] = list[Judged]()
        for noise in _noises(results, paper):
            block = [_judged(results, claim, noise, measures[claim.measure]) for claim in paper.claims]
            steps = iter(adjusted([one.test.p for one in block if one.test]).tolist())
            judged[name] += [replace(one, p=next(steps)) if one.test else one for one in block]
    return judged


def claim_measure(results: Results, wanted: ClaimMeasure) -> Measure | None:
    """Return the measure of a suite that stands for a claim's; None if the suite measures a part of it nowhere."""
    parts = []
    for part in wanted.parts:
        if not (own := numbers_of(results, part)):
            return None
        parts.append(average_measure(part.task, part.metric, "", [record_measure(results, *one) for one in own]))
    return average_measure(wanted.label, wanted.label, "", parts)


def numbers_of(results: Results, part: Part) -> list[tuple[str, str, str]]:
    """Return the data set, task and metric of each stored number that a part averages."""
    fitting = [one for one in results.measures if part.task in (one[1], family(one[1])) and one[2] == part.metric]
    return [one for one in fitting if not part.datasets or one[0] in part.datasets]


def _noises(results: Results, paper: PaperClaims) -> Iterator[str | float]:
    """Yield the labels of the suite's noises with the paper's rates, and each rate that the suite does not have."""
    for rate in paper.rates:
        labels = [label for label, entry in results.noises.items() if entry["rate"] == rate]
        of = {label: (results.noises[label]["kind"], results.noises[label]["towers"]) for label in labels}
        # clean pairs have a block for each noise that ends at an earlier budget
        longest = {of[label]: label for label in sorted(labels, key=results.budget)}
        yield from [label for label in labels if longest[of[label]] == label] or (rate,)


def _judged(results: Results, claim: Claim, noise: str | float, measure: Measure | None) -> Judged:
    if isinstance(noise, float):
        return Judged(claim, f"{100 * noise:g} % noise", lacks=NOT_RUN)
    if unknown := [label for label in claim.rows if label not in results.methods]:
        return Judged(claim, noise, lacks=f"there is no row {unknown[0]!r}")
    if measure is None or not measure.comparable:
        why = "not measured by this suite" if measure is None else "measured on different data"
        return Judged(claim, noise, lacks=why)
    if lost := [label for label in claim.rows if label in unlearned(results)[noise]]:
        return Judged(claim, noise, lacks=f"{' and '.join(lost)} not learned")
    test, shared = _difference(results, claim, noise, measure)
    if test is None:
        return Judged(claim, noise, lacks=f"{shared} of the {MINIMUM} seeds that it takes")
    clean = results.clean(noise)
    return Judged(claim, noise, test, clean=_difference(results, claim, clean, measure)[0] if clean else None)


def _difference(results: Results, claim: Claim, noise: str, measure: Measure) -> tuple[Difference | None, int]:
    """Test the row that is printed as better against the other; and how many seeds they share."""
    values = values_by_seed(results, noise, measure, claim.rows)
    better, worse = (values.get(label, {}) for label in claim.rows)
    test = difference(better, worse) if measure.column.higher_is_better else difference(worse, better)
    test = test and test.within(measure.column.most)
    return test, len(better.keys() & worse.keys())
