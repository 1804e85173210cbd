"""Level against what is kept of it: a method in the upper right corner is good on noisy pairs, and robust."""

from __future__ import annotations

from collections.abc import Sequence

from reports.figures.chosen import about_others, line_styles, named_in
from reports.figures.figure_style import Sheet, finish, named, plain, room_for_names
from reports.figures.lines import beside, height, name_lines
from reports.figures.pictures import Picture
from reports.results import Results
from reports.statistics.kept import Kept, kept
from reports.statistics.paired import mean

POINTS = 100  #: a share in percent


def kept_picture(results: Results) -> Picture | None:
    """One panel a noise: score under noise, and that score over the own clean one. None without clean pairs."""
    found = kept(results)
    panels = {noise: shown for noise, one in found.items() if (shown := _places(results, one))}
    if not panels:
        return None
    methods = [label for label in results.methods if any(label in shown for shown in panels.values())]
    styles = line_styles(results, methods)
    room = room_for_names(named_in(styles))
    tall = height(3.6, len(named_in(styles)), 0.65)
    sheet = Sheet((), len(panels), 4.2 + room, tall, (0.8, room, 0.5, 0.3), titles=list(panels))
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
        panel.set_ylim(*_limits([shown[label] for label in shown]))
        name_lines(panel, results, styles, {label: shown[label][:2] for label in styles if label in shown})
    marked = f"; the oracle is {named(results.oracle)}" if results.oracle else ""
    caption = (
        f"{column.label} under noise, and the share of the own clean score that this is; bars: Fieller's 95 % "
        f"intervals over seeds. The good corner is upper right. Lines: {results.baseline}{marked}."
        + about_others(results, styles)
    )
    return finish("kept", caption, sheet.figure)


def _places(results: Results, one: Kept) -> dict[str, tuple[float, float, float, float]]:
    """Method -> level, share kept and the ends of its interval, in percent."""
    shares = {label: one.share(label) for label in results.methods}
    levels = {label: mean(list(one.noisy.values[label].values())) for label, share in shares.items() if share}
    return {
        label: (POINTS * levels[label], POINTS * share.value, POINTS * share.low, POINTS * share.high)
        for label, share in shares.items()
        if share
    }


def _limits(places: Sequence[tuple[float, float, float, float]]) -> tuple[float, float]:
    """Limits of the upright axis, with room for the points though not for every long bar."""
    values = [y for _, y, _, _ in places]
    around = 0.15 * ((max(values) - min(values)) or max(values))
    return min(values) - around, max(values) + around
