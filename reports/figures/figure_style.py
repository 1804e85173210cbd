"""The parts that all figures of a report share: colours, sheets of panels over one legend, labels, files."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image
from scipy.optimize import isotonic_regression

from bench.console.text import visible
from reports.figures.pictures import LONGEST, PAPER, SCREEN, Medium, Picture, style_of
from reports.results import Results
from reports.tables.table import unverified

MARK: Any = {"linewidth": 1.4, "markersize": 5, "markeredgecolor": "w", "markeredgewidth": 0.4}  #: of lines
STYLE: Any = {  #: similar to seaborn's "whitegrid", the same on every machine
    "font.size": 9,
    "font.family": ["Bench Sans", "DejaVu Sans"],  # tools/art/build_font.py; the second has further characters
    "text.color": ".15",
    "axes.labelcolor": ".15",
    "xtick.color": ".15",
    "ytick.color": ".15",
    "xtick.bottom": False,
    "ytick.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "grid.color": "#dddddd",
    "lines.solid_capstyle": "round",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "axes.titlesize": 10,
    # Labels are text, never formulas: `$\\frac{1}$` would stop the report. Log axes ask for the math of their numbers.
    "text.parse_math": False,
    "text.usetex": False,
    "axes.formatter.use_mathtext": False,
    "pdf.fonttype": 42,  # TrueType, which conferences ask for; matplotlib's own default is Type 3
    "axes.titley": 1.0,  # set explicitly, else matplotlib searches for a free place, which takes as long as drawing
}


font_manager.fontManager.addfont(Path(__file__).parents[1] / "assets" / "fonts" / "BenchSans.ttf")

DPI = 160  #: pixels per inch on the screen
PER_INCH = 75  #: pixels of the page per inch of a figure on the screen
SCREEN_WIDTH = 74 * 16 / PER_INCH  #: inches of the widest figure on the page, as report.css has it
_MEDIUM: ContextVar[Medium] = ContextVar("medium", default=SCREEN)


def medium() -> Medium:
    """The medium that figures are drawn for now, as `look` says."""
    return _MEDIUM.get()


def plain(text: str, most: int = LONGEST) -> str:
    """External text as figures draw it: one line of at most `most` characters, with hidden characters shown."""
    text = visible(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def named(text: str) -> str:
    """The name of a method or noise as figures draw it: plain, and not longer than the medium has room for."""
    return plain(text, medium().letters)


def _settings(shown: Medium) -> Any:
    """Settings of matplotlib."""
    sizes = {"font.size": shown.text, "legend.fontsize": shown.names, "axes.titlesize": shown.text}
    ticks = {"xtick.labelsize": shown.names, "ytick.labelsize": shown.names}
    return {**STYLE, **({**sizes, **ticks} if shown.width else {})}


@contextmanager
def look(shown: Medium = SCREEN) -> Iterator[None]:
    """Draw all figures of this context for a medium; earlier settings are restored."""
    token = _MEDIUM.set(shown)
    try:
        with mpl.rc_context(_settings(shown)):
            yield
    finally:
        _MEDIUM.reset(token)


def in_sizes(draw: Callable[[], Picture | None], widths: Iterable[str]) -> Picture | None:
    """Draw a figure for the screen, and for each of these widths of a paper at which it is legible."""
    with look(SCREEN):
        picture = draw()
    files: dict[str, bytes] = {}
    for width in widths if picture else ():
        with look(PAPER[width]):
            again = draw()
        files.update(again.pdf if again else {})
    return replace(picture, pdf=files) if picture else None


def finish(name: str, caption: str, figure: Figure) -> Picture:
    """Write a figure, as PNG for the screen and as PDF for a paper, the same bytes each time.

    Figures higher than a page of a paper are not written.
    """
    if medium().width is None:
        return Picture(name, caption, *_on_screen(figure), figure=figure)
    if figure.get_figheight() > medium().height:
        return Picture(name, caption, b"", 0)
    pdf = _written(figure, "pdf", metadata={"CreationDate": None, "Producer": None})
    return Picture(name, caption, b"", 0, pdf={medium().name: pdf}, figure=figure)


def _written(figure: Figure, kind: str, **more: Any) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a character that the font lacks is drawn as a box
        figure.savefig(buffer, format=kind, dpi=DPI, **more)
    return buffer.getvalue()


def _on_screen(figure: Figure) -> tuple[bytes, int, bytes]:
    """Return a figure as PNG, the width in pixels below which it is illegible, and the same pixels as WebP."""
    pixels, across = _written(figure, "rgba"), int(figure.get_figwidth() * DPI)
    whole = Image.frombuffer("RGBA", (across, len(pixels) // across // 4), pixels).convert("RGB")  # all is opaque
    png, webp = io.BytesIO(), io.BytesIO()
    whole.save(png, "PNG", dpi=(DPI, DPI), compress_level=1)  # higher gains little
    whole.save(webp, "WEBP", lossless=True, method=2, quality=0)
    return png.getvalue(), round(figure.get_figwidth() * PER_INCH), webp.getvalue()


def handles(results: Results, methods: Sequence[str]) -> list[Artist]:
    """Return the entries of a legend, one per method, marked as in tables."""
    return [Line2D([], [], label=marked(results, m), **MARK, **style_of(results, m)) for m in methods]


def marked(results: Results, method: str) -> str:
    """The name of a method as figures draw it, with the mark of one that is not verified, as in tables."""
    return named(results.named(method)) + unverified(results.methods[method]["fidelity"])


@dataclass(frozen=True)
class Sheet:
    """Panels side by side over one legend, placed in inches: a layout engine would take as long as all the rest.

    They are in rows at most as wide as the page; in a paper they fill its width, and are equally wide.
    """

    legend: Sequence[Artist]  #: its entries, if any
    panels: int
    width: float  #: of a panel with its labels
    height: float
    margins: tuple[float, float, float, float]  #: around a panel, in inches: left, right, bottom, top
    before: float = 0.0  #: inches to the left of the first panel of a row, for names that all panels share
    least: float = 3.0  #: smallest width in inches of a panel in a paper, with its labels
    titles: Sequence[str] = ()  #: of the panels, if they have any
    key: Sequence[str] = ()  #: lines under the panels of a paper that explain the numbers in them

    @cached_property
    def columns(self) -> int:
        """Panels side by side: as many as have room in rows that are about equally long."""
        whole = medium().width
        most = max(1, int(((whole or SCREEN_WIDTH) - self.before) / (self.least if whole else self.width)))
        return math.ceil(self.panels / math.ceil(self.panels / most))

    @property
    def across(self) -> float:
        """Inches from one panel to the next one."""
        whole = medium().width
        return self.width if whole is None else (whole - self.before) / self.columns

    @cached_property
    def heads(self) -> list[str]:
        """Titles of the panels, broken into lines as wide as a panel."""
        return [broken(one, self.across) for one in self.titles]

    @property
    def down(self) -> float:
        """Inches from one row of panels to the next."""
        lines = max((one.count("\n") for one in self.heads), default=0)
        return self.height + 0.0174 * medium().text * lines

    @cached_property
    def figure(self) -> Figure:
        whole = self.before + self.across * self.columns
        letters = [len(str(entry.get_label())) for entry in self.legend]
        letter = medium().letter if medium().width else 0.053 / 6.5 * medium().text  # of the size of the legend
        wide = max(0.0 if medium().width else 1.6, 0.45 + letter * max(letters, default=0))
        lines = math.ceil(len(self.legend) / max(1, int(whole / wide)))
        room = 0.12 + 0.2 * lines if lines else 0.0
        rows, keyed = math.ceil(self.panels / self.columns), self._key_places(whole)
        figure = Figure(figsize=(whole, self.down * rows + room + (max(y for _, y in keyed) + 0.1 if keyed else 0.0)))
        for text, (x, y) in zip(self.key, keyed, strict=True):
            place = x / whole, (room + y) / figure.get_figheight()
            figure.text(*place, text, va="top", fontsize=medium().names)
        if lines:
            columns = math.ceil(len(self.legend) / lines)
            figure.legend(handles=list(self.legend), loc="lower center", ncols=columns, borderaxespad=0.3)
        return figure

    def _key_places(self, whole: float) -> list[tuple[float, float]]:
        """Inches from the left and above the legend where each line of the key begins, column by column."""
        wide = 0.25 + medium().letter * max(map(len, self.key), default=0)
        columns = max(1, int(whole / wide))
        lines = math.ceil(len(self.key) / columns)
        return [
            (0.15 + place // lines * whole / columns, (lines - place % lines) * medium().line)
            for place in range(len(self.key))
        ]

    def panel(self, place: int, **options: Any) -> Axes:
        """Add the panel at this place, counted by rows."""
        full_width, full_height = self.figure.get_size_inches()
        left, right, bottom, top = self.margins
        row, column = divmod(place, self.columns)
        box = (
            (self.before + column * self.across + left) / full_width,
            (full_height - (row + 1) * self.down + bottom) / full_height,
            (self.across - left - right) / full_width,
            (self.height - bottom - top) / full_height,
        )
        if self.heads:
            options["title"] = self.heads[place]
        return self.figure.add_axes(box, **options)

    def begins_row(self, place: int) -> bool:
        """Whether the panel at this place is the first of its row, which has the names."""
        return place % self.columns == 0


def broken(text: str, inches: float) -> str:
    """Text broken into lines of at most this width, at the medium's text size."""
    return textwrap.fill(plain(text), max(8, int(inches / (0.0082 * medium().text))))


def room_for_names(names: Sequence[str]) -> float:
    """Return the inches that `name_ends` needs to the right of a panel."""
    return 0.35 + medium().letter * (max(len(named(name)) for name in names) + 1)  # and a mark


def name_ends(panel: Axes, results: Results, ends: Mapping[str, tuple[float, float]]) -> None:
    """Write every method's name to the right of the panel, as near as others allow to its line's end (x, y).

    The panel's limits must be set before.
    """
    methods = sorted(ends, key=lambda method: ends[method][1])
    (left, right), (low, high) = panel.get_xlim(), panel.get_ylim()
    starts = [((ends[m][0] - left) / (right - left), (ends[m][1] - low) / (high - low)) for m in methods]
    inches = panel.bbox.height / panel.figure.dpi
    heights = spread([up for _, up in starts], medium().line / inches)
    styles = [style_of(results, method) for method in methods]
    leaders = LineCollection(
        [[start, (1.02, height), (1.05, height)] for start, height in zip(starts, heights, strict=True)],
        colors=[style["color"] for style in styles],
        linestyles=[(0, style["dashes"]) if style["dashes"] else "solid" for style in styles],
        linewidths=0.6,
        transform=panel.transAxes,
        clip_on=False,
    )
    panel.add_collection(leaders, autolim=False)
    for method, height in zip(methods, heights, strict=True):
        look: Any = {"va": "center", "fontsize": medium().names}
        panel.text(1.06, height, marked(results, method), transform=panel.transAxes, **look)


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Places at least `gap` apart, within [0, 1] if there is room, as close as possible to the rising wanted ones."""
    if not wanted:
        return []
    steps = gap * np.arange(len(wanted))
    firsts = isotonic_regression(np.asarray(wanted) - steps).x  # names that would overlap share their first place
    return list((np.clip(firsts, 0, max(0.0, 1 - steps[-1])) + steps).tolist())
