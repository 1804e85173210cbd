"""On how many data sets each method beats each other, as a map of colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D

from reports.figures.figure_style import Sheet, finish, look, marked, medium
from reports.figures.pictures import Picture
from reports.results import Results
from reports.tables.over_sets import main_scores
from reports.tables.pairs import PairsOfMethods

_CAPTION = (
    "On which share of data sets and tasks the method of the line is better than that of the column; a tie is half a "
    "win. The methods are in the order of what they win over all noises."
)
NUMBERED = 12  #: most methods of a map on the screen that has numbers: with more they cannot be read
CELL = 0.16  #: inches of a cell on the screen
TWO_LINES = 0.22  #: inches of a cell in a paper that has room for a number and a dot


@look()
def wins_picture(results: Results) -> Picture | None:
    """Wins as a map, one panel a noise: colour says how many are won, a dot how many significantly."""
    labels = list(results.ranked)
    if len(labels) < 2:
        return None
    scores = {noise: [one for one in main_scores(results, noise) if one.values] for noise in results.noises}
    shares = {noise: _shares(PairsOfMethods(labels, of)) for noise, of in scores.items() if of}
    if all(np.isnan(won).all() for won, _ in shares.values()):
        return None
    order = _from_best([won for won, _ in shares.values()])
    labels = [labels[place] for place in order]
    shares = {noise: (won[order][:, order], beyond[order][:, order]) for noise, (won, beyond) in shares.items()}
    colours = LinearSegmentedColormap.from_list("wins", ("#d98880", "#f7f7f7", "#7fb3d5"))
    drawn = [marked(results, label) for label in labels]
    names = 0.2 + medium().letter * max(map(len, drawn))
    side = _side(len(labels), len(shares), names)
    if side is None:
        return None
    numbered = side >= TWO_LINES * len(labels) if medium().width else len(labels) <= NUMBERED
    tested = any(beyond.any() for _, beyond in shares.values())
    legend = [_key("s", colours(share), words) for share, words in ((0.0, "on none"), (0.5, "half"), (1.0, "on all"))]
    legend += [_key("o", "#222222", "on all significantly")] if tested else []
    height, margins = side + names + 0.4, (0.1, 0.2, names, 0.4)
    sheet = Sheet(legend, len(shares), side + 0.3, height, margins, names - 0.1, least=side + 0.29, titles=list(shares))
    places, edges = np.arange(len(labels)), np.arange(len(labels) + 1) - 0.5
    for place, (won, beyond) in enumerate(shares.values()):
        panel = sheet.panel(place)
        panel.set_facecolor("#d4d4d4")  # of cells that compare nothing, such as a method with itself
        panel.pcolormesh(edges, edges, won, cmap=colours, vmin=0, vmax=1)
        if numbered:
            _numbers(panel, won)
        _dots(panel, beyond, side / len(labels))
        panel.set(xlim=(-0.5, len(labels) - 0.5), ylim=(len(labels) - 0.5, -0.5), aspect="equal")
        panel.set_xticks(places, drawn, rotation=90, fontsize=medium().names)
        first = sheet.begins_row(place)  # its names are those of the lines of the row
        panel.set_yticks(places if first else [], drawn if first else [], fontsize=medium().names)
        panel.tick_params(length=0, pad=2)
        panel.grid(visible=False)
    caption = _CAPTION
    caption += " Numbers are percent." if numbered else ""
    caption += " The area of a dot is the share won significantly." if tested else ""
    return finish("wins", caption, sheet.figure)


def _side(methods: int, panels: int, names: float) -> float | None:
    """Return the inches of a map's side; in a paper as many stand beside each other as have room for their names.

    None if not even one has.
    """
    whole = medium().width
    if whole is None:
        return max(1.6, CELL * methods)
    sides = ((whole - names + 0.1) / beside - 0.3 for beside in range(min(2, panels), 0, -1))
    return next((side for side in sides if side >= 0.9 * medium().line * methods), None)


def _shares(pairs: PairsOfMethods) -> tuple[np.ndarray, np.ndarray]:
    """[methods, methods]: share of the data sets won, NaN if nothing is compared; share won significantly."""
    with np.errstate(invalid="ignore"):
        won, significant = (pairs.better + pairs.ties / 2) / pairs.of, pairs.shown / pairs.of
    np.fill_diagonal(won, np.nan)
    return won, np.nan_to_num(significant)


def _from_best(won: Sequence[np.ndarray]) -> list[int]:
    """Return places of the methods by the share that each wins of all that it is compared on, the best first."""
    shares = np.concatenate(won, axis=1)
    mean = np.nansum(shares, axis=1) / np.maximum(1, np.isfinite(shares).sum(axis=1))
    return [int(place) for place in np.argsort(-mean, kind="stable")]


def _dots(panel: Axes, beyond: np.ndarray, cell: float) -> None:
    """Draw a dot into every cell, `cell` inches wide, whose area is the share that is won significantly."""
    down, across = np.nonzero(beyond)
    areas = 30 * beyond[down, across] * (cell / CELL) ** 2  # square points; a cell on the screen has 130
    panel.scatter(across, down, areas, "#222222", linewidths=0)


def _numbers(panel: Axes, won: np.ndarray) -> None:
    """Write every share into its cell, in percent, above its dot."""
    for (down, across), share in np.ndenumerate(won):
        if np.isfinite(share):
            panel.text(
                across,
                down - 0.22,
                f"{100 * share:.0f}",
                ha="center",
                va="center",
                fontsize=medium().names if medium().width else 4.5,
            )


def _key(marker: str, colour: Any, words: str) -> Line2D:
    return Line2D(
        [], [], marker=marker, color=colour, label=words, linestyle="none", markersize=7, markeredgecolor="#888888"
    )
