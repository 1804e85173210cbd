"""The table of wins as a map of colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D

from reports.drawing import LETTER, NAME_SIZE, Picture, Sheet, finish, longest, look, plain
from reports.results import Results
from reports.table import Row, Table


@look()
def wins_picture(results: Results, table: Table) -> Picture | None:
    """The table of wins as a map, one panel a noise: colour says how many are won, a dot how many beyond chance."""
    labels = list(results.ranked)
    shares = {noise: _shares(labels, rows) for noise, rows in table.groups()}
    if all(np.isnan(won).all() for won, _ in shares.values()):
        return None
    colours, side = (
        LinearSegmentedColormap.from_list("wins", ("#d98880", "#f7f7f7", "#7fb3d5")),
        max(1.6, 0.16 * len(labels)),
    )
    names = 0.2 + LETTER * longest(labels)
    tested = any(beyond.any() for _, beyond in shares.values())
    legend = [_key("s", colours(share), words) for share, words in ((0.0, "on none"), (0.5, "half"), (1.0, "on all"))]
    legend += [_key("o", "#222222", "on all by more than chance")] if tested else []
    sheet = Sheet(legend, len(shares), side + 0.3, side + names + 0.4, (0.1, 0.2, names, 0.4), names - 0.1)
    drawn = [plain(label) for label in labels]
    places, edges = np.arange(len(labels)), np.arange(len(labels) + 1) - 0.5
    for place, (noise, (won, beyond)) in enumerate(shares.items()):
        panel = sheet.panel(place, title=plain(noise))
        panel.pcolormesh(edges, edges, won, cmap=colours, vmin=0, vmax=1)
        across, down = np.meshgrid(places, places)
        some = beyond > 0
        areas = 30 * beyond[some]  # in square points, of which a cell has 130
        panel.scatter(across[some], down[some], areas, "#222222", linewidths=0)
        panel.set(xlim=(-0.5, len(labels) - 0.5), ylim=(len(labels) - 0.5, -0.5), aspect="equal")
        panel.set_xticks(places, drawn, rotation=90, fontsize=NAME_SIZE)
        panel.set_yticks(places, drawn, fontsize=NAME_SIZE)
        panel.tick_params(length=0, pad=2, labelleft=place == 0)
        panel.grid(visible=False)
    caption = (
        "On which share of data sets and tasks the method of the line is better than that of the column; a tie is half "
        "a win." + (" The area of a dot is the share won by more than chance." if tested else "")
    )
    return finish("wins", caption, sheet.figure)


def _shares(labels: Sequence[str], rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """[methods, methods]: share of the data sets won, NaN if nothing is compared; share won beyond chance."""
    won, beyond = np.full((2, len(labels), len(labels)), np.nan)
    for row in rows:
        for place, one in enumerate(row.cells[1:]):  # after the column of all methods together
            if one.value is not None and one.also["of"]:
                at = labels.index(row.method), place
                won[at] = (one.value + one.also["ties"] / 2) / one.also["of"]
                beyond[at] = one.also.get("by more than chance", 0) / one.also["of"]
    return won, np.nan_to_num(beyond)


def _key(marker: str, colour: Any, words: str) -> Line2D:
    return Line2D(
        [], [], marker=marker, color=colour, label=words, linestyle="none", markersize=7, markeredgecolor="#888888"
    )
