"""The tables against the baseline: differences, what the seeds can show, and the share of the oracle's gain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from reports.measure import cell, lead
from reports.results import Results
from reports.statistics.chance import unlearned
from reports.statistics.contrasts import MARGIN, Contrast
from reports.statistics.kept import Kept, kept
from reports.statistics.paired import MINIMUM, Difference, mean
from reports.statistics.power import POWER
from reports.statistics.ratio import Ratio
from reports.tables.footnotes import method_row, noted, planned_seeds
from reports.tables.table import Cell, Column, Row, Table, minus, signed

_TESTS = (
    f"p: paired t-test over seeds, adjusted by Holm over the methods of a column; it takes {MINIMUM} seeds. Better and "
    "worse: p at most 0.05. The interval has the level of its step of Holm's procedure (95 % or more), so it excludes "
    "0 exactly where the difference is significant."
)
_SAME = (
    f"Practically the same: the difference is shown to be within {100 * MARGIN:.0f} % of the oracle's, a margin fixed "
    "for all suites (two one-sided t-tests at 5 %, Holm over the methods of a column)."
)
_DETECTABLE = (
    f"Detectable difference: what a paired t-test detects with {100 * POWER:.0f} % power, from the noncentral t "
    "distribution and the standard deviation of (method - baseline) over seeds; median over methods, those near chance "
    "excluded. It is adjusted as the tests are: at 5 % divided by the number of tested methods, the first step of "
    "Holm's procedure. Of one method alone: at 5 %. None: more than 100 points."
)
_RESOLUTION = (
    "Resolution: the oracle's difference divided by the detectable difference of one method alone. Below 1 the suite "
    "cannot detect even the full effect of the noise; at 10 it detects a method that recovers a tenth of it."
)
_RECOVERED = (
    "Recovered gap: mean of (method - baseline) over mean of (oracle - baseline), the oracle being the baseline "
    "trained on the pairs known to be clean under the same noise. Below 0: worse than the baseline; above 1: better "
    "than the oracle. Interval (95 %): Fieller over seeds."
)
_UNRESOLVED = (
    "Gap not resolved: oracle and baseline are not significantly different over the seeds that all three have, so the "
    f"share means nothing (or these are fewer than {MINIMUM})."
)
_KEPT = (
    "Kept: mean score under noise divided by the method's mean on clean pairs at the same budget; interval (95 %): "
    "Fieller over the seeds that both have. Against the baseline: 100 (ln(noisy / clean) - ln(the baseline's noisy / "
    "clean)), paired by seed; p: t-test, adjusted by Holm over the methods of a noise, as is its interval. The "
    "oracle's clean score is the baseline's."
)
_SHARED = "All shares of a column have the same denominator, so they err together and are neither ranked nor averaged."


def against_tables(results: Results, contrasts: Sequence[Contrast]) -> list[Table]:
    """Differences from the baseline, recovered gap if the suite has an oracle, resolution; none without a test."""
    if not any(one.gains for one in contrasts):
        return []
    recovered = [recovered_table(results, contrasts)] if any(one.gap for one in contrasts) else []
    own = [kept_table(results, found)] if (found := kept(results)) else []
    return [differences_table(results, contrasts), *own, *recovered, resolution_table(results, contrasts)]


def interval(test: Difference) -> str:
    """Its interval in points."""
    return f"{signed(test.low)} to {signed(test.high)}"


def ratio_text(ratio: Ratio) -> str:
    """The interval of a ratio."""
    return minus(f"{ratio.low:z.2f} to {ratio.high:z.2f}")


def p_text(p: float) -> str:
    """ "p = 0.012" or "p < 0.001"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def with_test(first: Cell, test: Difference, words: Iterable[str]) -> Cell:
    """The cell of a difference in a family of tests: interval, adjusted p and these words behind it."""
    also = {"low": test.low, "high": test.high, "p adjusted": test.adjusted, "p": test.p, "n": test.n}
    small = ", ".join((interval(test), p_text(test.adjusted), *words))
    return replace(first, value=test.value, text="", small=small, also=also)


def with_interval(first: Cell, one: Ratio | Difference, small: str) -> Cell:
    """The cell of a number with its interval over seeds, which is printed as `small`."""
    also = {"low": one.low, "high": one.high, "n": one.n}
    return replace(first, value=one.value, text="", small=small, also=also)


def _over_seeds(results: Results) -> str:
    return f"Intervals (95 %) are over {planned_seeds(results)} on these test sets, not over examples."


def differences_table(results: Results, contrasts: Sequence[Contrast]) -> Table:
    """One row per method and noise, one column per question: method minus baseline with interval and p."""
    columns = dict.fromkeys(one.measure.column for one in contrasts)
    by_cell = {(one.noise, one.measure.column): one for one in contrasts}
    rows = []
    for noise in results.noises:
        for label in results.ranked:
            if label != results.baseline and results.of(label, noise):
                cells = (_difference(results, by_cell[noise, column], label) for column in columns)
                rows.append(method_row(results, label, cells, noise))
    base = results.named(results.baseline)
    text = f"Method minus {base}, in points."
    same = [_SAME] if any(one.same for one in contrasts) else []
    notes = (_TESTS, *same, _over_seeds(results))
    return noted(results, "differences", f"Against {base}", columns, rows, text, *notes)


def _difference(results: Results, contrast: Contrast, label: str) -> Cell:
    """The cell of one method; "–" if no test is possible."""
    first, gain = _lead(results, contrast, label), contrast.gains.get(label)
    if gain is None or first.state != "value":
        return first
    return with_test(first, contrast.as_difference(gain), contrast.verdicts(label))


def kept_table(results: Results, found: Mapping[str, Kept]) -> Table:
    """One row per method and noise: level under noise and on clean pairs, the share kept, and that share's gain."""
    base, column = results.named(results.baseline), next(iter(found.values())).noisy.measure.column
    over = f"{column.group} {column.label}"
    columns = (
        Column("noisy", "under noise", over, "percent"),
        Column("clean", "own clean", over, "percent"),
        Column("kept", "kept", "Robustness", "ratio"),
        Column("against", f"kept against {base}, 100 ln", "Robustness", "percent"),
        Column("difference", f"clean, minus {base}", "Level", "percent"),
    )
    rows = [
        method_row(results, label, _kept_cells(results, one, label), noise)
        for noise, one in found.items()
        for label in results.methods
        if results.of(label, noise)
    ]
    text = "Robustness apart from level: which share of its own clean score a method keeps under noise."
    return noted(results, "kept", "Kept under noise", columns, rows, text, _KEPT, _over_seeds(results))


def _kept_cells(results: Results, one: Kept, label: str) -> tuple[Cell, ...]:
    first = _lead(results, one.noisy, label)
    share, test = one.share(label), one.changes.get(label)
    level = one.clean.gains.get(label)  # with the interval that the table of differences has
    noisy, clean = one.noisy.values.get(label), one.on_clean(label)
    if noisy is None:
        return (first,) * 5
    means = [replace(first, value=mean(list(own.values())), text="") if own else first for own in (noisy, clean)]
    ratio = with_interval(first, share, ratio_text(share)) if share else first
    against = with_test(first, test, filter(None, [one.verdict(label)])) if test else first
    difference = with_interval(first, level, interval(level)) if level else first
    return (*means, ratio, against, difference)


def _lead(results: Results, contrast: Contrast, label: str) -> Cell:
    """A cell that leads to a method's runs, with its state or "–"."""
    if results.inapplicable(label, contrast.noise):
        return Cell("not applicable")
    runs = results.of(label, contrast.noise)
    if label in unlearned(results)[contrast.noise]:
        return lead(runs, text="has not learned")
    if label in contrast.values:
        return lead(runs)
    return replace(lead(runs, text=""), state=cell(runs, contrast.measure, results.methods[label]["score"]).state)


def recovered_table(results: Results, contrasts: Sequence[Contrast]) -> Table:
    """One row per method, one column per question and noise: the share of the oracle's gain."""
    names = list(dict.fromkeys(one.measure.column.name for one in contrasts))  # questions in order, noises within
    shown = sorted((one for one in contrasts if one.gap), key=lambda one: names.index(one.measure.column.name))
    columns = tuple(
        Column(f"{own.name} {noise}", noise, f"{own.group} {own.label}", "ratio", None, own.description)
        for noise, own in ((one.noise, one.measure.column) for one in shown)
    )
    gaps = (Cell("value", text=gap_text(one, one.gap) if one.gap else "") for one in shown)
    base, oracle = results.named(results.baseline), results.named(results.oracle or results.baseline)
    rows = [Row(f"{oracle} \u2212 {base}, points", tuple(gaps), compared=False)]
    others = (label for label in results.methods if label not in (results.baseline, results.oracle))
    rows += [method_row(results, label, (_recovered(results, one, label) for one in shown)) for label in others]
    text = f"Which share of the gap between {base} and the oracle a method recovers, over noise rates."
    notes = (_RECOVERED, _UNRESOLVED, _SHARED, _over_seeds(results))
    return noted(results, "recovered", "Recovered gap", columns, rows, text, *notes)


def gap_text(contrast: Contrast, gap: Difference) -> str:
    """The oracle's difference with its interval: "+5.4 (+4.9 to +5.9)"."""
    test = contrast.as_difference(gap)
    return f"{signed(test.value)} ({interval(test)})"


def detectable_text(value: float) -> str:
    """A detectable difference in points; no two shares differ by more than 100."""
    return f"{100 * value:.2f}" if value <= 1 else "none"


def _recovered(results: Results, contrast: Contrast, label: str) -> Cell:
    first = _lead(results, contrast, label)
    if label not in contrast.values:
        return first
    ratio = contrast.recovered(label)
    if ratio is None:
        return replace(first, text="gap not resolved")
    return with_interval(first, ratio, ratio_text(ratio))


def resolution_table(results: Results, contrasts: Sequence[Contrast]) -> Table:
    """What the seeds can show: a block a noise, one column a question."""
    columns = dict.fromkeys(one.measure.column for one in contrasts)
    rows = []
    for noise in results.noises:
        lines = zip(*(_lines(one) for one in contrasts if one.noise == noise), strict=True)
        names = ("detectable difference", "of one method alone", "oracle's difference", "resolution", "seeds")
        named = zip(names, lines, strict=True)
        rows += [Row(name, cells, noise) for name, cells in named if any(one.text != "–" for one in cells)]
    base = results.named(results.baseline)
    text = f"The smallest difference from {base} that the seeds can show, in points, and the oracle's."
    oracle = _RESOLUTION if results.oracle else _without(results)
    return noted(results, "resolution", "Resolution", columns, rows, text, _DETECTABLE, oracle, _over_seeds(results))


def _without(results: Results) -> str:
    method = results.methods[results.baseline]["method"]
    return (
        "The suite has no entry that is trained only on the clean pairs, so its resolution is unknown: "
        f"{{method: {method}, label: oracle, keep: oracle}} is one."
    )


def _lines(contrast: Contrast) -> tuple[Cell, ...]:
    """Texts of one column of a block, "–" where there is no number."""
    one, gap, ratio = contrast.detectable, contrast.gap, contrast.resolution
    texts = (
        detectable_text(one.adjusted) if one else "",
        detectable_text(one.value) if one else "",
        gap_text(contrast, gap) if gap else "",
        resolution_text(ratio) if ratio else "",
        str(one.n) if one else "",
    )
    return tuple(Cell("value", text=text or "–") for text in texts)


def resolution_text(ratio: Ratio) -> str:
    """ "1.8 (0.6 to 3.0)"."""
    return minus(f"{ratio.value:z.1f} ({ratio.low:z.1f} to {ratio.high:z.1f})")
