"""The parts that all figures of a report share: colours, sheets of panels over one legend, labels, files."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.console.text import visible
from reports.results import Results
from reports.table import unverified

#: told apart with most kinds of colour vision, in figures and on the page; further methods repeat them with other lines
#: (near to seaborn's "colorblind", whose pink, yellow and light blue cannot be seen on white: contrast here is 3 : 1)
COLOURS = (
    "#0173b2", "#d08300", "#029e73", "#d55e00", "#c264b0", "#a86f3c", "#7b3fa0", "#808080", "#8a7d00", "#2f93cf",
)  # fmt: skip
LINES: tuple[tuple[float, ...], ...] = ((), (4, 1.5), (1, 1), (4, 1.2, 1, 1.2))  #: on, off, ...; () is solid
MARK: Any = {"linewidth": 1.4, "markersize": 5, "markeredgecolor": "w", "markeredgewidth": 0.4}  #: of lines
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: Any = {  #: near to seaborn's "whitegrid", the same anywhere
    "font.size": 9,
    "font.family": ["Bench Sans", "DejaVu Sans"],  # tools/build_font.py; the second has further letters
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
    "axes.titley": 1.0,  # said outright, a title needs no search for a free place, which takes as long as drawing
}


font_manager.fontManager.addfont(Path(__file__).parent / "assets" / "fonts" / "BenchSans.ttf")

LONGEST = 80  #: letters of one text in a figure; a longer one would need an image that no program opens


def plain(text: str) -> str:
    """Text from outside as figures draw it: one line of at most `LONGEST` letters, what hides in it made visible."""
    text = visible(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


@dataclass(frozen=True)
class Picture:
    """A drawn figure, with the sentence that stands under it."""

    name: str
    caption: str
    png: bytes
    pdf: bytes
    least: int  #: pixels of width below which its words cannot be read
    #: what the files were made from; it does not travel between processes
    figure: Figure | None = field(default=None, compare=False)


def style_of(results: Results, method: str) -> dict[str, Any]:
    """Colour, line and marker of a method: by its place in the suite, the same in every figure."""
    place = list(results.methods).index(method)
    return {
        "color": COLOURS[place % len(COLOURS)],
        "dashes": LINES[place // len(COLOURS) % len(LINES)],
        "marker": MARKERS[place % len(MARKERS)],
    }


@contextmanager
def look() -> Iterator[None]:
    """Draw all figures within this context; the settings of matplotlib are the same after it."""
    with mpl.rc_context(STYLE):
        yield


def finish(name: str, caption: str, figure: Figure) -> Picture:
    """Write a figure as PNG and PDF, the same bytes each time."""
    files = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that the font lacks is drawn as a box
        for kind, more in (
            # Flat areas pack well however little the packer tries; trying hard takes as long as drawing.
            ("png", {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 1}}),
            ("pdf", {"metadata": {"CreationDate": None, "Producer": None}}),
        ):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=160, **more)
            files[kind] = buffer.getvalue()
    return Picture(name, caption, files["png"], files["pdf"], round(figure.get_figwidth() * 75), figure)


def handles(results: Results, methods: Sequence[str]) -> list[Artist]:
    """Return the entries of a legend, one a method, marked as in tables."""
    marks = {method: unverified(results.methods[method]["fidelity"]) for method in methods}
    return [Line2D([], [], label=plain(m) + marks[m], **MARK, **style_of(results, m)) for m in methods]


@dataclass(frozen=True)
class Sheet:
    """Panels side by side over one legend, placed by hand in inches: a layout engine would take as long as the rest."""

    legend: Sequence[Artist]  #: its entries, if any
    panels: int
    width: float  #: of a panel with its labels
    height: float
    margins: tuple[float, float, float, float]  #: around a panel, in inches: left, right, bottom, top
    before: float = 0.0  #: inches to the left of the first panel, for names that all panels share

    @cached_property
    def figure(self) -> Figure:
        rows = math.ceil(len(self.legend) / max(2, int(self.width * self.panels / 1.6)))
        room = 0.12 + 0.2 * rows if rows else 0.0
        figure = Figure(figsize=(self.before + self.width * self.panels, self.height + room))
        if rows:
            columns = math.ceil(len(self.legend) / rows)
            figure.legend(handles=list(self.legend), loc="lower center", ncols=columns, borderaxespad=0.3)
        return figure

    def panel(self, place: int, **options: Any) -> Axes:
        """Add the panel at this place from the left."""
        full_width, full_height = self.figure.get_size_inches()
        left, right, bottom, top = self.margins
        bottom += full_height - self.height
        box = (
            (self.before + place * self.width + left) / full_width,
            bottom / full_height,
            (self.width - left - right) / full_width,
            (full_height - bottom - top) / full_height,
        )
        return self.figure.add_axes(box, **options)


NAME_SIZE = 6.5  #: points
LETTER, LINE = 0.053, 0.115  #: inches that a letter and a line of this size take


def longest(names: Iterable[str]) -> int:
    """Letters of the longest of these names as figures draw them."""
    return max(len(plain(name)) for name in names)


def room_for_names(names: Sequence[str]) -> float:
    """Return the inches that `name_ends` needs to the right of a panel."""
    return 0.35 + LETTER * longest(names)


def name_ends(panel: Axes, results: Results, ends: Mapping[str, tuple[float, float]]) -> None:
    """Write every method's name to the right of the panel, as near as others allow to its line's end (x, y).

    The panel's limits must be set before.
    """
    methods = sorted(ends, key=lambda method: ends[method][1])
    (left, right), (low, high) = panel.get_xlim(), panel.get_ylim()
    starts = [((ends[m][0] - left) / (right - left), (ends[m][1] - low) / (high - low)) for m in methods]
    inches = panel.bbox.height / panel.figure.dpi
    heights = spread([up for _, up in starts], LINE / inches)
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
        panel.text(1.06, height, plain(method), transform=panel.transAxes, va="center", fontsize=NAME_SIZE)


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Places at least `gap` apart, within [0, 1] if there is room, as near as possible to the wanted, rising ones.

    Least squares by pooling neighbours that would come too close.
    """
    pools: list[tuple[float, int]] = []  # (mean of wanted - i * gap, members)
    for place, value in enumerate(wanted):
        mean, count = value - place * gap, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    most = max(0.0, 1 - (len(wanted) - 1) * gap)
    firsts = [min(max(mean, 0.0), most) for mean, count in pools for _ in range(count)]
    return [first + place * gap for place, first in enumerate(firsts)]
