"""Papers' tables as printed, alone and with a suite's numbers beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.errors import UserError
from bench.planning.plan_file import plan_outline
from bench.resources import published_folder
from bench.store import Record, Store, writing
from bench.suite.suite import load_suite
from reports.build import build
from reports.papers.ours_vs_printed import paper_tables
from reports.papers.printed_tables import alone, find, papers, printed
from reports.papers.published import read
from reports.results import Results, load
from reports.tables.csv import table_csv
from reports.tables.latex import document, table_latex
from reports.tables.latex_text import escape
from reports.tables.table import Cell, Table
from reports.tables.text import table_text

PAPERS = ("bayes_weighted_cl", "label_augmentation", "nuclr", "ncu", "prolip")
NOISY = ("ncr", "decl", "rcl", "ugncl", "ucpm", "npc", "osa", "crcl")
_WORDS = (
    "caltech101 cifar10 cifar100 dtd fgvc_aircraft renderedsst2 flowers food101 gtsrb pets resisc45 sun397 eurosat cars"
)
FIFTEEN = (*_WORDS.split(), "stl10")


def cell_of(table: Table, row: str, column: str, group: str = "") -> Cell:
    (line,) = [one for one in table.rows if one.label == row and one.group == group]
    return line.cells[[one.name for one in table.columns].index(column)]


def test_every_published_number_stands_in_one_table() -> None:
    shown = [
        cell for table in papers(published_folder()) for row in alone(table).rows for cell in row.cells if cell.source
    ]
    assert len(shown) == sum(len(read(published_folder(), paper)) for paper in (*PAPERS, *NOISY)) == 1277 + 3515
    values = sorted(number.value for paper in (*PAPERS, *NOISY) for number in read(published_folder(), paper))
    assert sorted(cell.value for cell in shown if cell.value is not None) == values


def test_a_table_has_numbers_of_one_paper_only() -> None:
    for table in papers(published_folder()):
        assert {cell.source for row in alone(table).rows for cell in row.cells if cell.source} == {table.source}


def test_rows_columns_and_headings_stand_as_printed() -> None:
    table = alone(printed(published_folder(), "label_augmentation", "1"))
    assert table.heads() == [("ResNet-50", 2), ("ViT-B/16", 2), ("ViT-B/32", 2)]
    assert [column.label for column in table.columns] == ["Top1", "Top5"] * 3
    assert [row.label for row in table.rows][:3] == ["CLIP", "Re-selection γ = 0.1", "Re-selection γ = 0.3"]
    assert "likely a copy error" in table.footnotes[0]
    assert table.footnotes[0].startswith("Secondary γ = 0.3; ViT-B/32 Top1, ViT-B/32 Top5: ")
    ncu = alone(printed(published_folder(), "ncu", "1"))
    assert [name for name, _ in ncu.groups()][-1] == "ViT-B/32, YFCC15M-R"
    assert [column.label for column in ncu.columns][-2:] == ["Average", "ImageNet1K"]


def test_tables_of_noisy_correspondence_stand_by_data_set_and_noise() -> None:
    table = alone(printed(published_folder(), "npc", "README"))
    assert [name for name, _ in table.groups()][:3] == [
        "MS-COCO 1K, no noise",
        "MS-COCO 5K, no noise",
        "MS-COCO 1K, 20 % noise",
    ]
    assert cell_of(table, "NPC (ViT-B/32)", "T→I R@10 paper", "MS-COCO 1K, 20 % noise").value is None, (
        "the README repeats a column"
    )
    assert cell_of(table, "NPC (ViT-B/32)", "T→I R@10 paper", "MS-COCO 5K, 20 % noise").value == 82.9
    assert [name for name, _ in alone(printed(published_folder(), "ucpm", "II")).groups()] == ["CC152K, natural noise"]


def test_a_suite_that_differs_says_so_above_the_printed_table() -> None:
    plan = plan_outline(load_suite("flickr30k_features", check_methods=False))
    first, *others = paper_tables(Results(plan, ()), published_folder())
    assert first.title == "rcl, Table 1: Flickr30K and MS-COCO 1K (ours in another setting)"
    assert all("Ours: one vector an image, the mean of its regions" in table.description for table in (first, *others))


@pytest.mark.parametrize(("suite", "beside"), [
    ("flickr30k_features", {
        "rcl_1": {"RCL-SAF (SAF)", "RCL-SGR (SGR)", "RCL-SGRAF (SGRAF)"},
        "rcl_4": {"NCR-single (SGR)", "RCL-SGRAF (SGRAF)"},
        "decl_1": {"NCR", "DECL-SAF (SAF)", "DECL-SGR (SGR)", "DECL-SGRAF (SGRAF)"},
        "decl_README": {"NCR (SGR)", "DECL-SAF (SAF)", "DECL-SGR (SGR)", "DECL-SGRAF (SGRAF)"},
        "decl_S2": {"NCR-single (SGR)", "DECL-SAF (SAF)", "DECL-SGR (SGR)", "DECL-SGRAF (SGRAF)"},
        "ncr_1": {"NCR (SGR)"},
        "ugncl_1": {"NCR", "DECL", "BiCro"},
        "ucpm_I": {f"{name} (SGRAF)" for name in ("NCR", "DECL", "BiCro", "RCL", "CREAM", "L2RM")},
        "crcl_thread": {f"CRCL ({run})" for run in (
            "the paper", "a user, train.sh as shipped", "the authors' rerun, June 2024")},
    }),
    ("flickr30k_clip_finetune", {"npc_README": {"CLIP (ViT-B/32)"}}),
    ("coco_clip_finetune", {
        "osa_2": {"CLIP (ViT-B/32)", "CLIP+OSA (ViT-B/32)", "PAU", "PCME++"},
        "npc_README": {"CLIP (ViT-B/32)"},
        "ugncl_3": {"CLIP ViT-B/32 fine-tuned", "CLIP ViT-B/32 zero-shot"},
    }),
])  # fmt: skip
def test_a_suites_rows_stand_beside_the_printed_ones_of_the_same_method(
    suite: str, beside: dict[str, set[str]]
) -> None:
    plan = plan_outline(load_suite(suite))  # every label of its tables is a row of it
    tables = paper_tables(Results(plan, ()), published_folder())
    ours = {
        table.name: {row.label for row in table.rows if "missing" in (c.state for c in row.cells)} for table in tables
    }
    assert ours == {f"paper_{name}": rows for name, rows in beside.items()}


def test_print_errors_are_said() -> None:
    def notes(paper: str, number: str) -> str:
        return " ".join(alone(printed(published_folder(), paper, number)).footnotes)

    assert "StanfordCars, Flowers102: StanfordCars and Flowers102 column values are swapped" in notes(PAPERS[0], "3")
    assert "CyCLIP: copied from Jiang et al. 2023" in notes(PAPERS[0], "1")
    assert "(-10, 10) in Table C.5" in notes("prolip", "1")
    assert "shares, not percent" in notes("prolip", "C.7")
    assert "SoftCLIP was trained from scratch" in notes("ncu", "4")


def test_text_keeps_zeros() -> None:
    text = table_text(alone(printed(published_folder(), "bayes_weighted_cl", "1")), 80)
    assert "CyCLIP  17.77  36.20" in text
    assert "29.55 ± 0.26" in table_text(alone(printed(published_folder(), "nuclr", "1")), 100)


@pytest.mark.parametrize(("words", "found"), [
    ("ncu/1", ("ncu", "1")),
    ("ncu, Table 1", ("ncu", "1")),
    ("prolip table c.3", ("prolip", "C.3")),
    ("prolip/text 4.2", ("prolip", "text 4.2")),
    ("bayes 4", ("bayes_weighted_cl", "4")),
    ("nuclr", ("nuclr", "")),
    ("", ("", "")),
])  # fmt: skip
def test_a_table_is_found_by_its_words(words: str, found: tuple[str, str]) -> None:
    assert find(words) == found


def test_what_there_is_not_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="no paper 'nclr'; did you mean 'nuclr'"):
        find("nclr/1")
    with pytest.raises(UserError, match=r"^/1: no paper ''; valid: bayes_weighted_cl, "):
        find("/1")
    with pytest.raises(UserError, match="ncu has no table '9'; valid: 1, 2, 3, 4, 5"):
        find("ncu Table 9")
    with pytest.raises(UserError, match=r"tables.paper: no paper 'proclip'; did you mean 'prolip'"):
        printed(published_folder(), "proclip", "1")
    with pytest.raises(UserError, match=r"tables.numbers: prolip has no table 'C.11'"):
        printed(published_folder(), "prolip", "C.11")


def test_the_verb_prints_and_lists(start_bench: Callable[..., Any]) -> None:
    _, listed = start_bench("stats", "published").finish()
    assert all(f"{paper}/" in listed for paper in (*PAPERS, *NOISY))
    _, shown = start_bench("stats", "published", "ncu", "Table", "5").finish()
    assert "V4 only False Positives Unlearning      19.2      14.3" in shown
    code, output = start_bench("stats", "published", "ncu/9").finish()
    assert code == 2
    assert "ncu has no table '9'" in output


def measured(store: Store, run: str, records: Sequence[tuple[str, str, str, float]]) -> None:
    found = [
        Record(run, 1.0, dataset, task, metric, "", value, 100, None, None, True, "1", checkpoint="c")
        for dataset, task, metric, value in records
    ]
    with writing(store.run(run)) as out:
        out.write_records("all", found, {})
        out.set_status("done", step=1, steps=1, stage="evaluate")


ROW = (
    {"config": {}, "lr": 1e-3}
    | dict.fromkeys(("method", "title", "summary", "paper", "bibtex", "note", "state"), "")
    | dict.fromkeys(("preset", "reference", "equations", "start", "keep"))
)


def planned(name: str, labels: Sequence[str]) -> dict[str, Any]:
    """The plan of a suite as it stands, with these rows under all of its noises."""
    plan = plan_outline(load_suite(name, check_methods=False))
    blocks = [noise["label"] for noise in plan["noises"]]
    return {
        **plan,
        **{"protocol": "1", "suite_hash": "0" * 64, "made": 0.0, "baseline": labels[0], "tuning": None},
        "data": {**plan["data"], "description": ""},
        "primary": {"dataset": "cars", "task": "zero_shot/class", "metric": "top1"},
        "settings": {**plan["settings"], "evaluate": {"curve": []}},
        "methods": [{**ROW, "label": label, "score": "cosine", "fidelity": "derived"} for label in labels],
        "cells": [
            {
                "method": label,
                "noise": block,
                "seed": 0,
                "run": f"{label} {block}".encode().hex().ljust(64, "0")[:64],
                "steps": 1,
                "manifest": None,
                "reference_run": None,
                "kept_rows": None,
                "evaluations": [],
            }
            for label in labels
            for block in blocks
        ],
    }


@pytest.fixture
def ncu(tmp_path: Path) -> Results:
    """NCU with B/16 towers is done, with B/32 towers not. No row of ours stands beside CLIP's."""
    store, plan = Store(tmp_path), planned("ncu_cc3m", ["ncu", "gradient_ascent"])
    del plan["tables"]["rows"]["clip"]
    (run,) = [cell["run"] for cell in plan["cells"] if cell["method"] == "ncu" and "ViT-B-16" in cell["noise"]]
    records = [(name, "zero_shot/class", "top1", 0.25) for name in FIFTEEN[:-1]]
    records += [("stl10", "zero_shot/class", "top1", 0.40), ("imagenet1k", "zero_shot/class", "top1", 0.21)]
    records += [("imagenet1k", "linear_probe/class", "accuracy", 0.51), ("flickr30k", "retrieval", "mean_recall", 0.5)]
    measured(store, run, records)
    store.write_plan("ncu_cc3m", plan)
    return load("ncu_cc3m", store)


def test_ours_stands_beside_theirs_with_the_difference(ncu: Results) -> None:
    tables = {table.name: table for table in paper_tables(ncu, published_folder())}
    assert list(tables) == [f"paper_ncu_{number}" for number in (1, 2, 3, 4, 5)]
    zero_shot, group = tables["paper_ncu_1"], "ViT-B/16, CC3M"
    theirs, ours = (cell_of(zero_shot, "NCU", f"Caltech101 {who}", group) for who in ("paper", "ours"))
    assert (theirs.value, theirs.source) == (59.1, "ncu, Table 1")
    assert (ours.value, ours.n) == (25.0, 1)
    assert ours.difference == pytest.approx(25.0 - 59.1)
    average = cell_of(zero_shot, "NCU", "Average ours", group)
    assert average.value == pytest.approx((14 * 25 + 40) / 15)  # ImageNet is not in it
    assert cell_of(tables["paper_ncu_2"], "NCU", "Flickr30K 1K test Average ours", "CC3M, ViT-B/16").value == 50.0
    assert cell_of(tables["paper_ncu_3"], "NCU", "ImageNet ours", "CC3M, ViT-B/16").value == pytest.approx(51.0)
    assert cell_of(tables["paper_ncu_5"], "NCU", "ViT-B/16 ours").value == pytest.approx(21.0)


def test_what_is_printed_as_a_share_is_compared_as_a_share(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), planned("prolip_filtering", ["clip", "ProLIP distance 20 %"])
    records = [("imagenet1k", "zero_shot/class", metric, 0.05) for metric in ("top1", "main")]
    measured(store, plan["cells"][1]["run"], records)
    store.write_plan("prolip_filtering", plan)
    (table,) = paper_tables(load("prolip_filtering", store), published_folder())
    (label,) = (row.label for row in table.rows if row.label.startswith("ProLIP distance"))
    ours = cell_of(table, label, "ImageNet ours")
    assert (ours.value, ours.difference) == (pytest.approx(0.05), pytest.approx(0.05 - 0.042))
    assert [cell_of(table, row.label, "ImageNet ours").state for row in table.rows].count("missing") == 3


def test_what_is_missing_differs_from_what_is_not_ours(ncu: Results) -> None:
    tables = {table.name: table for table in paper_tables(ncu, published_folder())}
    states = [
        cell_of(tables["paper_ncu_1"], method, "DTD ours", group)
        for method, group in (("NCU", "ViT-B/32, CC3M"), ("NCU", "ViT-B/16, CC12M"), ("CLIP", "ViT-B/16, CC3M"))
    ]
    assert [(cell.state, cell.text) for cell in states] == [("missing", ""), ("value", "–"), ("value", "–")]
    assert not any(cell.bold for table in tables.values() for row in table.rows for cell in row.cells)


def test_a_column_printed_under_the_wrong_heading_is_compared_with_what_it_means(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), planned("bayes_cc3m", ["clip"])
    measured(store, plan["cells"][0]["run"], [("cars", "adamw_probe/class", "accuracy", 0.20)])
    store.write_plan("bayes_cc3m", plan)
    table = paper_tables(load("bayes_cc3m", store), published_folder())[2]
    ours = cell_of(table, "CLIP", "Flowers102 ours")
    assert (ours.value, ours.difference) == (pytest.approx(20.0), pytest.approx(2.3))  # 17.7 is printed there
    assert cell_of(table, "CLIP", "StanfordCars ours").state == "missing"


def test_a_number_of_another_protocol_does_not_stand_beside_the_printed_one(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), planned("bayes_cc3m", ["clip"])
    measured(store, plan["cells"][0]["run"], [("cars", "adamw_probe/class", "accuracy", 0.20)])
    data = {"cars": {"description": "", "n": 100, "chance": {"adamw_probe/class/accuracy": 0.1}}}
    store.write_plan("bayes_cc3m", {**plan, "protocol": "bayes-1", "datasets": data})
    table = paper_tables(load("bayes_cc3m", store), published_folder())[2]
    assert cell_of(table, "CLIP", "Flowers102 ours").state == "missing"
    assert any("bayes 1, but stored under common 1" in note and "cars" in note for note in table.footnotes)


def test_csv_has_both_numbers_the_source_and_the_difference(ncu: Results) -> None:
    lines = list(csv.DictReader(io.StringIO(table_csv(paper_tables(ncu, published_folder())[4]))))
    line = lines[0]
    assert (line["row"], line["ViT-B/16 paper"], line["ViT-B/16 paper source"]) == ("NCU", "20.0", "ncu, Table 5")
    assert float(line["ViT-B/16 ours difference"]) == pytest.approx(1.0)
    assert line["ViT-B/32 ours"] == "missing"


@pytest.mark.parametrize("name", ["bayes_cc3m", "label_augmentation_cc3m", "nuclr_cc3m", "ncu_cc3m", "prolip_datacomp"])
def test_a_suite_without_a_plan_reports_its_papers_tables(tmp_path: Path, name: str) -> None:
    suite = load_suite(name, check_methods=False)
    assert suite.tables
    built = build(name, Store(tmp_path), plan_outline(suite))
    page = (tmp_path / name / "report.html").read_text()
    assert page.count("<table") == sum(len(paper.numbers) for paper in suite.tables) + 1  # and the dialogue's
    assert 'class="missing"' in page
    assert f"<code>bench run {name} --plan-only</code>" in page
    assert {path.suffix for path in built.paths} == {".html", ".csv", ".tex"}


def test_a_suite_with_neither_plan_nor_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no plan"):
        build("smoke", Store(tmp_path), plan_outline(load_suite("smoke", check_methods=False)))


def test_a_row_that_begins_with_a_bracket_is_no_length() -> None:
    assert escape("[UNC]") == "{[}UNC]"


@pytest.mark.parametrize("options", ["", "[twocolumn]"])
def test_every_papers_latex_compiles_and_fits(pdflatex: Callable[[str], str], options: str) -> None:
    own = ["bayes_cc3m", "label_augmentation_cc3m", "nuclr_cc3m", "ncu_cc3m", "prolip_ablation", "prolip_datacomp"]
    names = [*own, "flickr30k_features", "flickr30k_clip_finetune", "coco_clip_finetune"]
    plans = [plan_outline(load_suite(name, check_methods=False)) for name in names]
    texts = [table_latex(table) for plan in plans for table in paper_tables(Results(plan, ()), published_folder())]
    said = pdflatex(document(texts).replace(r"\documentclass", rf"\documentclass{options}"))
    assert "Overfull \\hbox" not in said
    assert "Float too large" not in said
