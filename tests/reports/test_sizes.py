"""Figures at the widths of a paper: their text can be read at that size, and none is cut off or covers another."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from typer.testing import CliRunner

import bench
from bench.cli import app
from bench.store import Store
from reports.build import figure_of
from reports.figures.figure_style import PAPER, SCREEN_WIDTH
from reports.results import Results, load

from . import stores

SUITE = "emoji_noisy"
EVERYWHERE = {"differences", "radar", "noise"}  #: figures that a column has room for with 23 methods
PAGE_ALONE = {"cost", "similarities"}


@pytest.fixture(scope="module")
def read(many: bench.Results) -> Results:
    return load(SUITE, Store(many.folder))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> bench.Results:
    """23 methods with long names, the last one an oracle, four noises and three seeds."""
    others = [(f"another method {place}", f"Method {place}", 0.9 + 0.02 * place, "cosine") for place in range(15)]
    methods = (*stores.METHODS, *others, ("oracle", "CLIP", 1.5, "cosine"))
    root = tmp_path_factory.mktemp("many")
    stores.write_store(root, methods=methods, rates=(0.0, 0.2, 0.4, 0.6), curve=(0.5,))
    return bench.Results(root)


def shown_texts(figure: Figure) -> dict[Text, Bbox]:
    """The texts of a figure that are drawn, with their boxes in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # which places the labels of axes
    beyond: set[Text] = set()
    for axes in figure.axes:
        beyond |= ticks_beyond(axes)
    texts = (one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip())
    return {one: one.get_window_extent(canvas.get_renderer()) for one in texts if one not in beyond}


def ticks_beyond(axes: Axes) -> set[Text]:
    """Labels of ticks beyond the ends of an axis, or of an axis that is off: they are not drawn."""
    ticks: set[Text] = set()
    for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
        labels = [text for tick in axis.get_major_ticks() for text in (tick.label1, tick.label2)]
        places = [tick.get_loc() for tick in axis.get_major_ticks() for _ in range(2)]
        shown = axes.axison and axis.get_tick_params().get("labelleft", True)
        ticks |= {text for text, at in zip(labels, places, strict=True) if not (shown and low <= at <= high)}
    return ticks


def overlap(one: Bbox, other: Bbox) -> float:
    """Points by which two boxes cover each other in the direction in which they do less."""
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    down = min(one.y1, other.y1) - max(one.y0, other.y0)
    return min(across, down)


def checked_texts(figure: Figure) -> list[Text]:
    """The texts of a figure that are drawn: none is cut off, and none covers another."""
    texts = shown_texts(figure)
    for text, box in texts.items():
        assert -1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1, text
        assert -1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1, text
    for one, other in combinations(texts, 2):
        assert overlap(texts[one], texts[other]) < 3, (one, other)
    return list(texts)


@pytest.mark.parametrize("width", PAPER)
@pytest.mark.parametrize("name", sorted(EVERYWHERE | PAGE_ALONE | {"diagnostics-05-bayes"}))
def test_words_can_be_read_at_the_size_of_a_paper(read: Results, name: str, width: str) -> None:
    if name in PAGE_ALONE and width == "column":
        with pytest.raises(bench.UserError, match=f"the figure '{name}' is not legible at the width of a column"):
            figure_of(read, name, width="column")
        return
    figure = figure_of(read, name, width=width)
    assert figure.get_figwidth() == pytest.approx({"page": 6.9, "column": 3.3}[width])
    assert figure.get_figheight() <= 9
    assert all(7 <= text.get_fontsize() <= 9 for text in checked_texts(figure))


@pytest.mark.promise("figures fit the width of a paper, and their words cover no others")
@pytest.mark.parametrize("name", sorted(EVERYWHERE | PAGE_ALONE | {"diagnostics-05-bayes"}))
def test_a_figure_fits_the_page_and_its_words_cover_no_others(read: Results, name: str) -> None:
    """At 23 methods under four noises, which are in rows."""
    figure = figure_of(read, name)
    assert figure.get_figwidth() <= SCREEN_WIDTH
    checked_texts(figure)


def test_a_figure_of_the_screen_is_as_wide_as_before(many: bench.Results) -> None:
    before = many.figure("radar").get_figwidth()
    many.figure("radar", width="column")
    assert many.figure("radar").get_figwidth() == before > 7


def test_widths_that_no_paper_has_are_refused(many: bench.Results) -> None:
    with pytest.raises(bench.UserError, match=r"width: 'colum' should be page or column; did you mean 'column'\?"):
        many.figure("radar", width="colum")
    run = CliRunner().invoke(app, ["report", SUITE, "--results", str(many.folder), "--figures", "paper"])
    assert isinstance(run.exception, bench.UserError)
    assert "--figures: 'paper' should be page or column" in str(run.exception)


def test_a_report_has_figures_for_a_column_if_it_is_asked_for_them(tmp_path: Path) -> None:
    stores.write_store(tmp_path, methods=stores.METHODS[:3], seeds=(0,), curve=(), diagnostics=False)
    results = bench.Results(tmp_path)
    folder = results.report(SUITE, widths=("column",)).parent / "figures"
    names = {path.name for path in folder.iterdir()}
    assert names == {f"{name}{end}" for name in ("noise", "cost") for end in (".png", ".pdf", "-column.pdf")}
    assert {path.name for path in results.report(SUITE).with_name("figures").iterdir()} == {
        name for name in names if not name.endswith("-column.pdf")
    }


def test_a_report_says_which_figures_have_no_room_in_a_column(many: bench.Results) -> None:
    run = CliRunner().invoke(app, ["report", SUITE, "--results", str(many.folder), "--figures", "column"])
    assert run.exit_code == 0, run.output
    said = "not legible in a column (3.3 inches wide and at most 9 high), so not drawn: "
    (line,) = [line for line in run.stdout.splitlines() if line.startswith(said)]
    left_out = set(line.removeprefix(said).split(", "))
    assert left_out >= PAGE_ALONE
    assert not left_out & EVERYWHERE
    there = {path.name for path in (many.folder / SUITE / "figures").glob("*.pdf")}
    assert {f"{name}.pdf" for name in left_out} <= there, "as wide as a page they stay"
    assert not {f"{name}-column.pdf" for name in left_out} & there
