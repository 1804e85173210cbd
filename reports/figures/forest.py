"""Differences from the baseline on the primary metric as a forest plot, under each noise or under one."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator

from reports.figures.figure_style import Sheet, finish, marked, medium, plain
from reports.figures.pictures import Picture, style_of
from reports.results import Results
from reports.statistics.contrasts import Contrast, headline_contrasts, tested_contrasts
from reports.tables.table import signed

SIGNIFICANT, INCONCLUSIVE = "#0072b2", "#aaaaaa"  #: colours of the answer


def forest(results: Results) -> Picture | None:
    """One panel per noise, one row per method: the gain over the baseline with its interval; the oracle's as a band."""
    shown = [one for one in headline_contrasts(results) if one.gains]
    if not shown:
        return None
    labels = [label for label in results.ranked if any(label in one.gains for one in shown)]
    drawn = [marked(results, label) for label in labels]
    names = 0.2 + medium().letter * max(map(len, drawn))
    height = 0.8 + (1.25 if medium().width else 1.6) * medium().line * len(labels)
    titles, margins = [one.noise for one in shown], (0.15, 0.15, 0.45, 0.3)
    sheet = Sheet((), len(shown), 2.6, height, margins, names - 0.15, least=1.05, titles=titles)
    for place, one in enumerate(shown):
        panel = sheet.panel(place, xlabel="better by, points")
        _lines(panel, results, one, labels)
        panel.tick_params(labelleft=sheet.begins_row(place))
        names_here = drawn if sheet.begins_row(place) else []  # of the lines of the row
        panel.set_yticks(range(len(names_here)), names_here, fontsize=medium().names)
        if medium().width:
            panel.xaxis.set_major_locator(MaxNLocator(3))
    column = shown[0].measure.column
    caption = (
        f"{column.in_words}: mean difference from {results.named(results.baseline)} over seeds with its interval, "
        "adjusted by Holm over the methods of the panel. Filled: significant. Right of the line is better."
    )
    if any(one.is_resolved for one in shown):
        caption += " Grey: the interval of the oracle's difference, the possible gain."
    return finish("differences", caption, sheet.figure)


def answer(results: Results) -> Picture | None:
    """The gains over the baseline under one noise, the best method first; the title counts the significant ones.

    Of several noises: the longest budget, then the most seeds, then one under which a method is better, as the answer
    says, then the best resolution.
    """
    blocks = tested_contrasts(results)
    if not blocks or medium().name == "column":
        return None

    def says(one: Contrast) -> tuple[float, int, bool, float]:
        is_won = any("better" in one.verdicts(label) for label in one.gains)
        return results.budget(one.noise), one.seeds, is_won, one.resolution.value if one.resolution else 0.0

    one = max(blocks, key=says)
    labels = sorted(one.gains, key=lambda label: -one.gains[label].value)
    base, count = results.named(results.baseline), sum("better" in one.verdicts(label) for label in labels)
    drawn = [marked(results, label) for label in labels]
    names, height = 0.2 + medium().letter * max(map(len, drawn)), 1.2 + 1.25 * medium().line * len(labels)
    is_are = f"{count or 'None'} of {len(labels)} methods {'is' if count < 2 else 'are'}"
    sheet = Sheet((), 1, 6.2, height, (0.15, 0.3, 0.45, 0.55), names)
    column = one.measure.column
    panel = sheet.panel(0, xlabel=f"worse   ←   {base}   →   better: difference in {column.in_words}, points")
    panel.set_title(f"{is_are} significantly better than {base}\n{plain(one.noise)}")
    for place, label in enumerate(labels):
        test, colour = one.gains[label], SIGNIFICANT if one.gains[label].is_significant else INCONCLUSIVE
        panel.plot([100 * test.low, 100 * test.high], [place, place], color=colour, linewidth=1.4)
        panel.plot(100 * test.value, place, "o", color=colour, markersize=4)
    panel.axvline(0, color="#888888", linewidth=0.8)
    caption = (
        f"{column.in_words} under {one.noise}: mean difference from {base} over {one.seeds} seeds with its interval, "
        "adjusted by Holm over the methods. Blue: significant; grey: inconclusive."
    )
    if one.gap and one.is_resolved:
        panel.axvspan(100 * one.gap.low, 100 * one.gap.high, color="#e8e8e8", linewidth=0)
        gain = f"clean pairs alone\n{signed(one.gap.value)}"
        panel.text(100 * one.gap.value, len(labels) - 0.7, gain, ha="center", va="bottom", fontsize=medium().names)
        caption += " The band is the interval of the gain from training only on the clean pairs."
    panel.set_ylim(len(labels) - 0.5, -0.5)
    panel.set_yticks(range(len(labels)), drawn, fontsize=medium().names)
    panel.grid(axis="y", visible=False)
    return finish("answer", caption, sheet.figure)


def _lines(panel: Axes, results: Results, contrast: Contrast, labels: Sequence[str]) -> None:
    if contrast.gap and contrast.is_resolved:
        panel.axvspan(100 * contrast.gap.low, 100 * contrast.gap.high, color="#dddddd", linewidth=0)
    panel.axvline(0, color="#888888", linewidth=0.8)
    tests = [(place, label, test) for place, label in enumerate(labels) if (test := contrast.gains.get(label))]
    colours = [style_of(results, label)["color"] for _, label, _ in tests]
    bars = [[(100 * test.low, place), (100 * test.high, place)] for place, _, test in tests]
    panel.add_collection(LineCollection(bars, colors=colours, linewidths=1.2))
    fills = [colour if test.is_significant else "w" for (*_, test), colour in zip(tests, colours, strict=True)]
    values, places = [100 * test.value for *_, test in tests], [place for place, *_ in tests]
    panel.scatter(values, places, 16, fills, edgecolors=colours, linewidths=1.0, zorder=3)
    panel.set_ylim(len(labels) - 0.5, -0.5)
    panel.tick_params(axis="x", labelsize=7)
    panel.grid(axis="y", visible=False)
