"""The critical-difference diagram: mean ranks over independent blocks of data sets, and who cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reports.figures.figure_style import Sheet, finish, longest, look, marked, medium
from reports.figures.pictures import Picture, style_of
from reports.results import Results
from reports.statistics.many_sets import blocks_for
from reports.statistics.paired import LEVEL
from reports.tables.over_sets import block_of, main_scores
from reports.tables.pairs import PairsOfMethods
from reports.vocabulary import main_metric


@look()
def ranks_picture(results: Results) -> Picture | None:
    """Return the diagram (Demšar 2006), one panel a noise; None where no signed-rank test can pass Holm over all pairs.

    Instead of one critical difference for all pairs (Nemenyi), the tests of the table "Pairs" say who differs.
    """
    labels = list(results.ranked)
    blocks = {block_of(dataset) for dataset, task, metric in results.measures if metric == main_metric(task)}
    if len(labels) < 2 or len(blocks) < blocks_for(len(labels)):
        return None
    scores = {noise: main_scores(results, noise) for noise in results.noises}
    of_noise = {noise: PairsOfMethods(labels, of) for noise, of in scores.items() if of}
    shown = {noise: pairs for noise, pairs in of_noise.items() if pairs.p and np.isfinite(pairs.ranks).sum() > 1}
    if not shown:
        return None
    names = 0.2 + medium().letter * (longest(labels) + 1)  # and a mark
    height, margins = 0.9 + 1.4 * medium().line * len(labels), (names, 0.2, 0.5, 0.3)
    sheet = Sheet((), len(shown), 3.4 + names, height, margins, least=1.6 + names, titles=list(shown))
    for place, pairs in enumerate(shown.values()):
        _panel(sheet, place, results, pairs)
    caption = (
        "Mean rank over independent blocks of data sets; 1 is best. A line joins methods of which no two are told "
        "apart (Wilcoxon's signed-rank test over blocks, exact, Holm at 5 % over all pairs)."
    )
    return finish("ranks", caption, sheet.figure)


def _panel(sheet: Sheet, place: int, results: Results, pairs: PairsOfMethods) -> None:
    """Methods from best to worst, each a point at its mean rank; groups stand to the right of the last rank."""
    order = [int(one) for one in np.argsort(pairs.ranks, kind="stable") if math.isfinite(pairs.ranks[one])]
    labels = list(results.ranked)
    groups = undivided(order, pairs)
    panel = sheet.panel(place, xlabel="mean rank")
    for row, method in enumerate(order):
        style = style_of(results, labels[method])
        panel.plot(pairs.ranks[method], row, marker=style["marker"], color=style["color"], linestyle="none")
    for column, (first, last) in enumerate(groups):
        at = len(order) + 0.5 + 0.3 * column
        panel.plot([at, at], [first - 0.2, last + 0.2], color="#222222", linewidth=2)
    panel.set(xlim=(0.5, len(order) + 1 + 0.3 * len(groups)), ylim=(len(order) - 0.5, -0.5))
    panel.set_xticks(range(1, len(order) + 1, 5 if medium().width and len(order) > 9 else 1))
    panel.set_yticks(range(len(order)), [marked(results, labels[method]) for method in order], fontsize=medium().names)


def undivided(order: Sequence[int], pairs: PairsOfMethods) -> list[tuple[int, int]]:
    """First and last place of each group of two and more neighbours in rank of which no two are told apart.

    A group that lies within another one is left out.
    """
    groups: list[tuple[int, int]] = []
    for first in range(len(order)):
        last = first
        while last + 1 < len(order) and all(
            pairs.p[order[one], order[last + 1]] > LEVEL for one in range(first, last + 1)
        ):
            last += 1
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups
