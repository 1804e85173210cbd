"""What a figure is, where it is shown, and how methods look in all of them. It imports nothing that draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reports.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: distinguishable with most kinds of colour vision; further methods repeat them with other line styles
#: (near to seaborn's "colorblind", whose pink, yellow and light blue cannot be seen on white: contrast here is 3 : 1)
COLOURS = (
    "#0173b2", "#d08300", "#029e73", "#d55e00", "#c264b0", "#a86f3c", "#7b3fa0", "#808080", "#8a7d00", "#2f93cf",
)  # fmt: skip
LINES: tuple[tuple[float, ...], ...] = ((), (4, 1.5), (1, 1), (4, 1.2, 1, 1.2))  #: on, off, ...; () is solid
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LONGEST = 80  #: letters of one text in a figure; a longer one would need an image that no program opens


@dataclass(frozen=True)
class Medium:
    """Where figures are shown: on the screen as wide as their panels take, or in a paper at a width that is given."""

    name: str
    width: float | None = None  #: inches of a figure
    height: float = math.inf  #: most inches of a figure
    text: float = 9  #: points of most text
    names: float = 6.5  #: points of names of methods, and of other text that stands closely
    letters: int = LONGEST  #: most letters of a name

    @property
    def letter(self) -> float:
        """Inches that a letter of a name takes."""
        return 0.053 / 6.5 * self.names

    @property
    def line(self) -> float:
        """Inches that a line of names takes."""
        return 0.115 / 6.5 * self.names


SCREEN = Medium("screen")
#: a paper's widths: of one of two columns and of a whole page, as conferences have them; 9 inches are a page's height
PAPER = {one.name: one for one in (Medium("page", 6.9, math.inf, 8, 7, 32), Medium("column", 3.3, 9.0, 8, 7, 20))}


@dataclass(frozen=True)
class Picture:
    """A drawn figure with its caption."""

    name: str
    caption: str
    png: bytes  #: for the screen
    least: int  #: width in pixels below which it is illegible on the screen
    webp: bytes = b""  #: the same pixels in less than half the bytes, for the page
    pdf: Mapping[str, bytes] = field(default_factory=dict)  #: by the names of `PAPER`, where it fits
    #: what the files were made from
    figure: Figure | None = field(default=None, compare=False)

    def files(self) -> dict[str, bytes]:
        """Its files by their names: for the screen, and as PDF for each width of a paper."""
        return {file_name(self.name): self.png, **{file_name(self.name, width): pdf for width, pdf in self.pdf.items()}}


def file_name(name: str, width: str = "") -> str:
    """The file of a figure: for the screen, or as PDF for a width of a paper."""
    beside = f"-{width}" if width not in ("", "page") else ""
    return f"{name}{beside}.{'pdf' if width else 'png'}"


def style_of(results: Results, method: str) -> dict[str, Any]:
    """Colour, line and marker of a method: by its place in the suite, the same in every figure."""
    place = list(results.methods).index(method)
    return {
        "color": COLOURS[place % len(COLOURS)],
        "dashes": LINES[place // len(COLOURS) % len(LINES)],
        "marker": MARKERS[place % len(MARKERS)],
    }
