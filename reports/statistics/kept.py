"""What a method keeps of its own clean score under noise, compared with the baseline: robustness, not level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from reports.results import Results
from reports.statistics.contrasts import Contrast, headline_contrasts
from reports.statistics.paired import MINIMUM, Difference, difference, holm
from reports.statistics.ratio import Ratio, fieller


@dataclass(frozen=True)
class Kept:
    """The primary metric under a noise and on clean pairs at the same budget, over the seeds that both have."""

    clean: Contrast
    noisy: Contrast

    def on_clean(self, label: str) -> Mapping[int, float]:
        """Seed -> score on clean pairs. There the oracle leaves nothing out, so it is the baseline's run."""
        return self.clean.values.get(self.noisy.baseline if label == self.noisy.oracle else label, {})

    def share(self, label: str) -> Ratio | None:
        """Score under noise over own clean score, with Fieller's interval; None below `MINIMUM` seeds."""
        noisy, clean = self.noisy.values.get(label, {}), self.on_clean(label)
        seeds = sorted(noisy.keys() & clean.keys())
        if len(seeds) < MINIMUM:
            return None
        share = fieller([noisy[one] for one in seeds], [clean[one] for one in seeds])
        return share and replace(share, low=max(0.0, share.low))

    def change(self, label: str) -> Difference | None:
        """ln(m_noisy / m_clean) - ln(b_noisy / b_clean) by seed; None below `MINIMUM` seeds or at a score of 0."""
        own, base = (self._logs(one) for one in (label, self.noisy.baseline))
        return difference(own, base)

    def _logs(self, label: str) -> dict[int, float]:
        noisy, clean = self.noisy.values.get(label, {}), self.on_clean(label)
        shared = sorted(noisy.keys() & clean.keys())
        if any(min(noisy[one], clean[one]) <= 0 for one in shared):
            return {}
        return {one: math.log(noisy[one] / clean[one]) for one in shared}

    @cached_property
    def changes(self) -> dict[str, Difference]:
        """The changes of the compared methods that have enough seeds, as one family of tests."""
        others = (label for label in self.noisy.ranked if label != self.noisy.baseline)
        return holm({label: change for label in others if (change := self.change(label))})

    def verdict(self, label: str) -> str:
        """ "keeps more" or "keeps less" than the baseline; "" if neither is significant."""
        test = self.changes.get(label)
        if test is None or not test.is_significant:
            return ""
        return "keeps more" if test.value > 0 else "keeps less"


def kept(results: Results) -> dict[str, Kept]:
    """Noise -> what is kept of the clean scores, where the suite has clean pairs at the same towers and budget.

    Empty where the primary metric is better when lower: a share of it says nothing.
    """
    contrasts = {one.noise: one for one in headline_contrasts(results) if one.measure.column.higher_is_better}
    pairs = {noise: results.clean(noise) for noise in contrasts}
    return {noise: Kept(contrasts[clean], contrasts[noise]) for noise, clean in pairs.items() if clean in contrasts}
