"""Build the font of the figures: DejaVu Sans with the letters that labels use, without tables for typesetting.

    python tools/art/build_font.py

matplotlib cuts every PDF's font out of the file, and most of that time goes into tables (ligatures, positions) that a
figure does not need. The licence of DejaVu asks for another name of a changed font; it stands beside the file.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from fontTools import subset
from matplotlib import font_manager

FOLDER = Path(__file__).parents[2] / "reports" / "assets" / "fonts"
NAME = "Bench Sans"
#: Latin, Greek, Cyrillic; punctuation, super- and subscripts, arrows, mathematics. Every further letter
#: makes all PDFs slower; what lacks here comes from the second font
LETTERS = (
    *(range(0x20, 0x180), range(0x386, 0x3CF), range(0x400, 0x460), range(0x2010, 0x2060)),
    *(range(0x2070, 0x20A0), range(0x2190, 0x2196), range(0x2200, 0x2267)),
)
LAYOUT = ["GSUB", "GPOS", "GDEF", "kern", "MATH", "FFTM"]


def build_font(path: Path) -> None:
    """Write the font to `path`. Raises OSError."""
    options = subset.Options(layout_features=[], notdef_outline=True, name_IDs=[0, 1, 2, 3, 4, 5, 6, 13, 14])
    options.drop_tables += LAYOUT
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=[letter for part in LETTERS for letter in part])
    names = {1: NAME, 3: f"{NAME}, from DejaVu Sans 2.35", 4: NAME, 6: NAME.replace(" ", "")}
    with subset.load_font(font_manager.findfont("DejaVu Sans"), options) as font:
        subsetter.subset(font)
        for one in list(font["name"].names):
            if one.nameID in names:
                font["name"].setName(names[one.nameID], one.nameID, one.platformID, one.platEncID, one.langID)
        font["head"].modified = font["head"].created  # the same bytes each time
        font.recalcTimestamp = False
        font.save(path)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    build_font(FOLDER / "BenchSans.ttf")
    licence = Path(font_manager.findfont("DejaVu Sans")).with_name("LICENSE_DEJAVU")
    shutil.copyfile(licence, FOLDER / "LICENSE")
