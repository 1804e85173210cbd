"""What training changed: similarities of pairs under the weights that rows begin at, and under those that they reach.

NCU's Figure 5. A suite asks for it by a row that is `untrained`: it measures the start that other rows share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures.diagnostics import Style, strips_of_methods
from reports.figures.figure_style import medium
from reports.figures.histograms import read
from reports.figures.pictures import COLOURS, Picture
from reports.results import Results, begins_at

_STYLES: tuple[Style, ...] = (
    ("similarity", "negative mean", 1, COLOURS[7], "mean of an image's negatives"),
    ("similarity", "negative top", 1, COLOURS[1], "mean of its largest 5 %"),
    ("similarity", "positive", 1, COLOURS[0], "positive pairs"),
)


def before_after(results: Results) -> Picture | None:
    """Draw a strip for every untrained row, above those that begin with its weights. None without such rows."""
    methods = _in_order(results)
    if len(methods) < 2:
        return None
    diagnostics = {key: _with_summaries(entries) for key, entries in read(results, methods).items()}
    caption = (
        "Cosine similarity of held-out pairs before and after training: a line a row, the untrained one above those "
        "that begin with its weights. Of each image: its own text, the mean over the texts of others, and the mean of "
        "the largest 5 % of these. Each curve is scaled to its own peak."
    )
    return strips_of_methods(
        "before_after", results, diagnostics, methods, _STYLES, 0.34 if medium().width else 0.6, caption
    )


def _in_order(results: Results) -> list[str]:
    """Labels: each untrained row, then the rows that begin where it stays."""
    trained = {label: entry for label, entry in results.methods.items() if not entry.get("untrained")}
    labels: list[str] = []
    for label, entry in results.methods.items():
        after = [one for one, other in trained.items() if begins_at(other) == begins_at(entry) is not None]
        if entry.get("untrained") and after:
            labels += [label, *after]
    return list(dict.fromkeys(labels))


def _with_summaries(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The diagnostics that have all series of the figure; runs of older versions lack some."""
    wanted = {series for _, series, *_ in _STYLES}
    return {name: one for name, one in entries.items() if wanted <= one["series"].keys()}
