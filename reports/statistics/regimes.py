"""Gains over the baseline as the budget grows: from which budget a method is better, and from which it is worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from reports.results import Results
from reports.statistics.contrasts import Contrast, headline_contrasts, on_clean
from reports.statistics.paired import Difference, holm


@dataclass(frozen=True)
class Regimes:
    """One noise at every budget of the suite, the smallest first."""

    noise: str  #: without the budget: "40 % shuffled captions"
    unit: str  #: of `numbers`, such as "epochs"
    numbers: Mapping[float, str]  #: budget, in the unit of the suite's -> as it is told; the smallest first
    contrasts: tuple[Contrast, ...]  #: one a budget
    clean: Contrast | None = None  #: clean pairs at the largest budget

    @property
    def budgets(self) -> tuple[float, ...]:
        return tuple(self.numbers)

    @cached_property
    def significant(self) -> dict[tuple[str, float], Difference]:
        """Differences from the baseline by method and budget that are significant: Holm over methods and budgets."""
        tests = {
            (label, budget): gain
            for budget, contrast in zip(self.budgets, self.contrasts, strict=True)
            for label, gain in contrast.gains.items()
        }
        return {place: gain for place, gain in holm(tests).items() if gain.is_significant}

    @property
    def tested(self) -> tuple[float, ...]:
        """The budgets at which anything is tested: of a suite that still runs, not all."""
        return tuple(budget for budget, one in zip(self.budgets, self.contrasts, strict=True) if one.gains)

    def since(self, label: str, better: bool) -> float | None:
        """The smallest budget from which on a method is significantly better, or worse, at all larger tested ones."""
        found = None
        for budget in reversed(self.tested):
            gain = self.significant.get((label, budget))
            if gain is None or (gain.value > 0) != better:
                break
            found = budget
        return found

    def sentence(self, results: Results) -> str:
        """Who is better or worse at the largest tested budget, largest difference first, and since which."""
        if not self.tested:
            return f"{self.noise}: nothing is tested yet."
        last, parts = self.contrasts[self.budgets.index(self.tested[-1])], []
        order = sorted(last.gains, key=lambda label: abs(last.gains[label].value), reverse=True)
        for better, word in ((True, "better"), (False, "worse")):
            since = {label: self.since(label, better) for label in order}
            known = ((label, budget) for label, budget in since.items() if budget is not None)
            named = [
                f"{results.named(label)} from {self.numbers[budget]} on{on_clean(self.clean, label, ' (', ')')}"
                for label, budget in known
            ]
            base = results.named(results.baseline)
            parts.append(f"significantly {word} than {base}: {', '.join(named) or 'no method'}")
        ends = f"{self.numbers[self.tested[0]]} to {self.numbers[self.tested[-1]]} {self.unit}"
        return f"{self.noise}, {ends}: {'; '.join(parts)} (Holm over methods and budgets)."


def regimes(results: Results) -> list[Regimes]:
    """Each noise with its contrasts on the primary metric over budgets; [] for a suite with one budget."""
    found: dict[tuple[str, str | None, float], dict[float, Contrast]] = {}
    contrasts = {one.noise: one for one in headline_contrasts(results)}
    for contrast in contrasts.values():
        block = results.noises[contrast.noise]
        if "budget" in block:
            key = (block["towers"], block["kind"], block["rate"])
            found.setdefault(key, {})[block["budget"]] = contrast
    return [_regimes(results, of, contrasts) for of in found.values() if len(of) > 1]


def _regimes(results: Results, of: Mapping[float, Contrast], contrasts: Mapping[str, Contrast]) -> Regimes:
    last = of[max(of)].noise
    told = {budget: results.told(budget) for budget in sorted(of)}
    return Regimes(
        last.removesuffix(f", {told[max(of)]}"),
        told[max(of)].partition(" ")[2],
        {budget: text.partition(" ")[0] for budget, text in told.items()},
        tuple(of[budget] for budget in told),
        contrasts.get(results.clean(last) or ""),
    )
