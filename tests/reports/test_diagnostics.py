"""What methods learned, as the report draws it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from bench.store import RunStore, Store
from reports.figures import diagnostics
from reports.figures import figure_style as drawing
from reports.figures.diagnostics import _fill, _name_one_number, _remarks, _scale, own_diagnostics
from reports.figures.figure_registry import FIGURES, draw_all, names
from reports.figures.histograms import read
from reports.figures.pictures import Picture
from reports.pages.html import page
from reports.results import Results, load
from reports.tables.suite_tables import tables

from . import stores

SUITE = "emoji_noisy"
OWN = ["similarities", "diagnostics-04-sogclr", "diagnostics-05-bayes", "diagnostics-07-prolip"]


def learned(results: Results) -> dict[str, Picture]:
    """The figures of diagnostics that there are numbers for, by name."""
    found = read(results)
    drawn = draw_all(results, found, [name for name in names(results, found) if name not in FIGURES])
    return {name: picture for name, picture in drawn.items() if picture}


@pytest.fixture
def sheets(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """Figures as they are handed over to be written."""
    found: dict[str, Figure] = {}
    finish = diagnostics.finish

    def keep(name: str, caption: str, figure: Figure) -> Picture:
        found[name] = figure
        return finish(name, caption, figure)

    monkeypatch.setattr(diagnostics, "finish", keep)
    return found


def test_every_method_with_diagnostics_has_its_figure(three: Store, sheets: dict[str, Figure]) -> None:
    found = learned(load(SUITE, three))
    assert list(found) == OWN
    assert sorted(sheets) == sorted(OWN)
    assert "Seed 0 alone." in found["similarities"].caption
    assert "14 numbers are omitted" in found["diagnostics-05-bayes"].caption  # seven under each noise
    assert "omitted" not in found["diagnostics-07-prolip"].caption
    for figure in sheets.values():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # for the last time it was drawn with other pixels an inch
        ticks = {tick for axes in figure.axes for tick in axes.get_xticklabels()}  # the last may lie beyond the axis
        for text in set(figure.findobj(Text)) - ticks:
            if text.get_text().strip() and text.get_visible():
                box = text.get_window_extent(canvas.get_renderer())
                assert 0 <= box.x0 < box.x1 <= figure.bbox.x1, text
                assert 0 <= box.y0 < box.y1 <= figure.bbox.y1, text


def test_long_titles_and_narrow_axes_stay_apart(three: Store, sheets: dict[str, Figure]) -> None:
    """ProLIP's diagnostics after a short training: variances within a factor of three, a long title in the middle."""
    results = load(SUITE, three)

    def entry(title: str) -> dict[str, object]:
        edges = np.geomspace(0.0033, 0.0048, 31).tolist()
        series = {"images": {"counts": [1] * 30, "mean": 0.004, "n": 30, "dropped": 0}}
        return {"title": title, "axis": "uncertainty", "log": True, "edges": edges, "series": series, "seed": 0}

    titles = ("uncertainty", "Does an input lie within its masked version? (paper, Figure 8)", "uncertainty by length")
    noises = list(results.noises)
    own_diagnostics(results, "prolip", {("prolip", noise): {one: entry(one) for one in titles} for noise in noises})
    (figure,) = sheets.values()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    heads = [panel.get_title(loc="left") for panel in figure.axes]
    assert [head.replace("\n", " ") for head in heads] == [*titles]
    for one, other in pairwise(figure.axes):
        assert one._left_title.get_window_extent(renderer).x1 < other._left_title.get_window_extent(renderer).x0
    for panel in figure.axes:
        assert panel._left_title.get_window_extent(renderer).y1 <= figure.bbox.y1
        low, high = panel.get_xlim()
        ticks = [
            text for at, text in zip(panel.get_xticks(), panel.get_xticklabels(), strict=True) if low <= at <= high
        ]
        boxes = [text.get_window_extent(renderer) for text in ticks]
        assert len(boxes) >= 2
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_curves_are_the_stored_counts(three: Store, sheets: dict[str, Figure]) -> None:
    results = load(SUITE, three)
    learned(results)
    panel = sheets["diagnostics-05-bayes"].axes[0]
    assert panel.get_xscale() == "log"
    for series, drawn in zip(("positive pairs", "negative pairs"), panel.collections, strict=True):
        assert isinstance(drawn, PolyCollection)
        assert len(drawn.get_paths()) == len(results.noises)
        for place, noise in enumerate(results.noises):
            (entry,) = [e for e in results.of("bayes", noise)[0].stored.diagnostics() if e["name"] == "weights"]
            counts = np.array(entry["series"][series]["counts"])
            corners = drawn.get_paths()[place].vertices
            heights = (place - corners[1 : 1 + 2 * len(counts) : 2, 1]) / 0.9
            assert heights == pytest.approx(counts / counts.max())
            assert corners[0, 0] == entry["edges"][0]
    upwards, _, downwards, _ = sheets["similarities"].axes[1].collections
    assert upwards.get_paths()[0].vertices[:, 1].min() == pytest.approx(-0.46)
    assert downwards.get_paths()[0].vertices[:, 1].max() == pytest.approx(0.46)
    assert len(sheets["similarities"].axes[0].collections[2].get_paths()) == 0  # no noise, no corrupted pairs


def test_one_run_of_a_cell_is_read_and_it_is_the_first_that_has_any(
    three: Store, troubled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    whole = RunStore.diagnostics
    results = load(SUITE, three)  # looks at every file of every run, for damage
    monkeypatch.setattr(RunStore, "diagnostics", lambda run: [read.append(run.id), whole(run)][1])
    learned(results)
    assert read == [results.of(method, noise)[0].run for method in results.methods for noise in results.noises]
    assert list(learned(load(SUITE, troubled))) == OWN  # failed, missing and interrupted runs have none


def test_runs_without_diagnostics_leave_no_section(tmp_path: Path, three: Store) -> None:
    results = load(SUITE, stores.write_store(tmp_path, methods=stores.METHODS[:2], diagnostics=False))
    assert learned(results) == {}
    assert "iagnostics" not in page(results, tables(results), learned(results))
    results = load(SUITE, three)
    text = page(results, tables(results), learned(results))
    section = text[text.index('<section id="diagnostics">') : text.index('<section id="methods">')]
    assert re.findall("<h3>([^<]*)</h3>", section) == ["SogCLR", "Bayesian weights", "ProLIP"]
    assert section.count("<img ") == 4
    assert '<a href="#diagnostics">' in text


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_equal_values_are_a_thin_bar_and_no_box(scale: str) -> None:
    """A histogram of equal values has one bin, as wide as the axis."""
    panel = Figure().add_subplot(xscale=scale, xlim=(0.01, 1.0))
    entry = {"edges": [0.025, 0.1], "series": {"temperatures": {"counts": [7], "mean": 0.05, "n": 7, "dropped": 0}}}
    _fill(panel, [entry], "temperatures", "#123456", 0.9)
    (drawn,) = panel.collections
    across = drawn.get_paths()[0].vertices[:, 0]
    assert across.min() < 0.05 < across.max()
    ends = panel.transAxes.inverted().transform(panel.transData.transform([[x, 0.5] for x in across]))
    assert np.ptp(ends[:, 0]) < 0.02
    assert "A thin bar is one number" in _remarks([{**entry, "seed": 0}])


def axis_of(low: float, high: float, *, log: bool = False, counts: Sequence[int] = (1, 2)) -> tuple[str, list[str]]:
    """The name of the axis of numbers that lie between these, and what is written at its ticks, as they are drawn."""
    with drawing.look():
        panel = Figure(figsize=(2.8, 2), dpi=100).add_axes((0.02, 0.3, 0.96, 0.6), xlabel="weight")
        series = {"images": {"counts": [*counts], "mean": (low + high) / 2, "n": 7, "dropped": 0}}
        entry = {"edges": [low, high], "series": series, "log": log}
        _scale(panel, [entry])
        _name_one_number(panel, [entry])
        canvas = FigureCanvasAgg(panel.figure)
        canvas.draw()
    inside = [one for one in panel.get_xticklabels() if low <= one.get_position()[0] <= high]
    boxes = sorted((one.get_window_extent(canvas.get_renderer()).extents for one in inside), key=lambda box: box[0])
    assert all(one[2] + 4 < other[0] for one, other in pairwise(boxes)), "numbers cover each other"
    assert panel.xaxis.get_offset_text().get_text() == ""
    return panel.get_xlabel(), [one.get_text().replace("\u2212", "-") for one in inside]


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [(0.0031, 0.0053, True), (0.0025, 0.0075, True), (0.14, 3.1, True), (1e-4, 3.0, True), (-0.2, 0.6, False)],
)
def test_an_axis_has_numbers_that_do_not_touch(low: float, high: float, log: bool) -> None:
    name, numbers = axis_of(low, high, log=log)
    assert name == "weight"
    assert 2 <= len(numbers) <= 6


@pytest.mark.parametrize("log", [True, False])
def test_one_number_is_written_at_its_place(log: bool) -> None:
    assert axis_of(0.0025, 0.0075, log=log, counts=[7]) == ("weight", ["0.005"])
