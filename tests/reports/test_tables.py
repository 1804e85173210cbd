"""Cells say what the store holds, and what it does not."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench import resources
from bench.console.text import csv_text
from bench.errors import UserError
from bench.planning.plan_file import plan_outline
from bench.store import Store, writing
from bench.store.files import write_json
from bench.suite.suite import load_suite
from reports.pages.html import page
from reports.papers.ours_vs_printed import paper_tables
from reports.results import Results, load
from reports.statistics.contrasts import headline_contrasts
from reports.statistics.paired import mean
from reports.tables import footnotes
from reports.tables.csv import records_csv, records_frame, table_csv, table_frame
from reports.tables.latex import table_latex
from reports.tables.suite_tables import paper_table, tables
from reports.tables.table import Cell, Column, Row, Table, show, words
from reports.tables.text import table_text

from . import stores

SUITE = "emoji_noisy"


def by_name(store: Store) -> dict[str, Table]:
    return {table.name: table for table in tables(load(SUITE, store))}


def row_of(table: Table, label: str, noise: str) -> Row:
    (found,) = [row for row in table.rows if (row.label, row.group) == (label, noise)]
    return found


def cell_of(table: Table, label: str, noise: str, column: int = 0) -> Cell:
    return row_of(table, label, noise).cells[column]


CLEAN, NOISY = "0 % shuffled captions", "40 % shuffled captions"


def test_a_cell_is_the_mean_of_its_runs_records(three: Store) -> None:
    results = load(SUITE, three)
    cell = cell_of(by_name(three)["zero_shot"], "clip", NOISY)
    values = [run.find("emoji/iid", "zero_shot/concept", "top1", "cosine").value for run in results.of("clip", NOISY)]
    assert cell.value == pytest.approx(mean(values))
    assert cell.n == 3
    assert cell.runs == tuple(run.run for run in results.of("clip", NOISY))
    assert cell.measured[0].low == pytest.approx(values[0] - 0.03)


def test_a_number_that_a_measured_task_does_not_have_is_not_applicable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A targeted attack has no trigger; a run that was not measured lacks all numbers of the task."""
    measures = (("emoji/iid", "attack_success/concept", ("attack_success", "clean_accuracy"), 0.3),)
    monkeypatch.setitem(stores.write_store.__globals__, "MEASURES", measures)
    states = {("siglip", 0.4, 0): "missing"}
    store = stores.write_store(tmp_path, methods=stores.METHODS[:2], curve=(), states=states, seeds=(0,))
    plan = store.plan(SUITE)
    plan["datasets"]["emoji/iid"]["chance"]["attack_success/concept/without_trigger"] = 0.01
    store.write_plan(SUITE, plan)
    table = by_name(store)["attack_success"]
    place = {column.label: number for number, column in enumerate(table.columns)}
    assert cell_of(table, "clip", NOISY, place["attack"]).value is not None
    assert cell_of(table, "clip", NOISY, place["no trigger"]).state == "not applicable"
    assert cell_of(table, "siglip", NOISY, place["no trigger"]).state == "missing"
    plan["primary"] = {"dataset": "emoji/iid", "task": "attack_success/concept", "metric": "attack_success"}
    store.write_plan(SUITE, plan)
    noises = [one.noise for one in headline_contrasts(load(SUITE, store))]
    assert noises == [NOISY], "without poison there is no such number, and the report says nothing of it"


def test_every_family_has_its_table_and_every_column_its_own_name(three: Store) -> None:
    found = by_name(three)
    assert list(found) == [
        "overview",
        "differences",
        "kept",
        "resolution",
        "zero_shot",
        "shift",
        "linear_probe",
        "retrieval",
        "noise_detection",
        "cost",
    ]
    for table in found.values():
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names)
        assert all(len(row.cells) == len(names) for row in table.rows)
        assert sum(count for _, count in table.heads()) == len(names)
    assert [column.label for column in found["linear_probe"].columns] == ["style", "subgroup", "digit", "accuracy"]


def test_rsum_is_shown_also_of_runs_from_before_it_was_stored(three: Store) -> None:
    table = by_name(three)["retrieval"]
    (column,) = [at for at, one in enumerate(table.columns) if one.name == "emoji/iid retrieval rsum"]
    assert table.columns[column].label == "rSum"
    runs = load(SUITE, three).of("clip", NOISY)
    means = [run.find("emoji/iid", "retrieval", "mean_recall", "cosine") for run in runs]
    cell = cell_of(table, "clip", NOISY, column)
    assert cell.value == pytest.approx(6 * mean([one.value for one in means]))
    assert cell.measured[0].low == pytest.approx(6 * means[0].low)


def test_averages_are_per_run_and_name_what_they_average(three: Store) -> None:
    table = by_name(three)["shift"]
    top1 = [i for i, column in enumerate(table.columns) if column.name.endswith("shift/concept top1")]
    row = row_of(table, "sogclr", NOISY)
    assert row.cells[-1].value == pytest.approx(mean([row.cells[i].value for i in top1]))
    assert "emoji/openmoji-black" in table.columns[-1].description


def test_chance_stands_in_a_row_of_its_own(three: Store) -> None:
    chance = by_name(three)["zero_shot"].rows[-1]
    assert chance.label == "chance"
    assert chance.cells[0].value == pytest.approx(stores.CHANCE)
    assert chance.cells[1].value == pytest.approx(5 * stores.CHANCE)  # top-5
    overview = by_name(three)["overview"]
    assert words(overview.rows[-1].cells[-1], overview.columns[-1]) == ("–", "")  # of a cost there is no chance


def test_what_cannot_be_measured_under_a_noise_has_no_rows_there(three: Store) -> None:
    found = by_name(three)["noise_detection"]
    assert {row.group for row in found.rows if row.method} == {NOISY}
    assert f"Not under {CLEAN}: there is nothing of this kind to measure." in found.footnotes
    assert not any("nothing of this kind" in note for note in by_name(three)["zero_shot"].footnotes)
    (chance,) = [note for note in found.footnotes if note.startswith("The average precision of a random guess")]
    rates = [run.manifest["realised_rate"] for run in load("emoji_noisy", three).runs if run.noise == NOISY]
    assert chance.endswith(f"({NOISY}: {100 * mean(rates):.1f} %).")


def test_lines_of_another_score_say_why_they_are_never_bold(three: Store) -> None:
    found = by_name(three)["zero_shot"]
    (note,) = [note for note in found.footnotes if note.startswith("A row such as")]
    label = note.removeprefix("A row such as ").partition(" reads")[0]
    assert [row.compared for row in found.rows if row.label == label] == [False, False]
    assert not any("A row such as" in note for note in by_name(three)["overview"].footnotes)


def test_states_are_different_cells(troubled: Store) -> None:
    found = by_name(troubled)["zero_shot"]
    assert cell_of(found, "ncu", NOISY).state == "failed"
    assert cell_of(found, "permutation_0.1", NOISY).state == "missing"
    assert cell_of(found, "siglip", NOISY).state == "interrupted"
    assert cell_of(by_name(troubled)["noise_detection"], "clip", NOISY).state == "value"
    assert len(cell_of(found, "ncu", NOISY).runs) == 3


def test_a_live_run_is_running(tmp_path: Path) -> None:
    methods = stores.METHODS[:2]
    store = stores.write_store(
        tmp_path, methods=methods, rates=(0.0,), seeds=(0,), states={("siglip", 0.0, 0): "missing"}
    )
    run = store.run(stores.plan_cell("siglip", 0.0, 0)["run"])
    with writing(run) as out:
        out.set_status("running", step=5, steps=600, stage="train")
        assert cell_of(by_name(store)["overview"], "siglip", CLEAN).state == "running"
    assert cell_of(by_name(store)["overview"], "siglip", CLEAN).state == "interrupted"


def test_a_cell_with_fewer_seeds_says_so_and_is_not_compared(troubled: Store) -> None:
    table = by_name(troubled)["zero_shot"]
    cell = cell_of(table, "bayes", NOISY)
    assert cell.n == 2
    assert not cell.bold
    assert words(cell, table.columns[0], table.full)[1].endswith("n=2")
    assert [state for _, state in cell.lacking] == ["interrupted"]
    assert "n=" in table.notes


def test_the_paper_layout_has_no_column_of_a_noise_under_which_nothing_can_be_measured(three: Store) -> None:
    results, whole = load(SUITE, three), by_name(three)["overview"]
    shown = [row for row in whole.rows if row.group == NOISY]
    made = paper_table(results, replace(whole, rows=tuple(shown)), [row.label for row in shown])
    assert [column.name for column in made.columns] == [NOISY]
    assert [row.cells[0].value for row in made.rows] == [row.cells[0].value for row in shown]


def test_a_block_of_fewer_seeds_says_so_once(tmp_path: Path) -> None:
    """And not behind each of its numbers; a cell that lacks one of them still does."""
    store = stores.write_store(
        tmp_path, seeds=(0, 1, 2), curve=(), diagnostics=False, states={("ncu", 0.0, 1): "missing"}
    )
    plan = store.plan(SUITE)
    cells = [cell for cell in plan["cells"] if cell["noise"] == NOISY or cell["seed"] < 2]
    store.write_plan(SUITE, {**plan, "cells": cells})
    results = load(SUITE, store)
    (table,) = [table for table in tables(results) if table.name == "overview"]
    page_text = page(results, [table])
    for text in (table_latex(table), table_text(table, 200), page_text):
        plain = text.replace(r"\%", "%")
        assert f"{CLEAN}, n = 2" in plain
        assert f"{NOISY}, n" not in plain
    for row in table.rows:
        said = [words(cell, table.columns[0], table.full_under(row.group))[1] for cell in row.cells if cell.measured]
        assert all(("n=1" in one) == (row.method == "ncu" and row.group == CLEAN) for one in said)


def test_bold_is_within_a_noise_and_knows_the_best(three: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (note,) = [
        note
        for note in by_name(three)["zero_shot"].footnotes
        if note.startswith("Nothing is bold where more than a third")
    ]
    assert f"{NOISY} (" in note
    monkeypatch.setattr("reports.measure.TIED", 1)
    table = by_name(three)["zero_shot"]
    for noise in (CLEAN, NOISY):
        bold = {row.label for row in table.rows if row.group == noise and row.cells[0].bold}
        assert "bayes" in bold
        assert "ncu" not in bold
    assert not row_of(by_name(three)["cost"], "clip", CLEAN).cells[1].bold  # costs are not ranked


def test_with_one_seed_there_is_no_spread_and_nothing_is_bold(one: Store) -> None:
    for table in by_name(one).values():
        cells = [cell for row in table.rows for cell in row.cells]
        assert not any(cell.bold for cell in cells)
        assert all(cell.std is None for cell in cells)
        assert any("n = 1" in note for note in table.footnotes)
        assert any("nothing is bold" in note for note in table.footnotes)


def test_a_second_score_gets_a_line_that_is_not_compared(three: Store) -> None:
    table = by_name(three)["zero_shot"]
    main, other = row_of(table, "prolip (csd)", CLEAN), row_of(table, "prolip (cosine)", CLEAN)
    assert main.compared
    assert not other.compared
    assert main.cells[0].value > other.cells[0].value
    assert not any(cell.bold for cell in other.cells)
    assert row_of(by_name(three)["linear_probe"], "prolip", CLEAN).compared  # no score is involved there
    assert row_of(by_name(three)["overview"], "prolip", CLEAN).cells[0].value == main.cells[0].value


def test_a_second_score_does_not_take_part_in_bold_even_where_it_is_higher(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.measure.TIED", 1)
    results = load(SUITE, three)
    runs = []
    for run in results.runs:
        higher = {
            key: replace(record, value=record.value + 0.3) if (run.method, key[4]) == ("prolip", "cosine") else record
            for key, record in run.records.items()
        }
        runs.append(replace(run, records=higher))
    (table,) = [table for table in tables(Results(results.plan, tuple(runs))) if table.name == "zero_shot"]
    assert cell_of(table, "prolip (cosine)", CLEAN).value > cell_of(table, "bayes", CLEAN).value
    assert not cell_of(table, "prolip (cosine)", CLEAN).bold
    assert cell_of(table, "bayes", CLEAN).bold


def test_footnotes_name_manifests_budget_seeds_and_mixed_environments(troubled: Store, three: Store) -> None:
    plan = troubled.plan(SUITE)
    digest = next(cell["manifest"]["hash"] for cell in plan["cells"] if cell["manifest"])
    for table in by_name(troubled).values():
        text = " ".join(table.footnotes)
        assert digest[:12] in text
        assert "20 epochs" in text
        assert "n = 3 seeds (0, 1, 2)" in text
        assert "torch 2.13.0 / 2.14.1" in text
    assert "Mixed environments" not in " ".join(by_name(three)["overview"].footnotes)


def test_machines_within_a_seed_changed_code_and_added_seeds_are_said(three: Store) -> None:
    results = load(SUITE, three)
    assert not {"Machines", "Added"} & {note.split()[0] for note in footnotes.context(results)}
    elsewhere = {"commit": "1" * 40 + "+", "hardware": {"device": "another CPU"}}
    whole, one = [(NOISY, "clip", 1), (CLEAN, "clip", 2), (CLEAN, "bayes", 2)], []
    for run in results.runs:
        moved = (run.noise, run.method, run.seed) in whole or (run.noise, run.seed) == (CLEAN, 0)
        one.append(replace(run, environment={**run.environment, **elsewhere}) if moved else run)
    said = footnotes.context(Results({**results.plan, "added": [[NOISY, 2], [CLEAN, 2], [NOISY, 1]]}, tuple(one)))
    count = sum(run.environment.get("commit", "").endswith("+") for run in one)
    assert (
        f"Machines mixed within a seed (a CPU and another CPU), so paired differences there are partly due to the "
        f"machines: {CLEAN}, seed 2; {NOISY}, seed 1." in said
    )
    assert (
        f"{count} of {len(one)} runs were made by code with uncommitted changes: {CLEAN}, seeds 0, 2; {NOISY}, seed 1."
        in said
    )
    assert said[-1].endswith(f"not those of one planned analysis: {NOISY}, seeds 2, 1; {CLEAN}, seed 2.")
    assert "commit 0123456789ab / 111111111111+" in " ".join(said)


@pytest.mark.parametrize(("rate", "kept", "said"), [(0.4, 2700, True), (0.4, 2722, True), (0.3, 2700, False)])
def test_a_filter_that_keeps_the_true_share_says_so(three: Store, rate: float, kept: int, said: bool) -> None:
    results = load(SUITE, three)
    keep = {"about": "pairs", "rule": "samples", "scorer": "clip"}
    methods = [{**entry, **({"keep": keep} if entry["label"] == "bayes" else {})} for entry in results.plan["methods"]]
    noises = [{**entry, "rate": rate if entry["rate"] else 0.0} for entry in results.plan["noises"]]
    runs = tuple(replace(run, kept_rows=kept) for run in results.runs)
    (note,) = [
        one
        for one in footnotes.context(Results({**results.plan, "methods": methods, "noises": noises}, runs))
        if one.startswith("Bayesian weights: trained on")
    ]
    assert (f"the true share of clean pairs under {NOISY}, which no method knows." in note) == said


def test_runs_of_different_versions_of_the_runner_are_said(tmp_path: Path) -> None:
    store = stores.write_store(tmp_path, methods=stores.METHODS[:2], rates=(0.0,), seeds=(0,), diagnostics=False)
    for version, cell in enumerate(store.plan(SUITE)["cells"], start=1):
        assert "Mixed versions" not in " ".join(by_name(store)["overview"].footnotes)
        write_json(store.run(cell["run"]).path("settings.json"), {"training_version": version})
    said = "Mixed versions of the runner (1 runs of training version 1, 1 runs of training version 2), so differences"
    for table in by_name(store).values():
        assert said in " ".join(table.footnotes)


def test_data_differs_among_the_runs_of_the_same_towers_alone(three: Store) -> None:
    """Stored texts are data of the towers that read them, and towers are not compared with each other."""
    results = load(SUITE, three)
    blocks = results.plan["noises"]
    assert len(blocks) > 1
    hashes = {block["label"]: str(number) for number, block in enumerate(blocks)}
    runs = tuple(
        replace(run, records={key: replace(one, data=hashes[run.noise]) for key, one in run.records.items()})
        for run in results.runs
    )
    assert Results(results.plan, runs).mixed
    apart = [{**block, "towers": block["label"]} for block in blocks]
    assert not Results({**results.plan, "noises": apart}, runs).mixed


def test_numbers_of_different_data_are_said_and_not_compared(three: Store) -> None:
    results = load(SUITE, three)
    column = ("emoji/iid", "linear_probe/subgroup")

    def measured_on(data: dict[int, str]) -> dict[str, Table]:
        """Every run's records of the column, measured on the data of its seed."""
        runs = []
        for run in results.runs:
            of = data.get(run.seed, "")
            found = {k: replace(r, data=of) if k[1:3] == column else r for k, r in run.records.items()}
            runs.append(replace(run, records=found))
        return {table.name: table for table in tables(Results(results.plan, tuple(runs)))}

    def bold(found: dict[str, Table]) -> dict[str, bool]:
        table = found["linear_probe"]
        places = enumerate(one.name for one in table.columns)
        return {name: any(row.cells[place].bold for row in table.rows) for place, name in places}

    same, mixed = measured_on({0: "a" * 16, 1: "a" * 16}), measured_on({0: "a" * 16, 1: "b" * 16})
    said = "emoji/iid linear_probe/subgroup: runs were measured on different data (aaaaaaaaaaaa in 14 runs, bbbb"
    assert said in " ".join(mixed["linear_probe"].footnotes)
    assert not any("different data" in note for table in same.values() for note in table.footnotes)
    assert all(bold(same).values())
    lost = {name for name, is_bold in bold(mixed).items() if not is_bold}
    assert lost == {"emoji/iid linear_probe/subgroup accuracy", "average linear_probe"}


def test_over_budget_is_marked_wherever_the_run_counts(troubled: Store) -> None:
    for table in by_name(troubled).values():
        if table.name != "resolution":  # its rows are no method's
            assert "†" in table.notes
            assert all(cell.over_budget for cell in row_of(table, "sogclr", NOISY).cells)
            for label in ("bayes", *(["clip"] if table.name != "differences" else [])):
                assert not any(cell.over_budget for cell in row_of(table, label, NOISY).cells)


def test_an_unverified_method_is_marked_in_every_table_and_kind_of_file(three: Store) -> None:
    results = load(SUITE, three)
    entries = [
        {**e, "fidelity": "reconstructed" if e["label"] == "ncu" else "derived"} for e in results.plan["methods"]
    ]
    results = Results({**results.plan, "methods": entries}, results.runs)
    of_methods = [table for table in tables(results) if table.name != "resolution"]
    for table in of_methods:
        assert {row.method for row in table.rows if row.mark} == {"ncu"}
        assert "not verified" in table.notes["‡"]
        latex = table_latex(table)
        assert r"ncu$^\ddagger$ &" in latex
        assert r"$^\ddagger$ not verified" in latex
        for line in csv.DictReader(io.StringIO(table_csv(table))):
            wanted = "" if line["row"] == "chance" else "derived"
            assert line["fidelity"] == ("reconstructed (not verified)" if line["row"] == "ncu" else wanted)
    text = page(results, tables(results))
    rows_of_it = [row for table in of_methods for row in table.rows if row.method == "ncu"]
    assert len(rows_of_it) == 2 * len(of_methods) - 2, "noise is found, and something kept, under one of two"
    assert len(re.findall(r"</span>NCU‡</th>", text)) == len(rows_of_it)
    assert "‡ not verified" in text
    records = csv.DictReader(io.StringIO(records_csv(results)))
    assert {line["fidelity"] for line in records if line["label"] == "ncu"} == {"reconstructed"}


def test_costs_include_the_reference_run(three: Store) -> None:
    table = by_name(three)["cost"]
    places = {column.name: place for place, column in enumerate(table.columns)}
    clip, ncu = row_of(table, "clip", CLEAN), row_of(table, "ncu", CLEAN)
    assert ncu.cells[places["samples"]].value == 2 * clip.cells[places["samples"]].value
    assert ncu.cells[places["peak_memory_bytes"]].value == clip.cells[places["peak_memory_bytes"]].value
    assert ncu.cells[places["relative cost"]].value == pytest.approx(2 * 0.9, rel=1e-6)


def test_before_any_run_the_tables_stand_with_missing_cells(tmp_path: Path) -> None:
    states = {
        (label, rate, seed): "missing" for label, *_ in stores.METHODS for rate in (0.0, 0.4) for seed in (0, 1, 2)
    }
    found = by_name(stores.write_store(tmp_path, states=states))
    assert len(found) == 7
    assert {cell.state for row in found["shift"].rows if row.method for cell in row.cells} == {"missing"}
    assert "no column has two methods" in " ".join(found["shift"].footnotes)


def test_an_unknown_task_gets_a_table_too(three: Store) -> None:
    results = load(SUITE, three)
    run = results.runs[0]
    record = replace(
        next(iter(run.records.values())), at=1.0, dataset="x", task="inclusion", metric="auc_roc", score=""
    )
    more = {**run.records, (1.0, "x", "inclusion", "auc_roc", ""): record}
    changed = Results(results.plan, (replace(run, records=more), *results.runs[1:]))
    (table,) = [table for table in tables(changed) if table.name.endswith("-inclusion")]
    assert table.columns[0].label == "auc roc"
    assert cell_of(table, "clip", CLEAN).n == 1


def test_a_suite_without_a_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere/plan\.json: no plan; .*run the suite, by its name or file, first"):
        load("nowhere", Store(tmp_path))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.2464, "percent", "24.6"),
        (0.0, "percent", "0.0"),
        (1.0, "percent", "100.0"),
        (0.10, "percent", "10.0"),
        (1.8, "ratio", "1.80"),
        (999, "count", "999"),
        (76_800, "count", "76.8 k"),
        (4.2e12, "flops", "4.20 T"),
        (9.999e12, "flops", "10.0 T"),
        (61.0, "seconds", "1.02 min"),
        (4.13, "seconds", "4.1 s"),
        (910 * 2**20, "bytes", "910 MiB"),
    ],
)
def test_numbers_are_printed_in_their_unit(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text


def written(frame: pd.DataFrame) -> str:
    """A frame as CSV, without what is missing."""
    plain = frame.astype(object)
    return csv_text([frame.columns, *plain.where(frame.notna(), None).itertuples(index=False, name=None)])


def test_a_csv_is_the_frame(three: Store, one: Store, troubled: Store, bounded: Store) -> None:
    every = [load(SUITE, store) for store in (three, one, troubled, bounded)]
    papers = plan_outline(load_suite("prolip_datacomp", check_methods=False))
    made = [table for results in every for table in tables(results)]
    made += paper_tables(Results(papers, ()), resources.published_folder())
    assert len(made) > 40
    for table in made:
        assert table_csv(table) == written(table_frame(table)), table.name
    for results in every:
        assert records_csv(results) == written(records_frame(results))


@pytest.mark.parametrize(
    "values",
    [
        (1, 2, 3), (1, 2.5, 3), (1, None, 3), (1, math.nan, 2), (None, None, None), (None, 0.5, math.nan),
        ("a", 1, 2.5), ("a", None, 1), ("a", math.nan, 1), (np.float64(1), 2, 3), (np.float64(0.1), "a", 2),
    ],
)  # fmt: skip
def test_numbers_of_a_csv_are_those_of_the_frame(values: tuple[object, ...]) -> None:
    rows = [
        Row(f"row {place}", (Cell("value", 0.5, also={} if place == 3 else {"own": one}),))
        for place, one in enumerate((*values, 4))
    ]
    for some in (rows[:3], rows):
        table = Table("t", "T", (Column("c", "c"),), tuple(some))
        assert table_csv(table) == written(table_frame(table))


@pytest.mark.parametrize(
    ("views", "dropout", "words"),
    [
        (1, 0.0, "none"),
        (4, 0.0, "4 stored views"),
        (1, 0.1, "10 % of an image's dimensions dropped"),
        (2, 0.25, "2 stored views with 25 % of an image's dimensions dropped"),
    ],
)
def test_a_table_says_where_second_views_of_features_come_from(views: int, dropout: float, words: str) -> None:
    features = {"dropout": dropout, "image": {"name": "ViT-B-32/openai", "width": 512, "views": views}}
    (note,) = footnotes._features(Results({"data": {"features": features}, "methods": []}, ()))
    encoder = "images by ViT-B-32/openai (512 dimensions)"
    assert note == f"Trained on stored features: {encoder}; further views of an image: {words}."


def test_a_table_without_rows_stops_no_report() -> None:
    """As the table of the resolution is where every row stands at chance."""
    empty = Table("resolution", "Resolution", (Column("top1", "emoji/iid top-1"),), ())
    assert table_latex(empty) == "\n", "there is nothing to print"
    assert "Resolution" in table_text(empty, 100)
    assert len(table_csv(empty).splitlines()) == 1
