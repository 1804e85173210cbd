"""Figures of a suite whose rows differ in the share of the pairs, beside the weights that they begin with."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from bench.store import Store
from reports.build import figure_of
from reports.figures.diagnostics import before_after
from reports.figures.figure_style import PAPER, look
from reports.figures.subset_curves import _groups, shares
from reports.results import Results, load
from reports.tables.footnotes import context
from reports.tables.suite_tables import cost

from . import stores

SUITE = "emoji_noisy"
TOTAL = 4500


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """CLIP as it begins, two shares of NCU and the whole, and a row of another choice."""
    methods = (
        ("clip", "CLIP", 0.9, "cosine"),
        ("ncu a", "NCU", 0.95, "cosine"),
        ("ncu b", "NCU", 1.05, "cosine"),
        ("ncu", "NCU", 1.15, "cosine"),
        ("scored", "NCU", 1.0, "cosine"),
    )
    root = tmp_path_factory.mktemp("parts")
    store = stores.write_store(root, methods=methods, rates=(0.0,), curve=())
    plan = store.plan(SUITE)
    plan["data"]["rows"] = TOTAL
    for entry in plan["methods"]:
        entry |= {"method": "ncu", "start": "clip.pt", "reference": None, "lr": 1e-3}
    plan["methods"][0] |= {"method": "clip", "untrained": True}
    kept = {"ncu a": 750, "ncu b": 2250, "scored": 2250}
    for entry in plan["methods"]:
        if entry["label"] in kept:
            kind = "score 0.5" if entry["label"] == "scored" else f"random {kept[entry['label']] / TOTAL:g}"
            entry["keep"] = {"label": kind, "about": "a share of the pairs", "uses": "", "rule": "passes"}
    for cell in plan["cells"]:
        cell["kept_rows"] = kept.get(cell["method"])
    store.write_plan(SUITE, plan)
    return store


@pytest.fixture(scope="module")
def results(parts: Store) -> Results:
    return load(SUITE, parts)


def test_rows_that_differ_in_their_share_alone_are_one_line(results: Results) -> None:
    assert _groups(results) == [["ncu a", "ncu b", "ncu"], ["scored", "ncu"]]
    with look():
        picture = shares(results)
    panel = picture.figure.axes[0]
    drawn = panel.lines[0]
    assert drawn.get_xdata() == pytest.approx([100 * 750 / TOTAL, 50, 100])
    primary = results.plan["primary"]
    for label, y in zip(("ncu a", "ncu b", "ncu"), drawn.get_ydata(), strict=True):
        runs = results.of(label, next(iter(results.noises)))
        values = [run.find(*(primary[key] for key in ("dataset", "task", "metric")), "cosine").value for run in runs]
        assert y == pytest.approx(100 * sum(values) / len(values))
    start = [line for line in panel.lines if len(set(line.get_ydata())) == 1]
    assert len(start) == 1, "the weights that the rows begin with are a level line"


def test_without_shares_there_is_no_such_figure(three: Store) -> None:
    assert shares(load(SUITE, three)) is None
    assert before_after(load(SUITE, three)) is None


def test_the_start_is_above_the_rows_that_begin_there(results: Results) -> None:
    with look():
        picture = before_after(results)
    panel = picture.figure.axes[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["CLIP", "NCU a", "NCU b", "NCU", "scored"]
    assert len(panel.collections) == 3
    assert all(len(drawn.get_paths()) == 5 for drawn in panel.collections)
    assert "before and after training" in picture.caption


@pytest.mark.parametrize("width", PAPER)
def test_they_fit_a_paper(results: Results, width: str) -> None:
    for name in ("shares", "before_after"):
        assert figure_of(results, name, width=width).get_figwidth() == pytest.approx(PAPER[width].width)


def test_a_row_that_spends_nothing_is_said_and_divides_nothing(parts: Store) -> None:
    free = load(SUITE, parts)
    assert free.baseline == "clip"
    for run in free.of("clip", next(iter(free.noises))):
        run.ledger["flops"] = 0
    table = cost(free)
    (place,) = [i for i, column in enumerate(table.columns) if column.name == "relative cost"]
    assert {row.cells[place].state for row in table.rows if row.method} == {"not applicable"}
    assert any(note.startswith("CLIP: not trained here: the row measures") for note in context(free))


def test_no_word_is_cut_off_on_a_narrow_screen(results: Results) -> None:
    figure = figure_of(results, "before_after")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for legend in figure.legends:
        box = legend.get_window_extent(canvas.get_renderer())
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
