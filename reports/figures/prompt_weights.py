"""Figures of the weights that Bayesian prompt re-weighting finds: of single classes, and over all classes.

As Figures C.5 and C.6 of ProLIP (Chun et al., ICLR 2025).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from reports.figures.figure_style import PAPER, Sheet, finish, in_sizes, longest, medium, named
from reports.figures.pictures import COLOURS, Picture
from reports.statistics.paired import Floats

MOST = 8  #: prompts of a class that are drawn, and images
BINS = 20
#: the line of equal weights, behind all else
_ALIKE: Any = {"color": "#555555", "linestyle": (0, (4, 2)), "linewidth": 1.0, "zorder": 0.9}
_BOX = {"facecolor": "white", "linewidth": 0, "pad": 0.6}  #: of a number that may stand on that line


@dataclass(frozen=True)
class ClassWeights:
    """A class with what its prompts weigh."""

    name: str
    prompts: Sequence[str]  #: K
    weights: Floats  #: [K], of sum 1
    images: Sequence[np.ndarray]  #: uint8 [S, S, 3], some of the class; none if images are stored features


def drawn(classes: Sequence[ClassWeights], fitted: Mapping[str, Floats]) -> dict[str, bytes]:
    """Draw both figures; return the files that a report would have below figures/, by their names.

    classes: of the last of `fitted`, which is what `over_classes` takes.
    """
    files: dict[str, bytes] = {}
    for draw in (partial(single_classes, classes, [*fitted][-1]), partial(over_classes, fitted)):
        picture = in_sizes(draw, PAPER)
        assert picture is not None
        files |= picture.files()
    return files


def single_classes(classes: Sequence[ClassWeights], fit: str) -> Picture:
    """Draw the largest weights of each class as bars, and images of it below. `fit`: what they were fitted to."""
    shown = [np.argsort(-one.weights, kind="stable")[:MOST] for one in classes]
    texts = [named(one.prompts[place]) for one, rows in zip(classes, shown, strict=True) for place in rows]
    side = 0.4 if any(len(one.images) for one in classes) else 0.0
    names = 0.15 + medium().letter * longest(texts)
    margins = (names, 0.3, 0.45 + side, 0.3)
    tall = margins[2] + margins[3] + 0.2 * max(map(len, shown))
    titles = [one.name for one in classes]
    sheet = Sheet((), len(classes), names + 2.6, tall, margins, least=names + 1.6, titles=titles)
    wide, high = sheet.across - names - margins[1], sheet.height - margins[2] - margins[3]
    for place, (one, rows) in enumerate(zip(classes, shown, strict=True)):
        panel = sheet.panel(place, xlabel="weight")
        _bars(panel, one, rows)
        for turn, image in enumerate(one.images[: int(wide / (side + 0.05))] if side else ()):
            box = (turn * (side + 0.05) / wide, -(0.42 + side) / high, side / wide, side / high)
            picture = panel.inset_axes(box)
            picture.imshow(image)
            picture.set_axis_off()
    caption = (
        f"The {MOST} largest weights of each class, fitted to {fit}; the dashed line is where all "
        "prompts weigh the same." + " Below: images of the class." * bool(side)
    )
    return finish("prompt_weights", caption, sheet.figure)


def _bars(panel: Axes, one: ClassWeights, rows: np.ndarray) -> None:
    """Draw the weights of some prompts of a class, the first one on top."""
    bars = panel.barh(range(len(rows)), one.weights[rows], color=COLOURS[0], height=0.7)
    numbers = [f"{weight:.3f}" for weight in one.weights[rows]]
    panel.bar_label(bars, numbers, padding=2, fontsize=medium().names, bbox=_BOX)
    panel.axvline(1 / len(one.weights), **_ALIKE)
    panel.set_yticks(range(len(rows)), [named(one.prompts[row]) for row in rows], fontsize=medium().names)
    panel.set(ylim=(len(rows) - 0.5, -0.5), xlim=(0, 1.25 * max(one.weights.max(), 1 / len(one.weights))))
    panel.grid(visible=False, axis="y")


def over_classes(fitted: Mapping[str, Floats]) -> Picture:
    """Draw how many classes have which largest weight, and which entropy of weights (natural logarithm).

    fitted: what the weights were fitted to -> weights [C, K] of C classes and K prompts.
    """
    (prompts,) = {weights.shape[1] for weights in fitted.values()}
    quantities = (
        ("largest weight of a class", 1 / prompts, (1 / prompts, 1.0), [w.max(1) for w in fitted.values()]),
        ("entropy of a class's weights", math.log(prompts), (0.0, math.log(prompts)), [*map(entropy, fitted.values())]),
    )
    lines = [Line2D([], [], color=colour, label=named(what)) for what, colour in zip(fitted, COLOURS, strict=False)]
    alike = Line2D([], [], label="all prompts alike", **_ALIKE)
    sheet = Sheet([*lines, alike], len(quantities), 3.4, 2.6, (0.6, 0.15, 0.5, 0.15))
    for place, (label, uniform, limits, series) in enumerate(quantities):
        panel = sheet.panel(place, xlabel=label, ylabel="classes" if sheet.begins_row(place) else "")
        for values, colour in zip(series, COLOURS, strict=False):
            counts, edges = np.histogram(values.clip(*limits), BINS, limits)
            panel.stairs(counts, edges, color=colour, fill=True, alpha=0.25)
            panel.stairs(counts, edges, color=colour, linewidth=1.4)
        panel.axvline(uniform, **_ALIKE)
        panel.set_ylim(bottom=0)
        panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    caption = (
        f"How many classes have which largest weight, and which entropy, of {prompts} prompts. The dashed line is "
        "where all prompts weigh the same."
    )
    return finish("prompt_statistics", caption, sheet.figure)


def entropy(weights: Floats) -> Floats:
    """Return the entropy [C] of weights [C, K] in nats; a weight of 0 adds nothing."""
    spread: Floats = -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(1)
    return spread
