"""Every figure of a report by its name, in the order of the page. What draws is imported when a figure is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module

from reports.figures.histograms import SIMILAR, Learned, names_of_own
from reports.figures.pictures import Picture
from reports.results import Results

#: figures of scores -> module and function that draw them, below `reports.figures`
FIGURES: Mapping[str, tuple[str, str]] = {
    "differences": ("forest", "forest"),
    "regimes": ("regimes", "regimes_picture"),
    "kept": ("kept", "kept_picture"),
    "recovered": ("forest", "recovered"),
    "radar": ("radar", "radar"),
    "noise": ("scores", "against_noise"),
    "cost": ("scores", "against_cost"),
    "memorisation": ("scores", "memorisation"),
    "course": ("training_curves", "course"),
    "shares": ("subset_curves", "shares"),
    "kept_share": ("subset_curves", "kept_share"),
    "before_after": ("diagnostics", "before_after"),
    "embeddings": ("embeddings", "embeddings"),
}


def names(results: Results, learned: Learned) -> list[str]:
    """Names of the figures of scores, then of all methods' similarities and of each method's own diagnostics."""
    return [*FIGURES, SIMILAR, *names_of_own(results, learned).values()]


def draw(name: str, results: Results, learned: Learned) -> Picture | None:
    """Draw a figure for the medium around it; None if there are no numbers for it, or no room."""
    if name in FIGURES:
        module, function = FIGURES[name]
        picture: Picture | None = getattr(import_module(f"reports.figures.{module}"), function)(results)
        return picture
    from reports.figures.diagnostics import own_diagnostics, similarities

    method = {figure: method for method, figure in names_of_own(results, learned).items()}.get(name)
    return own_diagnostics(results, method, learned) if method is not None else similarities(results, learned)


def draw_all(
    results: Results, learned: Learned, chosen: Iterable[str], widths: Sequence[str] = ()
) -> dict[str, Picture | None]:
    """Draw these figures for the screen, and as PDF for these widths of a paper."""
    return {name: _in_sizes(name, results, learned, widths) for name in chosen}


def _in_sizes(name: str, results: Results, learned: Learned, widths: Sequence[str]) -> Picture | None:
    from reports.figures.figure_style import in_sizes

    return in_sizes(lambda: draw(name, results, learned), widths)
