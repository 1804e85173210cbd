"""Figure of the variances of captions along a hierarchy: of each level, and differences of each two levels.

As Figures 7 and C.4 of ProLIP (Chun et al., ICLR 2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from reports.figures.figure_style import PAPER, Sheet, finish, in_sizes, named
from reports.figures.pictures import COLOURS, Picture
from reports.statistics.paired import Floats

BINS = 30
_EQUAL: Any = {"color": "#555555", "linestyle": (0, (4, 2)), "linewidth": 1.0}  #: the line of no difference


def drawn(levels: Mapping[str, Floats], differences: Mapping[str, Floats]) -> dict[str, bytes]:
    """Draw `level_variances`; return the files that a report would have below figures/, by their names."""
    picture = in_sizes(lambda: level_variances(levels, differences), PAPER)
    assert picture is not None
    return picture.files()


def level_variances(levels: Mapping[str, Floats], differences: Mapping[str, Floats]) -> Picture:
    """Draw histograms of the variances of each level in one panel, and of each of the differences in a panel.

    levels: name, from general to special -> variance of each distinct caption; differences: name of two levels -> by
    how much the general caption's variance is larger, of each row.
    """
    lines = [Line2D([], [], color=colour, label=named(name)) for name, colour in zip(levels, COLOURS, strict=False)]
    shares = [f"{name}: {(values > 0).mean():.3f}" for name, values in differences.items()]
    titles = ["all levels", *shares]
    sheet = Sheet(lines, len(titles), 3.4, 2.4, (0.6, 0.15, 0.5, 0.35), titles=titles)
    panels = [
        sheet.panel(0, xlabel="sum of variances", ylabel="captions"),
        *(
            sheet.panel(place, xlabel="difference of variances", ylabel="" if place > 1 else "images")
            for place in range(1, len(titles))
        ),
    ]
    limits = min(values.min() for values in levels.values()), max(values.max() for values in levels.values())
    for values, colour in zip(levels.values(), COLOURS, strict=False):
        _histogram(panels[0], values, limits, colour)
    for panel, values in zip(panels[1:], differences.values(), strict=True):
        _histogram(panel, values, (values.min(), values.max()), COLOURS[0])
        panel.axvline(0, **_EQUAL)
    for panel in panels:
        panel.set_ylim(bottom=0)
        panel.xaxis.set_major_locator(MaxNLocator(3))
        panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    caption = (
        "Sums of variances of distinct captions by level, and by how much the more general of an image's two captions "
        "has more; the number is the share of images where it has more, of those whose captions differ."
    )
    return finish("level_variances", caption, sheet.figure)


def _histogram(panel: Axes, values: Floats, limits: tuple[float, float], colour: str) -> None:
    panel.hist(values, BINS, range=limits, histtype="stepfilled", color=colour, alpha=0.25)
    panel.hist(values, BINS, range=limits, histtype="step", color=colour, linewidth=1.4)
