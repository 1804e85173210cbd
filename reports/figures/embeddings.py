"""The map of image and text embeddings, from the files that `bench inspect embeddings` writes, one panel per run."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from bench.store.selection import LAST
from reports.figures.figure_style import Sheet, finish, medium, named
from reports.figures.pictures import COLOURS, Picture
from reports.results import Results
from reports.statistics.paired import Floats

_KINDS = (("matched", False, COLOURS[0]), ("corrupted", True, COLOURS[3]))
_COLUMNS = ("image_x", "image_y", "text_x", "text_y", "corrupted")


def map_file(suite: Path, run: str) -> Path:
    """The file of a run's map, below the folder of a suite."""
    return suite / "maps" / f"{run[:16]}.csv"


def embeddings(results: Results) -> Picture | None:
    """Draw each run with a map: a dot per image, a triangle for its text, a line between them. None without maps."""
    read = {}
    for run in results.runs:
        path = map_file(run.stored.folder.parents[1] / results.suite, run.run)
        if run.select == LAST and path.is_file():
            read[run.run] = (run, _read(path))
    shown = [(run, places) for run, places in read.values() if places is not None]
    if not shown:
        return None
    several = len({run.noise for run, _ in shown}) > 1
    titles = [f"{named(run.method)}, {run.noise}" if several else named(run.method) for run, _ in shown]
    small = medium().width is not None
    side = 1.9 if small else 3.4
    sheet = Sheet(_legend(), len(shown), side, side + 0.2, (0.06, 0.06, 0.06, 0.3), least=1.6, titles=titles)
    for place, (_, places) in enumerate(shown):
        panel = sheet.panel(place, xticks=[], yticks=[])
        for _, wrong, colour in _KINDS:
            images, texts = np.split(places[places[:, 4] == wrong, :4], 2, axis=1)
            pairs = np.stack((images, texts), axis=1)
            panel.add_collection(LineCollection(list(pairs), colors=colour, linewidths=0.4, alpha=0.35))
            for points, marker in ((images, "o"), (texts, "^")):
                size = 2 if small else 3.5
                panel.plot(*points.T, marker, markersize=size, color=colour, alpha=0.75, markeredgewidth=0)
    count = sum(int(places[:, 4].sum()) for _, places in shown)
    noise = "" if several else f" under {shown[0][0].noise}"
    caption = (
        f"Training pairs{noise} by their embeddings, as training saw them: PCA, then t-SNE. A dot is an image, a "
        "triangle its text, a line joins a pair. What is close was close in that space; distances "
        "between far groups mean nothing; scales differ." + ("" if count else " No fixed set of pairs is corrupted.")
    )
    lacking = [results.named(run.method) for run, places in read.values() if places is None]
    return finish("embeddings", caption + (f" Unreadable: {', '.join(lacking)}." if lacking else ""), sheet.figure)


def _legend() -> list[Artist]:
    return [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=4, label=f"{kind} {side}")
        for kind, _, colour in _KINDS
        for side, marker in (("image", "o"), ("text", "^"))
    ]


def _read(path: Path) -> Floats | None:
    """Read a map: [n, 5], where image and text of each pair lie, and 1 where it is corrupted.

    None if it is not as `bench inspect embeddings` writes it; that command recreates it.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [[float(line[name]) for name in _COLUMNS] for line in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError):
        return None
    table = np.array(rows)
    return table if len(rows) and np.isfinite(table).all() else None
