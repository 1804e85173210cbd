"""What holds across kinds of noise: how much each kind leaves to gain, whether it orders the methods as the others do.

A method's gain over the baseline is taken seed by seed under each kind. Its mean over the kinds says whether it is
better or worse whatever the noise; the differences of its gains between two kinds say whether that depends on the kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from bench.console.markup import markdown, markdown_table
from bench.errors import UserError
from reports.reference.orders import HEAD, NOTES, Agreement, agreement_cells, agreement_of
from reports.results import Results
from reports.statistics.contrasts import Contrast, headline_contrasts
from reports.statistics.paired import LEVEL, MINIMUM, Difference, adjusted, difference, mean, t_test
from reports.tables.footnotes import planned_seeds
from reports.tables.vs_baseline import interval, p_text, resolution_text, signed

DEPENDS = "depends on the kind"
_READING = (
    "Gains are (method - baseline) in points, with the 95 % interval of one difference alone over seeds; *shown* after "
    "Holm over the methods of a kind.",
    "Over the kinds: the mean of a method's gains over the kinds, seed by seed; p by a paired t-test, Holm over the "
    "methods. It speaks of these kinds, not of others.",
    f"{DEPENDS}: a method's gains under two kinds differ by more than chance (paired t-test, Holm over all methods and "
    f"pairs of kinds). Every test takes {MINIMUM} seeds, and what is not shown is not refuted.",
)


@dataclass(frozen=True)
class Across:
    """One method over the kinds of noise."""

    label: str
    gains: tuple[Difference | None, ...]  #: a kind each; None with too few seeds
    verdicts: tuple[str, ...]  #: under each kind, as `Contrast.verdict` says
    over: Difference | None  #: the mean gain over all kinds; None where a kind lacks seeds
    p: float  #: of `over`, adjusted; 1 without it
    depends: bool  #: whether the gains under two kinds differ by more than chance

    @property
    def verdict(self) -> str:
        """ "better", "worse", and whether it depends on the kind; "" if nothing is shown."""
        shown = self.over is not None and self.p <= LEVEL
        side = ["better" if self.over and self.over.value > 0 else "worse"] if shown else []
        return ", ".join([*side, *([DEPENDS] if self.depends else [])])


def kinds_of(results: Results) -> list[Contrast]:
    """The headline's contrasts under noises of several kinds; [] if the suite has fewer than two."""
    noisy = [one for one in headline_contrasts(results) if results.noises[one.noise].get("kind")]
    several = len({results.noises[one.noise]["kind"] for one in noisy}) > 1
    return noisy if several and any(one.gains for one in noisy) else []


def across(contrasts: Sequence[Contrast]) -> list[Across]:
    """Every compared method beside the baseline, best mean gain first."""
    labels = [label for label in contrasts[0].ranked if any(label in one.gains for one in contrasts)]
    by_seed = {label: [_by_seed(one, label) for one in contrasts] for label in labels}
    overs = {label: _over(by_seed[label]) for label in labels}
    tested = [label for label in labels if overs[label]]
    p_values = dict(zip(tested, adjusted([one.p for one in overs.values() if one]).tolist(), strict=True))
    pairs = {
        (label, a, b): test
        for label in labels
        for a, b in combinations(range(len(contrasts)), 2)
        if (test := difference(by_seed[label][a], by_seed[label][b]))
    }
    steps = adjusted([test.p for test in pairs.values()])
    depending = {label for (label, _, _), p in zip(pairs, steps, strict=True) if p <= LEVEL}
    found = [
        Across(
            label,
            tuple(one.gains.get(label) for one in contrasts),
            tuple(one.verdict(label) for one in contrasts),
            overs[label],
            p_values.get(label, 1.0),
            label in depending,
        )
        for label in labels
    ]
    return sorted(found, key=lambda one: -one.over.value if one.over else float("inf"))


def _by_seed(contrast: Contrast, label: str) -> dict[int, float]:
    """A method's gain of each seed that the baseline has too."""
    own, base = contrast.values.get(label, {}), contrast.values.get(contrast.baseline, {})
    return {seed: own[seed] - base[seed] for seed in sorted(own.keys() & base.keys())}


def _over(kinds: Sequence[Mapping[int, float]]) -> Difference | None:
    """Test the mean of gains over the kinds, seed by seed; None if all kinds share too few seeds."""
    shared = sorted(set.intersection(*(set(one) for one in kinds)))
    return t_test([mean([one[seed] for one in kinds]) for seed in shared]) if len(shared) >= MINIMUM else None


def kinds_section(results: Results) -> str:
    """What holds across a suite's kinds of noise, as Markdown; "" if it has fewer than two that can be compared."""
    contrasts = kinds_of(results)
    if not contrasts:
        return ""
    found = across(contrasts)
    about = f"{contrasts[0].measure.column.label}, {planned_seeds(results)}. {_answer(found)}"
    lines = [
        f"## {markdown(results.suite)}",
        "",
        markdown(about),
        "",
        *markdown_table(
            ("noise", "oracle's gain", "resolution", "shown better", "shown worse", "of"), map(_kind, contrasts)
        ),
    ]
    if agreements := _agreements(contrasts):
        rows = (tuple(map(markdown, agreement_cells(one))) for one in agreements)
        lines += ["", *markdown_table(("two kinds", *HEAD[1:]), rows)]
    head = ("method", *(one.noise for one in contrasts), "over the kinds", "p", "across the kinds")
    lines += ["", *markdown_table([*map(markdown, head)], map(_method, found)), ""]
    return "\n".join(lines)


def _answer(found: Sequence[Across]) -> str:
    """One sentence: who is shown to be better or worse over the kinds, and how many depend on the kind."""
    better = [one.label for one in found if one.verdict.startswith("better")]
    worse = sum(one.verdict.startswith("worse") for one in found)
    depending = sum(one.depends for one in found)
    who = ", ".join(better) if better else "no method"
    return (
        f"Over the kinds {who} {'are' if len(better) > 1 else 'is'} shown to be better than the baseline, {worse} of "
        f"{len(found)} worse; the gain of {depending} is shown to depend on the kind."
    )


def _kind(one: Contrast) -> tuple[str, ...]:
    verdicts = [one.verdict(label) for label in one.gains]
    gap = f"{signed(one.gap.value)} ({interval(one.gap)})" if one.gap else ""
    counts = (str(sum(verdict.startswith(side) for verdict in verdicts)) for side in ("better", "worse"))
    resolution = resolution_text(one.resolution) if one.resolution else ""
    return markdown(one.noise), gap, resolution, *counts, str(len(verdicts))


def _agreements(contrasts: Sequence[Contrast]) -> list[Agreement]:
    """How alike the kinds order the methods, two kinds a line."""
    values = [{label: one.values[label] for label in one.ranked if label in one.values} for one in contrasts]
    compared = (
        agreement_of(f"{contrasts[a].noise}; {contrasts[b].noise}", values[a], values[b])
        for a, b in combinations(range(len(contrasts)), 2)
    )
    return [one for one in compared if one]


def _method(one: Across) -> tuple[str, ...]:
    cells = (
        f"{signed(gain.value)} ({interval(gain)}){f' *{verdict}*' if verdict else ''}" if gain else ""
        for gain, verdict in zip(one.gains, one.verdicts, strict=True)
    )
    over = (f"{signed(one.over.value)} ({interval(one.over)})", p_text(one.p)) if one.over else ("", "")
    return f"`{one.label}`", *cells, *over, one.verdict


def kinds_text(sections: Sequence[str]) -> str:
    """The page over these sections as Markdown; "" if there are none."""
    known = [one for one in sections if one]
    if not known:
        return ""
    notes = [f"- {note}" for note in (*_READING, *map(markdown, NOTES))]
    head = ["# What holds across kinds of noise", "", "`bench kinds SUITE` prints the same for any suite.", ""]
    return "\n".join([*head, *notes, "", *known])


def kinds_page(results: Results) -> str:
    """The page of one suite. Raises UserError if it has no two kinds of noise under which methods can be compared."""
    text = kinds_text([kinds_section(results)])
    if not text:
        raise UserError(
            f"suite {results.suite}: has no two kinds of noise under which methods have {MINIMUM} seeds; name them "
            "under noise and run the suite"
        )
    return text
