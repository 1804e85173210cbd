"""Every figure of a report by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from reports.figures import diagnostics
from reports.figures.histograms import Learned
from reports.figures.pictures import Picture
from reports.figures.radar import radar
from reports.figures.rank_diagram import ranks_picture
from reports.figures.scores import FIGURES
from reports.figures.win_map import wins_picture
from reports.results import Results
from reports.tables.wins import wins_table

Draw = Callable[[], Picture | None]


def drawers(results: Results, learned: Learned) -> dict[str, Draw]:
    """The functions that draw the figures of scores, then those of diagnostics; None is drawn without numbers."""
    return {**of_scores(results), **diagnostics.drawers(results, learned)}


def of_scores(results: Results, methods: Sequence[str] = ()) -> dict[str, Draw]:
    """The functions that draw the figures of scores; the radar has the `methods` that are named."""
    known: dict[str, Draw] = {name: partial(draw, results) for name, draw in FIGURES.items()}
    known |= {"radar": partial(radar, results, methods)}
    return {**known, "wins": partial(_wins, results), "ranks": partial(ranks_picture, results)}


def _wins(results: Results) -> Picture | None:
    return wins_picture(results, wins_table(results)) if len(results.ranked) > 1 else None
