"""Score under noise against the share kept: a method in the upper right corner is good on noisy pairs, and robust."""

from __future__ import annotations

from reports.figures.chosen import about_others, named_in
from reports.figures.figure_style import finish, plain
from reports.figures.lines import beside, limits, name_lines, sheet_of_lines
from reports.figures.pictures import Picture
from reports.results import Results
from reports.statistics.kept import Kept, kept
from reports.statistics.paired import mean


def kept_picture(results: Results) -> Picture | None:
    """One panel per noise: score under noise, and its share of the clean score. None without clean pairs."""
    found = kept(results)
    panels = {noise: shown for noise, one in found.items() if (shown := _places(results, one))}
    if not panels:
        return None
    sheet, styles = sheet_of_lines(results, list(panels.values()), list(panels))
    column = next(iter(found.values())).noisy.measure.column
    for place, shown in enumerate(panels.values()):
        panel = sheet.panel(place, xlabel=plain(f"{column.label} under noise, %"))
        panel.set_ylabel(beside(sheet, "kept of the own clean score, %"))
        for label in (one for one in styles if one in shown):
            x, y, low, high = shown[label]
            style = styles[label]
            if label in named_in(styles):
                panel.plot([x, x], [low, high], color=style["color"], linewidth=0.8)
            panel.plot([x], [y], color=style["color"], marker=style["marker"], markersize=4.5, linestyle="none")
        if results.baseline in shown:
            x, y, *_ = shown[results.baseline]
            panel.axvline(x, color="#888888", linewidth=0.8, zorder=0)
            panel.axhline(y, color="#888888", linewidth=0.8, zorder=0)
        panel.set_ylim(limits([], [y for _, y, *_ in shown.values()]))  # not for every long bar
        name_lines(panel, results, styles, {label: shown[label][:2] for label in styles if label in shown})
    marked = f"; the oracle is {results.named(results.oracle)}" if results.oracle else ""
    caption = (
        f"{column.label} under noise, and its share of the method's own clean score; bars: Fieller's 95 % "
        f"intervals over seeds. Upper right is best. Lines: {results.named(results.baseline)}{marked}."
        + about_others(results, styles)
    )
    return finish("kept", caption, sheet.figure)


def _places(results: Results, one: Kept) -> dict[str, tuple[float, float, float, float]]:
    """Method -> level, share kept and the ends of its interval, in percent."""
    shares = {label: one.share(label) for label in results.methods}
    levels = {label: mean(list(one.noisy.values[label].values())) for label, share in shares.items() if share}
    return {
        label: (100 * levels[label], 100 * share.value, 100 * share.low, 100 * share.high)
        for label, share in shares.items()
        if share
    }
