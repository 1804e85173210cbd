"""Every method against the suite's baseline, column by column: gains over seeds, significance, detectability.

Gains are method minus baseline where higher is better, and baseline minus method where lower is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from reports.headlines import headlines, primary
from reports.measure import Measure, cells_under, column_name
from reports.results import Results, once
from reports.statistics.chance import learned_values
from reports.statistics.paired import (
    LEVEL,
    MINIMUM,
    SAME,
    Difference,
    adjusted,
    difference,
    holm,
    mean,
    t_tails,
    t_test,
)
from reports.statistics.power import detectable
from reports.statistics.ratio import Ratio, fieller, over_spread
from reports.tables.table import signed

NEAR_CHANCE = 0.1  #: a method this share of the baseline's way above chance, or lower, is near chance
MARGIN = 0.1  #: share of the oracle's gain within which a method is practically the same as the baseline


@dataclass(frozen=True)
class Detectable:
    """The smallest difference from the baseline that a column's seeds detect with 80 % power, at 5 %."""

    value: float  #: of one method alone: median over methods
    adjusted: float  #: if all rows are tested, by Bonferroni's level, which is Holm's first
    std: float  #: of gains over seeds: median over methods
    n: int  #: seeds; the fewest, if methods have different numbers
    rows: int  #: methods that are tested against the baseline


@dataclass(frozen=True)
class Contrast:
    """A column under one noise."""

    noise: str
    measure: Measure
    baseline: str
    oracle: str | None
    ranked: tuple[str, ...]  #: the compared methods, the baseline too
    #: method -> seed -> value, negative if lower is better; without methods that have not learned under this noise
    values: Mapping[str, Mapping[int, float]]

    def gain(self, label: str) -> Difference | None:
        """How much better a method is than the baseline, tested alone; None if they share too few seeds."""
        test = difference(self.values.get(label, {}), self.values.get(self.baseline, {}))
        return test and test.within(self.measure.column.most)

    def as_difference(self, gain: Difference) -> Difference:
        """A gain as method minus baseline in the column's own numbers, negative where the lower one is better."""
        if self.measure.column.higher_is_better:
            return gain
        return replace(gain, value=-gain.value, low=-gain.high, high=-gain.low)

    @cached_property
    def gains(self) -> dict[str, Difference]:
        """The gains of the compared methods that have enough seeds, as one family of tests."""
        others = (label for label in self.ranked if label != self.baseline)
        tests = holm({label: gain for label in others if (gain := self.gain(label))})
        return {label: test.within(self.measure.column.most) for label, test in tests.items()}

    @property
    def seeds(self) -> int:
        """The fewest seeds of a test; 0 without one."""
        return min((test.n for test in self.gains.values()), default=0)

    @cached_property
    def gap(self) -> Difference | None:
        """The oracle's gain; None without an oracle, or where the noise leaves nothing out."""
        return self.gain(self.oracle) if self.oracle else None

    @property
    def is_resolved(self) -> bool:
        """Whether the oracle is significantly better than the baseline, tested alone."""
        return self.gap is not None and self.gap.low > 0

    @cached_property
    def same(self) -> set[str]:
        """Methods that are practically the same as the baseline: within `MARGIN` of the oracle's gain.

        Two one-sided t-tests (Schuirmann 1987) at 5 %, Holm over the compared methods. Empty if there is no margin.
        """
        if self.gap is None or not self.is_resolved:
            return set()
        p_values = [equivalence(test, MARGIN * self.gap.value) for test in self.gains.values()]
        steps = adjusted(p_values)
        return {label for label, p in zip(self.gains, steps, strict=True) if p <= LEVEL}

    def verdicts(self, label: str) -> tuple[str, ...]:
        """ "better" or "worse", and "practically the same"; () if inconclusive."""
        test = self.gains.get(label)
        apart = ("better" if test.value > 0 else "worse",) if test and test.is_significant else ()
        return (*apart, "practically the same") if label in self.same else apart

    @cached_property
    def detectable(self) -> Detectable | None:
        """The smallest detectable difference; None without spread, or if only the baseline is above chance."""
        tests = [test for label, test in self.gains.items() if not self._is_near_chance(label)]
        if not tests or not median(test.std for test in tests):
            return None
        level = LEVEL / len(self.gains)
        return Detectable(
            median(detectable(test.n) * test.std for test in tests),
            median(detectable(test.n, level) * test.std for test in tests),
            median(test.std for test in tests),
            min(test.n for test in tests),
            len(self.gains),
        )

    @cached_property
    def resolution(self) -> Ratio | None:
        """The oracle's gain divided by the smallest detectable difference."""
        if self.gap is None or self.detectable is None or not self.detectable.value:
            return None
        return over_spread(self.gap, self.detectable.value, self.detectable.n)

    def recovered(self, label: str) -> Ratio | None:
        """The share of the oracle's gain that a method has; None if the gap is not resolved over the shared seeds."""
        own, base = self.values.get(label, {}), self.values.get(self.baseline, {})
        best = self.values.get(self.oracle or "", {})
        seeds = sorted(own.keys() & base.keys() & best.keys())
        if len(seeds) < MINIMUM:
            return None
        gap = [best[seed] - base[seed] for seed in seeds]
        if mean(gap) <= 0 or t_test(gap).p > LEVEL:  # the sign test's p where the gap has no spread
            return None
        return fieller([own[seed] - base[seed] for seed in seeds], gap)

    def _is_near_chance(self, label: str) -> bool:
        """Whether a method is so near chance that its small spread says nothing of the others."""
        column = self.measure.column
        if column.chance is None:
            return False
        sign = 1 if column.higher_is_better else -1  # `values` are negative where lower is better
        own, base = (sign * mean(list(self.values[one].values())) - column.chance for one in (label, self.baseline))
        return own <= NEAR_CHANCE * base


def equivalence(test: Difference, margin: float) -> float:
    """The p-value of two one-sided t-tests that a mean lies within `margin` >= 0 of zero.

    Differences that are all the same have no spread: their p is the exact one-sided sign test's, 2^-n, as in `t_test`.
    """
    error = test.std / math.sqrt(test.n)
    distance = margin - abs(test.value)
    if error <= SAME * margin:
        return 2.0**-test.n if distance > 0 else 1.0
    tail = float(t_tails(distance / error, test.n - 1)) / 2
    return tail if distance > 0 else 1 - tail


def on_clean(clean: Contrast | None, label: str, before: str = "; ", after: str = "") -> str:
    """ "; +3.1 on clean pairs": what follows every difference under noise; "" where it is not known."""
    gain = clean.gain(label) if clean else None
    return f"{before}{signed(clean.as_difference(gain).value)} on clean pairs{after}" if clean and gain else ""


@once
def contrasts(results: Results) -> list[Contrast]:
    """Every headline column under every noise, in the order of reading; costs and mixed data are left out."""
    made = []
    measures = [one for one in headlines(results) if one.comparable and one.column.higher_is_better is not None]
    for noise, entry in results.noises.items():
        for measure in measures:
            values = learned_values(results, noise, measure, results.methods)
            oracle = results.oracle if entry["kind"] else None
            made.append(Contrast(noise, measure, results.baseline, oracle, tuple(results.ranked), values))
    return made


def headline_contrasts(results: Results) -> list[Contrast]:
    """The methods against the baseline on the primary metric, one per noise; [] if nothing of it can be compared.

    A noise under which no row has such a number is left out, as no attack succeeds without poison.
    """
    name = column_name(*primary(results))
    asked = [one for one in contrasts(results) if one.measure.column.name == name]
    states = {
        one.noise: {made.state for made in cells_under(results, one.noise, one.measure).values()} for one in asked
    }
    return [one for one in asked if any(one.values.values()) or states[one.noise] != {"not applicable"}]


def tested_contrasts(results: Results) -> list[Contrast]:
    """The headline contrasts that have a test: those under noise, or those on clean pairs if there are no others."""
    tested = [one for one in headline_contrasts(results) if one.gains]
    return [one for one in tested if results.noises[one.noise]["kind"]] or tested
