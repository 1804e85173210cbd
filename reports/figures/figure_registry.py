"""Every figure of a report by its name, in the order of the page. What draws is imported when a figure is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module

from reports.figures.histograms import SIMILAR, Learned, names_of_own
from reports.figures.pictures import Picture
from reports.papers.layouts import PAPERS
from reports.results import Results

#: figures of scores -> module and function that draw them, below `reports.figures`
FIGURES: Mapping[str, tuple[str, str]] = {
    "answer": ("forest", "answer"),
    "differences": ("forest", "forest"),
    "regimes": ("regimes", "regimes_picture"),
    "kept": ("kept", "kept_picture"),
    "radar": ("radar", "radar"),
    "noise": ("scores", "against_noise"),
    "cost": ("scores", "against_cost"),
    "course": ("training_curves", "course"),
    "shares": ("subset_curves", "shares"),
    "kept_share": ("subset_curves", "kept_share"),
    "before_after": ("diagnostics", "before_after"),
    "embeddings": ("embeddings", "embeddings"),
}


ON_REQUEST = "radar"  #: in a report only if the suite lays out the tables of a paper that has one
OVER_BUDGETS = ("regimes", "noise", "kept_share", "embeddings")  #: figures that show all budgets of a suite


def reported(results: Results) -> list[str]:
    """The figures of scores that a report draws."""
    paper = PAPERS.get((results.plan["tables"] or {}).get("paper", ""))
    return [name for name in FIGURES if name != ON_REQUEST or (paper and paper.radar)]


def names(results: Results, learned: Learned) -> list[str]:
    """Names of the figures of scores, then of all methods' similarities and of each method's own diagnostics."""
    return [*FIGURES, SIMILAR, *names_of_own(results, learned).values()]


def draw(name: str, results: Results, learned: Learned) -> Picture | None:
    """Draw a figure for the current medium; None if there are no numbers for it, or no room."""
    shown = results if name in OVER_BUDGETS else results.longest
    picture: Picture | None
    if name in FIGURES:
        module, function = FIGURES[name]
        picture = getattr(import_module(f"reports.figures.{module}"), function)(shown)
    else:
        from reports.figures.diagnostics import own_diagnostics, similarities

        method = {figure: method for method, figure in names_of_own(shown, learned).items()}.get(name)
        picture = own_diagnostics(shown, method, learned) if method is not None else similarities(shown, learned)
    if picture is None or shown is results:
        return picture
    return replace(picture, caption=f"{picture.caption} At the longest budget of each noise.")


def draw_all(
    results: Results, learned: Learned, chosen: Iterable[str], widths: Sequence[str] = ()
) -> dict[str, Picture | None]:
    """Draw these figures for the screen, and as PDF for these widths of a paper."""
    names = list(chosen)
    if not names:
        return {}  # and nothing that draws is imported
    from reports.figures.figure_style import in_sizes

    return {name: in_sizes(partial(draw, name, results, learned), widths) for name in names}
