"""The font of the figures: its letters, its licence, and that a PDF holds it as TrueType."""

from __future__ import annotations

import io
import runpy
from pathlib import Path

from fontTools.ttLib import TTFont
from matplotlib.figure import Figure

import reports
from reports.figures.figure_style import look

FOLDER = Path(reports.__file__).parent / "assets" / "fonts"
TOOL = Path(__file__).parents[2] / "tools" / "art" / "build_font.py"


def test_it_has_the_letters_of_labels_and_no_tables_of_typesetting() -> None:
    wanted = "ABCäßñ αβπρσ ЖЯ 0123 % ‡§†±×–—…→↔≥≤≈∈Δ √∞²₃ I→T “”"
    with TTFont(FOLDER / "BenchSans.ttf") as font:
        assert {ord(letter) for letter in wanted} <= set(font.getBestCmap())
        assert not {"GSUB", "GPOS", "GDEF", "kern"} & set(font.keys())
        names = {str(record) for record in font["name"].names if record.nameID in (1, 4, 6)}
    assert names == {"Bench Sans", "BenchSans"}, "its licence wants another name than the original's"
    assert "Bitstream Vera Fonts Copyright" in (FOLDER / "LICENSE").read_text()


def test_the_tool_builds_the_letters_that_are_shipped(tmp_path: Path) -> None:
    runpy.run_path(str(TOOL))["build_font"](tmp_path / "built.ttf")
    with TTFont(tmp_path / "built.ttf") as built, TTFont(FOLDER / "BenchSans.ttf") as shipped:
        assert built.getBestCmap() == shipped.getBestCmap()
        assert built["hmtx"].metrics == shipped["hmtx"].metrics


def test_figures_hold_it_as_truetype_and_further_letters_come_from_the_other() -> None:
    buffer = io.BytesIO()
    with look():
        figure = Figure()
        figure.text(0.5, 0.5, "accuracy ‡ א")
        figure.savefig(buffer, format="pdf")
    content = buffer.getvalue()
    assert b"/Subtype /Type3" not in content
    assert b"BenchSans" in content
    assert b"DejaVuSans" in content, "the Hebrew letter is not in the shipped font"
