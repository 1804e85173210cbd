"""The answer of a suite in sentences: which methods are better than the baseline, and what the seeds can show."""

from __future__ import annotations

from collections.abc import Sequence

from reports.headlines import primary
from reports.results import Results
from reports.statistics.chance import unlearned
from reports.statistics.contrasts import Contrast, headline_contrasts, on_clean
from reports.statistics.paired import MINIMUM, mean
from reports.statistics.power import POWER
from reports.statistics.regimes import regimes
from reports.statistics.validity import QUESTION, validity
from reports.tables.suite_tables import ALIKE, relative_costs
from reports.tables.table import show
from reports.tables.vs_baseline import interval, resolution_text, signed

NAMED = 4  #: methods that a sentence names; the table has them all


def question(results: Results) -> str:
    """The question that the suite's headline number answers."""
    measure = next((one.measure for one in headline_contrasts(results)), None)
    what = measure.column.label if measure else " ".join(primary(results))
    return (
        f"Is a method better than {results.baseline} on {what} by more than chance, trained on the same pairs with the "
        "same noise and budget?"
    )


def answers(results: Results) -> list[str]:
    """One paragraph a noise: who is shown to be better or worse, by how much, and how fine the seeds see."""
    known = headline_contrasts(results)
    contrasts = {one.noise: one for one in known}
    return [_answer(results, one, contrasts.get(results.clean(one.noise) or "")) for one in known]


def judged(results: Results, rows: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Whether the comparison can speak of robustness, a sentence a noise, and of these rows in particular."""
    return tuple(f"{QUESTION} {one.sentence}" for one in validity(results, rows))


def paragraphs(results: Results) -> tuple[str, ...]:
    """What the seeds answer, a paragraph a noise, and what the methods cost if it is known."""
    over_budgets = [one.sentence(results.baseline) for one in regimes(results)]
    return (*answers(results), *over_budgets, *filter(None, [cost_answer(results)]))


def cost_answer(results: Results) -> str:
    """What the methods cost beside the baseline, in training FLOPs; "" if it is not known."""
    costs = relative_costs(results)
    if not costs:
        return ""
    least, most = min(costs, key=costs.__getitem__), max(costs, key=costs.__getitem__)
    unit = f"times {results.baseline}'s training FLOPs"
    if max(abs(cost - 1) for cost in costs.values()) <= ALIKE:
        ends = dict.fromkeys(f"{costs[one]:.2f}" for one in (least, most))
        return f"Cost: all methods alike, {' to '.join(ends)} {unit}."
    return f"Cost: from {costs[least]:.2f} ({least}) to {costs[most]:.2f} ({most}) {unit}."


def _answer(results: Results, contrast: Contrast, clean: Contrast | None) -> str:
    if results.baseline in unlearned(results)[contrast.noise]:
        return f"{contrast.noise}: {results.baseline} has not learned, so nothing is compared with it."
    if not contrast.gains:
        needed = f"it takes {MINIMUM} seeds that a method has in common with {results.baseline}"
        return f"{contrast.noise}: not known; {needed}."
    better, worse = (_shown(contrast, word) for word in ("better", "worse"))
    parts = [_listed(contrast, better, "better", clean), _listed(contrast, worse, "worse", clean)]
    rest = len(contrast.gains) - len(better) - len(worse)
    same = len([label for label in contrast.same if label not in {*better, *worse}])
    untold = f"{rest} of {len(contrast.gains)} not told apart from it"
    parts.append(f"{untold} ({same} of them practically the same)" if same else untold)
    if lost := unlearned(results)[contrast.noise]:
        parts.append(f"{len(lost)} not learned, so not tested")
    base = list(contrast.values[results.baseline].values())
    score = f"{results.baseline} has {show(abs(mean(base)), contrast.measure.column.unit)}"
    verdicts = "; ".join(filter(None, parts))
    return f"{contrast.noise}: {score}. {verdicts}. {_visible(contrast)}".strip()


def _visible(contrast: Contrast) -> str:
    """What the seeds can show; "" if no spread is known."""
    one = contrast.detectable
    if one is None:
        return ""
    what = f"{one.n} seeds show a difference of {100 * one.value:.1f} points with {100 * POWER:.0f} % power"
    if not contrast.gap or not contrast.resolution:
        return f"{what}."
    resolution, gap = resolution_text(contrast.resolution), contrast.as_difference(contrast.gap)
    return f"{what}; the oracle's difference is {signed(gap.value)}: resolution {resolution}."


def _shown(contrast: Contrast, word: str) -> list[str]:
    """Labels with this verdict, the largest difference first."""
    labels = [label for label in contrast.gains if word in contrast.verdicts(label)]
    return sorted(labels, key=lambda label: -abs(contrast.gains[label].value))


def _listed(contrast: Contrast, labels: Sequence[str], word: str, clean: Contrast | None) -> str:
    if not labels:
        return f"None is shown to be {word}" if word == "better" else ""
    tests = {label: contrast.as_difference(contrast.gains[label]) for label in labels}
    named = [
        f"{label} {signed(test.value)} ({interval(test)}{on_clean(clean, label)})" for label, test in tests.items()
    ]
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return f"{len(labels)} shown to be {word}: {', '.join(named[:NAMED])}{more}"
