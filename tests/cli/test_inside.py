"""`bench inspect` on two tiny real runs, and the figures that a report draws of what it writes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from matplotlib.backends.backend_agg import FigureCanvasAgg
from safetensors.numpy import load_file
from typer.testing import CliRunner

from bench import data
from bench.cli import app
from bench.console import progress
from bench.errors import UserError
from bench.evaluation.embedding_map import map_rows, place_in_plane
from bench.launch.launchers.local import run_all
from bench.planning import plan_file
from bench.planning.planner import Planner
from bench.store import Store
from bench.suite.suite import load_suite
from reports.build import figure_of
from reports.figures.figure_style import Sheet
from reports.figures.lines import beside
from reports.results import load

SUITE = """\
name: inside
noise: {rates: [0.4]}
budget: {samples: 48}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot, validation], curve: [0.5], along: [validation]}
methods: [clip, nuclr]
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inside")
    (folder / "inside.yaml").write_text(SUITE)
    suite, store = load_suite(folder / "inside.yaml"), Store(folder / "out")
    with progress.progress_on() as shown:
        summary = run_all(plan_file.write_plan(suite, {}, Planner(store)), store, shown)
    assert len(summary.done) == 2
    return folder


def bench(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--results", str(folder / "out")], catch_exceptions=False)


def run_of(folder: Path, label: str) -> str:
    (identity,) = (run.id for run in Store(folder / "out").runs() if run.settings()["label"] == label)
    return identity


def map_of(folder: Path, label: str) -> list[dict[str, str]]:
    with (folder / "out" / "inside" / "maps" / f"{run_of(folder, label)[:16]}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def mapped(done: Path) -> str:
    result = bench(done, "inspect", "embeddings", str(done / "inside.yaml"), "--count", "40")
    assert result.exit_code == 0
    return result.stdout


def test_a_map_has_the_same_pairs_for_every_run_and_knows_the_corrupted_ones(done: Path, mapped: str) -> None:
    one, other = map_of(done, "clip"), map_of(done, "nuclr")
    assert [row["key"] for row in one] == [row["key"] for row in other]
    assert len(one) == 40
    manifest = pq.read_table(Store(done / "out").run(run_of(done, "clip")).path("noise.parquet"))
    wrong = set(manifest["key"].to_pylist())
    assert [int(row["corrupted"]) for row in one] == [int(row["key"] in wrong) for row in one]
    assert 0 < sum(int(row["corrupted"]) for row in one) < 40
    assert "draw them with: bench report" in mapped


@pytest.mark.usefixtures("mapped")
def test_the_report_draws_the_baseline_beside_the_method(done: Path) -> None:
    results = load("inside", Store(done / "out"))
    figure = figure_of(results, "embeddings")
    assert [axes.get_title() for axes in figure.axes] == ["clip", "nuclr"]
    image = figure.axes[0].lines[0]  # the matched images
    wanted = [[float(row["image_x"]), float(row["image_y"])] for row in map_of(done, "clip") if row["corrupted"] == "0"]
    assert np.array(image.get_xydata()) == pytest.approx(np.array(wanted))
    narrow = figure_of(results, "embeddings", width="column")
    assert narrow.get_figwidth() == pytest.approx(3.3)
    canvas = FigureCanvasAgg(narrow)
    canvas.draw()
    (legend,) = narrow.legends
    box = legend.get_window_extent(canvas.get_renderer())
    assert 0 <= box.x0 < box.x1 <= narrow.bbox.x1


def test_the_map_depends_on_the_seed_alone() -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 6))
    assert np.array_equal(place_in_plane(vectors, 1), place_in_plane(vectors, 1))
    pairs = data.load_dataset("emoji/iid", 32)
    assert set(map_rows(pairs, 10)) <= set(map_rows(pairs, 20))


def test_what_has_no_map_is_refused_in_a_line(done: Path) -> None:
    suite = str(done / "inside.yaml")
    for arguments, message in (
        (("nucl",), "'nucl' is not a label of suite inside; did you mean 'nuclr'"),
        (("clip", "--noise", "40 %"), "--noise 40 %: suite inside has 40 % shuffled captions"),
    ):
        result = CliRunner().invoke(app, ["inspect", "embeddings", suite, *arguments, "--results", str(done / "out")])
        assert isinstance(result.exception, UserError)
        assert message in str(result.exception)


def test_a_number_that_no_generator_takes_is_refused(done: Path) -> None:
    arguments = ["inspect", "embeddings", "inside.yaml", "--seed", str(2**32), "--results", str(done / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Invalid value for '--seed'" in result.output


def test_the_ends_of_a_state_are_its_smallest_and_largest_values(done: Path, tmp_path: Path) -> None:
    run, page, table = run_of(done, "nuclr"), tmp_path / "page.html", tmp_path / "rows.csv"
    result = bench(
        done, "inspect", "state", run[:12], "log_u_text", "--count", "3", "--html", str(page), "--csv", str(table)
    )
    values = load_file(Store(done / "out").run(run).path("weights-100.safetensors"))["method.log_u_text"]
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = data.load_dataset("emoji/train", 32)
    assert [row["key"] for row in rows] == list(pairs.keys)
    assert [float(row["log_u_text"]) for row in rows] == pytest.approx(values.tolist())
    lowest = pairs.keys[int(np.argsort(values, kind="stable")[0])]
    assert lowest in result.stdout.split("largest")[0]
    assert page.read_text().count("<img") == 6


def test_a_state_that_is_not_there_is_refused_with_those_that_are(done: Path) -> None:
    told = (
        ("clip", "clip keeps no state of single pairs"),
        ("nuclr", "it has .*zeta_image, .*did you mean 'zeta_image'"),
    )
    for label, message in told:
        arguments = ["inspect", "state", run_of(done, label)[:12], "zeta_imag", "--results", str(done / "out")]
        with pytest.raises(UserError, match=message):
            CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_what_is_asked_for_along_the_run_is_measured_and_drawn(done: Path) -> None:
    for run in Store(done / "out").runs():
        assert {(one.at, one.task) for one in run.records() if one.at < 1} == {(0.5, "validation")}
    results = load("inside", Store(done / "out"))
    figure = figure_of(results, "course")
    panel = figure.axes[0]
    assert panel.get_xlabel() == "budget, epochs of CLIP"
    epochs = 3 / (results.plan["data"]["rows"] // 16)
    assert panel.get_ylabel() == "emoji validation mean R@1, %"
    panel.set_ylabel(
        beside(Sheet((), 1, 3.8, 3.4, (0.75, 1.5, 0.5, 0.3)), "mscoco_captions/validation of a long name mean R@1, %")
    )
    FigureCanvasAgg(figure).draw()
    box = panel.yaxis.label.get_window_extent()
    assert 0 <= box.y0 < box.y1 <= figure.bbox.y1, "a long name is broken, not cut off"
    for line, label in zip(panel.lines, ("clip", "nuclr"), strict=True):
        (run,) = results.of(label, next(iter(results.noises)))
        scores = [run.find("emoji/validation", "validation", "mean_r1", "cosine", at).value for at in (0.5, 1.0)]
        assert line.get_xdata() == pytest.approx([epochs / 2, epochs])
        assert line.get_ydata() == pytest.approx([100 * score for score in scores])
    assert figure_of(results, "course", width="column").get_figwidth() == pytest.approx(3.3)


def test_what_is_measured_along_is_among_the_tasks(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text(SUITE)
    with pytest.raises(UserError, match=r"along.*'retrieval' is not among evaluate.tasks"):
        load_suite(tmp_path / "odd.yaml", ["evaluate.along=[retrieval]"])
    with pytest.raises(UserError, match=r"along.*evaluate.curve has no points"):
        load_suite(tmp_path / "odd.yaml", ["evaluate.curve=[]"])
