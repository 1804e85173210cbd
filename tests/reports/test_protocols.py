"""Runs are shared between suites of different evaluation protocols: each report shows the numbers of its own alone."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.errors import UserError
from bench.store import Store, writing
from bench.store.histograms import store_diagnostics
from methods.protocol import Diagnostic
from reports.build import build
from reports.compare import compare
from reports.figures.figure_registry import FIGURES, draw_all
from reports.figures.histograms import SIMILAR, read
from reports.figures.scores import against_cost
from reports.results import Results, load
from reports.statistics.contrasts import headline_contrasts
from reports.status import status
from reports.tables.csv import records_csv
from reports.tables.suite_tables import tables

from . import stores

SUITE, OTHER = "emoji_noisy", "emoji_nuclr"
METHODS = (("clip", "CLIP", 1.0, "cosine"), ("sogclr", "SogCLR", 1.15, "cosine"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two plans over the same runs. All are measured under "1"; zero-shot of clip alone under "nuclr-1", lower by 0.1.

    The order of keys is such that "nuclr-1" is read last.
    """
    store: Store = stores.write_store(tmp_path, methods=METHODS, rates=(0.4,))
    plan = store.plan(SUITE)
    keys = ["vnuclr-1.zero_shot", "vnuclr-1.retrieval"]
    cells = [{**cell, "evaluations": keys} for cell in plan["cells"]]
    store.write_plan(OTHER, {**plan, "suite": OTHER, "protocol": "nuclr-1", "cells": cells})
    for cell in cells:
        run = store.run(cell["run"])
        if cell["method"] == "clip":
            moved = [
                replace(one, value=one.value - 0.1, protocol="nuclr-1")
                for one in run.records()
                if one.task == "zero_shot/concept"
            ]
            with writing(run) as out:
                out.write_records(keys[0], moved, {})
                if cell["seed"] == 0:
                    out.write_records(keys[1], [], {})
    return store


def mean(store: Store, suite: str, method: str) -> float | str | None:
    """The primary number in the overview."""
    table = tables(load(suite, store))[0]
    (cell,) = [row.cells[0] for row in table.rows if row.method == method]
    return cell.value if cell.state == "value" else cell.state


@pytest.mark.promise("a report shows the numbers of its suite's evaluation protocol alone")
def test_each_suite_shows_the_numbers_of_its_own_protocol(store: Store) -> None:
    own = mean(store, SUITE, "clip")
    assert isinstance(own, float)
    assert mean(store, OTHER, "clip") == pytest.approx(own - 0.1)
    assert isinstance(mean(store, SUITE, "sogclr"), float)
    assert mean(store, OTHER, "sogclr") == "missing"
    for suite, protocol in ((SUITE, "1"), (OTHER, "nuclr-1")):
        lines = list(csv.DictReader(io.StringIO(records_csv(load(suite, store)))))
        assert {line["protocol"] for line in lines} == {protocol}


def test_a_footnote_says_under_which_protocol_a_missing_number_is_stored(store: Store) -> None:
    made = {table.name: table for table in tables(load(OTHER, store))}
    (note,) = [note for note in made["overview"].footnotes if "protocol" in note]
    assert note.startswith("Missing under this suite's evaluation protocol, nuclr 1, but stored under common 1")
    assert "emoji/iid zero_shot/concept (3)" in note, "sogclr's three runs"
    assert "emoji/iid retrieval (6)" in note
    assert f"`bench run {OTHER}`" in note
    assert note in made["cost"].footnotes
    assert not [
        note for table in tables(load(SUITE, store)) for note in table.footnotes if "evaluation protocol" in note
    ]


def test_a_higher_version_of_the_protocol_makes_old_numbers_missing(store: Store) -> None:
    plan = store.plan(SUITE)
    store.write_plan(SUITE, {**plan, "protocol": "2"})
    assert mean(store, SUITE, "clip") == "missing"
    notes = [note for note in tables(load(SUITE, store))[0].footnotes if "evaluation protocol" in note]
    assert [note.partition(":")[0] for note in notes] == [
        "Missing under this suite's evaluation protocol, common 2, but stored under common 1 (number of runs in "
        "parentheses)",
        "Missing under this suite's evaluation protocol, common 2, but stored under nuclr 1 (number of runs in "
        "parentheses)",
    ]
    assert not any(draw_all(load(SUITE, store), {}, FIGURES).values())


def test_compare_wins_and_curves_take_one_protocol(store: Store) -> None:
    text = compare(OTHER, store, "sogclr", "clip").text()
    assert "they have no seed in common yet" in text
    assert "note: Missing under this suite's evaluation protocol, nuclr 1, but stored under common 1" in text
    assert "note: Missing" not in compare(SUITE, store, "sogclr", "clip").text()
    assert not any(len(one.values) > 1 for one in headline_contrasts(load(OTHER, store)))
    assert any(len(one.values) > 1 for one in headline_contrasts(load(SUITE, store)))
    curve = against_cost(load(OTHER, store))
    assert curve is not None
    points = {key[0] for run in load(OTHER, store).runs for key in run.records}
    assert points == {0.25, 0.5, 0.75, 1.0}
    assert all(run.method == "clip" for run in load(OTHER, store).runs if run.records)


def test_status_says_which_finished_runs_lack_evaluations_of_the_suite(store: Store) -> None:
    assert {line[3] for line in status(SUITE, store)[1:7]} == {"done"}
    lines = {(line[0], line[2]): line for line in status(OTHER, store)[1:7]}
    assert lines["clip", "0"][3] == "done"
    assert lines["clip", "1"][3:5] == ("trained", "600/600")
    assert lines["clip", "1"][6].startswith("1 evaluations of this suite are not stored")
    assert lines["sogclr", "0"][6].startswith("2 evaluations")
    assert load(OTHER, store).states()["trained"] == 5
    assert len(build(OTHER, store).missing) == 5
    assert build(SUITE, store).missing == ()
    assert "trained" in (store.suite(OTHER) / "report.html").read_text()


def test_diagnostics_of_another_protocol_are_not_drawn(store: Store) -> None:
    def drawn(results: Results) -> bool:
        return draw_all(results, read(results), [SIMILAR])[SIMILAR] is not None

    other = load(OTHER, store)
    assert drawn(load(SUITE, store))
    assert not drawn(other)
    run = next(run for run in other.runs if run.method == "clip")
    pairs = {"positive": torch.linspace(0, 1, 50), "negative": torch.linspace(-1, 0, 50)}
    found = [Diagnostic("similarity", "cosine similarity", "cosine similarity", pairs)]
    with writing(run.stored) as out:
        store_diagnostics(out, "evaluation", found, "nuclr-1")
    assert drawn(other)
    with writing(run.stored) as out:
        store_diagnostics(out, "evaluation", found, "1")
    labels = [one["protocol"] for one in run.stored.diagnostics() if one["source"] == "evaluation"]
    assert sorted(labels) == ["1", "nuclr-1"], "both stand, each once"


def test_a_plan_that_does_not_say_its_protocol_is_refused(store: Store) -> None:
    plan = store.plan(SUITE)
    del plan["protocol"]
    store.write_plan(SUITE, plan)
    with pytest.raises(UserError, match=r"plan.json: protocol: is missing; delete it, and `bench run emoji_noisy"):
        load(SUITE, store)
