"""docs/papers.md has a line for every table and figure that the five papers print, and names what there is."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import bench
from bench.cli import app
from bench.resources import published_folder
from bench.store import Record, RunStore
from bench.suite.suite import load_suite
from reports.figures.figure_registry import FIGURES
from reports.figures.radar import _axes, radar
from reports.papers.layouts import PAPERS
from reports.results import Results, RunResult

ROOT = Path(bench.__file__).parents[1]
OTHERS = {"similarities", "diagnostics"}  #: figures that are not of `FIGURES`; the last is of a row
Line = dict[str, str]


@cache
def printed() -> dict[str, dict[str, str]]:
    return dict(yaml.safe_load((published_folder() / "printed.yaml").read_text()))


@cache
def page() -> dict[str, list[Line]]:
    """Paper -> lines of its table on the page."""
    sections = re.split(r"^## (\w+)$", (ROOT / "docs" / "papers.md").read_text(), flags=re.M)[1:]
    lines: dict[str, list[Line]] = {}
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row[:1] == "|"]
        lines[name] = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
    return lines


ALL = [pytest.param(paper, line, id=f"{paper}, {line['printed']}") for paper, lines in page().items() for line in lines]


@pytest.mark.promise("every printed table and figure of the papers has a line that says what fills it")
def test_every_printed_table_and_figure_has_one_line() -> None:
    assert {paper: [line["printed"] for line in lines] for paper, lines in page().items()} == {
        paper: list(entries) for paper, entries in printed().items()
    }
    for paper, lines in page().items():
        assert [line["subject"] for line in lines] == list(printed()[paper].values())


def test_every_table_with_numbers_is_printed() -> None:
    for name in printed():
        tables = {f"Table {one.number}" for one in PAPERS[name].layouts if not one.number.startswith("text")}
        assert tables == {one for one in printed()[name] if one.startswith("Table")}


@pytest.mark.parametrize(("paper", "line"), ALL)
def test_a_line_names_what_there_is(paper: str, line: Line) -> None:
    state, _, reason = line["state"].partition(": ")
    assert state in ("filled", "in part", "not filled")
    assert bool(reason) == (state != "filled"), "what is not filled says why"
    named = re.findall("`([^`]+)`", line["filled by"])
    assert bool(named) == (state != "not filled")
    suites = [one for one in named if one.startswith("suites/")]
    for one in named:
        if one.startswith("suites/"):
            assert (ROOT / one).is_file(), one
        else:
            assert_is_a_command(one)
    for file in re.findall("`([^`]+)`", line["in the report"]):
        kind, _, name = file.partition("/")
        assert suites, "a report is of a suite"
        if kind == "figures":
            assert name in {*FIGURES, *OTHERS}, file
        else:
            number = line["printed"].removeprefix("Table ")
            assert (kind, name) == ("tables", f"paper_{paper}_{number}".replace(".", "_"))
            tables = [load_suite(ROOT / one, check_methods=False).tables for one in suites]
            assert all(any(one.paper == paper and number in one.numbers for one in papers) for papers in tables)


def assert_is_a_command(words: str) -> None:
    """Fail unless `bench VERB --OPTION` is a command with these options."""
    program, *parts = words.split()
    assert program == "bench"
    command: Any = typer.main.get_command(app)
    while parts and hasattr(command, "commands"):  # a group; typer may bring a click of its own
        assert parts[0] in command.commands, words
        command = command.commands[parts.pop(0)]
    options = {name for parameter in command.params for name in parameter.opts}
    assert {part for part in parts if part.startswith("--")} <= options, words


def test_a_radar_has_the_axes_of_the_papers_figure_where_a_suite_has_those_data_sets() -> None:
    chance = {f"zero_shot/class/top{k}": 0.001 * k for k in (1, 5)}
    probes = {"adamw_probe/class/accuracy": 0.1, "linear_probe/class/accuracy": 0.1}
    datasets = {
        "imagenet1k": {"chance": {**chance, **probes}},
        "imagenetv2": {"chance": {name.replace("zero_shot", "shift"): value for name, value in chance.items()}},
        "svhn": {"chance": probes},
        "flickr30k": {"chance": {"retrieval/mean_recall": 0.01}},
    }
    plan = {"datasets": datasets, "noises": [], "tables": {"paper": "bayes_weighted_cl"}}
    names = [name.replace("\n", " ") for name, _ in _axes(Results(plan, ()))]
    assert names == [
        "imagenet1k class top-1",
        "imagenet1k class top-5",
        "imagenetv2 class top-1",
        "imagenetv2 class top-5",
        "imagenet1k class AdamW probe",
        "svhn class AdamW probe",
    ]
    others = [name for name, _ in _axes(Results({**plan, "tables": None}, ()))]
    assert "imagenet1k\nclass top-5" not in others
    assert any(name.startswith("flickr30k") for name in others)


def test_names_of_many_axes_do_not_cover_each_other() -> None:
    sets = [f"set number {place}" for place in range(15)]
    entry = {"label": "clip", "score": "cosine", "fidelity": "derived", "method": "clip", "title": "CLIP", "keep": None}
    plan = {
        "datasets": {name: {"chance": {}} for name in sets},
        "tables": None,
        "methods": [entry],
        "baseline": "clip",
        "noises": [{"label": "clean", "kind": None, "rate": 0.0, "towers": ""}],
        "primary": {"dataset": sets[0], "task": "linear_probe", "metric": "accuracy"},
    }
    task, metric = "linear_probe", "accuracy"
    measured = [Record("r", 1.0, name, task, metric, "", 0.5, 9, 0.4, 0.6, True, "1", checkpoint="") for name in sets]
    records = {(1.0, one.dataset, task, metric, ""): one for one in measured}
    run = RunResult("clip", "clean", 0, "r", 1, None, {"state": "done"}, records, {}, {}, RunStore(Path("r")))
    picture = radar(Results(plan, (run,)))
    assert [text.get_text() for text in picture.figure.axes[0].texts] == [str(k + 1) for k in range(len(sets))]
    assert [text.get_text().split(",")[0] for text in picture.figure.texts] == [
        f"{place}  {name}" for place, name in enumerate(sets, start=1)
    ]
