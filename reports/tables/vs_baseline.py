"""The tables against the baseline: differences, what the seeds can show, and the share of the oracle's gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reports.measure import cell, lead
from reports.results import Results, uses
from reports.statistics.contrasts import MARGIN, Contrast, headline_contrasts
from reports.statistics.paired import MINIMUM, Difference
from reports.statistics.power import POWER
from reports.statistics.ratio import Ratio
from reports.tables.footnotes import context, notes_for, planned_seeds
from reports.tables.table import Cell, Column, Row, Table

_TESTS = (
    f"p: paired t-test over seeds, adjusted by Holm over the methods of a column; it takes {MINIMUM} seeds. Better and "
    "worse: p at most 0.05. The interval is that of one difference alone, not adjusted."
)
_SAME = (
    f"Practically the same: the difference is shown to be within {100 * MARGIN:.0f} % of the oracle's, a margin fixed "
    "for all suites (two one-sided t-tests at 5 %, Holm over the methods of a column)."
)
_DETECTABLE = (
    f"Detectable difference: what a paired t-test at 5 % shows with {100 * POWER:.0f} % power, from the noncentral t "
    "distribution and the standard deviation of (method - baseline) over seeds; median over methods, those near chance "
    "left out. Adjusted: at 5 % over the number of methods that are tested."
)
_RESOLUTION = (
    "Resolution: the oracle's difference in detectable differences. Below 1 the suite cannot show the whole effect of "
    "the noise; at 10, a method that recovers a tenth of it."
)
_RECOVERED = (
    "Recovered gap: mean of (method - baseline) over mean of (oracle - baseline), the oracle being the baseline "
    "trained on the pairs known to be clean under the same noise. Below 0: worse than the baseline; above 1: better "
    "than the oracle. Interval (95 %): Fieller over seeds."
)
_UNRESOLVED = (
    "Gap not resolved: oracle and baseline are not distinguishable over the seeds that all three have, so the share "
    f"means nothing (or these are fewer than {MINIMUM})."
)
_SHARED = "All shares of a column have one denominator, so they err together. They are not ranked and not averaged."


def against_tables(results: Results, contrasts: Sequence[Contrast]) -> list[Table]:
    """Differences to the baseline, recovered gap if the suite has an oracle, resolution; none without a test."""
    if not any(one.gains for one in contrasts):
        return []
    recovered = [recovered_table(results, contrasts)] if any(one.gap for one in contrasts) else []
    return [differences_table(results, contrasts), *recovered, resolution_table(results, contrasts)]


def signed(value: float) -> str:
    """A difference of shares in points, with its sign."""
    return f"{100 * value:+.1f}"


def interval(test: Difference) -> str:
    """Its 95 % interval in points."""
    return f"{signed(test.low)} to {signed(test.high)}"


def p_text(p: float) -> str:
    """ "p = 0.012" or "p < 0.001"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _over_seeds(results: Results) -> str:
    return f"Intervals (95 %) are over {planned_seeds(results)} on these test sets, not over examples."


def _columns(contrasts: Sequence[Contrast]) -> tuple[Column, ...]:
    measures = {one.measure.column.name: one.measure.column for one in contrasts}
    return tuple(
        Column(name, column.label, column.group, "percent", None, column.description)
        for name, column in measures.items()
    )


def differences_table(results: Results, contrasts: Sequence[Contrast]) -> Table:
    """One line a method and noise, one column a question: the gain over the baseline with interval and p."""
    columns = _columns(contrasts)
    by_cell = {(one.noise, one.measure.column.name): one for one in contrasts}
    rows = []
    for noise in results.noises:
        for label, entry in results.ranked.items():
            if label != results.baseline and results.of(label, noise):
                cells = (_difference(results, by_cell[noise, column.name], label) for column in columns)
                rows.append(Row(label, tuple(cells), noise, label, fidelity=entry["fidelity"]))
    text = f"How much better than {results.baseline} a method is, in points."
    same = [_SAME] if any(one.same for one in contrasts) else []
    notes = (_TESTS, *same, _over_seeds(results), *context(results))
    return Table("differences", f"Against {results.baseline}", columns, tuple(rows), text, notes, notes=notes_for(rows))


def _difference(results: Results, contrast: Contrast, label: str) -> Cell:
    """The cell of one method; "–" if no test is possible."""
    first, test = _lead(results, contrast, label), contrast.gains.get(label)
    if test is None or first.state != "value":
        return first
    p = contrast.p_values[label]
    words = ", ".join((interval(test), p_text(p), *contrast.verdicts(label)))
    also = {"low": test.low, "high": test.high, "p adjusted": p, "p": test.p, "n": test.n}
    return replace(first, value=test.value, text="", small=words, also=also)


def _lead(results: Results, contrast: Contrast, label: str) -> Cell:
    """A cell that leads to a method's runs, with its state or "–"."""
    if results.inapplicable(label, contrast.noise):
        return Cell("not applicable")
    runs = results.of(label, contrast.noise)
    if label in contrast.values:
        return lead(runs)
    return replace(lead(runs, text=""), state=cell(runs, contrast.measure, results.methods[label]["score"]).state)


def recovered_table(results: Results, contrasts: Sequence[Contrast]) -> Table:
    """One line a method, one column a question and noise: the share of the oracle's gain."""
    shown = sorted((one for one in contrasts if one.gap), key=lambda one: _place(contrasts, one))
    columns = tuple(
        Column(
            f"{one.measure.column.name} {one.noise}",
            one.noise,
            f"{one.measure.column.group} {one.measure.column.label}",
            "ratio",
            None,
            one.measure.column.description,
        )
        for one in shown
    )
    rows = [Row(f"{results.oracle} - {results.baseline}, points", tuple(map(_gap, shown)), compared=False)]
    for label, entry in results.methods.items():
        if label not in (results.baseline, results.oracle):
            cells = tuple(_recovered(results, one, label) for one in shown)
            rows.append(Row(label, cells, "", label, False, entry["fidelity"], uses(entry)))
    text = f"Which share of the gap between {results.baseline} and the oracle a method recovers, over noise rates."
    notes = (_RECOVERED, _UNRESOLVED, _SHARED, _over_seeds(results), *context(results))
    return Table("recovered", "Recovered gap", columns, tuple(rows), text, notes, notes=notes_for(rows))


def _place(contrasts: Sequence[Contrast], one: Contrast) -> int:
    """Questions in the order of reading, noises within."""
    names = list(dict.fromkeys(other.measure.column.name for other in contrasts))
    return names.index(one.measure.column.name)


def _gap(contrast: Contrast) -> Cell:
    assert contrast.gap is not None
    return Cell("value", text=f"{signed(contrast.gap.value)} ({interval(contrast.gap)})")


def _recovered(results: Results, contrast: Contrast, label: str) -> Cell:
    first = _lead(results, contrast, label)
    if first.state != "value":
        return first
    ratio = contrast.recovered(label)
    if ratio is None:
        return replace(first, text="gap not resolved")
    also = {"low": ratio.low, "high": ratio.high, "n": ratio.n}
    return replace(first, value=ratio.value, text="", small=f"{ratio.low:.2f} to {ratio.high:.2f}", also=also)


def resolution_table(results: Results, contrasts: Sequence[Contrast]) -> Table:
    """What the seeds can show: a block a noise, one column a question."""
    columns = _columns(contrasts)
    by_cell = {(one.noise, one.measure.column.name): one for one in contrasts}
    rows = []
    for noise in results.noises:
        block = [by_cell[noise, column.name] for column in columns]
        lines = list(zip(*(_lines(one) for one in block), strict=True))
        names = ("detectable difference", "adjusted for all methods", "oracle's difference", "resolution", "seeds")
        named = zip(names, lines, strict=True)
        rows += [Row(name, cells, noise) for name, cells in named if any(one.text != "–" for one in cells)]
    text = f"The smallest difference from {results.baseline} that the seeds can show, in points, and the oracle's."
    oracle = [_RESOLUTION] if results.oracle else [_without(results)]
    notes = (_DETECTABLE, *oracle, _over_seeds(results), *context(results))
    return Table("resolution", "Resolution", columns, tuple(rows), text, notes)


def _without(results: Results) -> str:
    method = results.methods[results.baseline].get("method", results.baseline)
    return (
        "The suite has no row that is trained on the clean pairs alone, so its resolution is not known: "
        f"{{method: {method}, label: oracle, keep: oracle}} is one."
    )


def _lines(contrast: Contrast) -> tuple[Cell, ...]:
    """Texts of one column of a block, "–" where there is no number."""
    one, gap, ratio = contrast.detectable, contrast.gap, contrast.resolution
    texts = (
        f"{100 * one.value:.2f}" if one else "",
        f"{100 * one.adjusted:.2f}" if one else "",
        f"{signed(gap.value)} ({interval(gap)})" if gap else "",
        resolution_text(ratio) if ratio else "",
        str(one.n) if one else "",
    )
    return tuple(Cell("value", text=text or "–") for text in texts)


def resolution_text(ratio: Ratio) -> str:
    """ "1.8 (0.6 to 3.0)"."""
    return f"{ratio.value:.1f} ({ratio.low:.1f} to {ratio.high:.1f})"


def headline_sentence(results: Results) -> str:
    """What the seeds can show on the suite's headline number under each noise; "" if that is not known."""
    parts, known = [], [(one, one.detectable) for one in headline_contrasts(results)]
    for one, detectable in known:
        if detectable:
            about = [f"n = {detectable.n}"]
            if one.gap and one.resolution:
                about += [f"oracle {signed(one.gap.value)}", f"resolution {resolution_text(one.resolution)}"]
            parts.append(f"{100 * detectable.value:.1f} points under {one.noise} ({'; '.join(about)})")
    what = f"With {100 * POWER:.0f} % power the seeds show a difference from {results.baseline} on"
    return f"{what} {known[0][0].measure.column.label} of {', '.join(parts)}." if parts else ""
