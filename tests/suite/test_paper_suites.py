"""The papers' suites say what the papers say, and name data sets, methods and printed rows that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.catalogue.evaluation_sets import unknown_set
from bench.errors import UserError
from bench.planning.planner import Planner
from bench.resources import published_folder
from bench.store import Store
from bench.suite.suite import Suite, load_suite
from reports.papers.ours_vs_printed import _label
from reports.papers.printed_tables import printed

#: name -> batch, D, budget, pairs, methods, towers, runs
FACTS = {
    "cc3m_noisy": (1024, 1024, ("flops", 7.35e18), 3_000_000, 49, 1, 441),
    "bayes_cc3m": (1024, 1024, ("epochs", 32), 3_000_000, 8, 1, 8),
    "bayes_priors_cc3m": (1024, 1024, ("epochs", 32), 3_000_000, 4, 1, 4),
    "label_augmentation_cc3m": (1024, 1024, ("epochs", 32), 3_000_000, 16, 3, 48),
    "nuclr_cc3m": (512, 256, ("epochs", 30), 2_798_889, 8, 1, 24),
    "nuclr_variants_cc3m": (512, 256, ("epochs", 30), 2_798_889, 5, 1, 15),
    "nuclr_cc12m": (512, 256, ("epochs", 30), 9_200_000, 8, 1, 24),
    "ncu_cc3m": (2048, 512, ("epochs", 10), 2_800_000, 7, 2, 14),
    "ncu_cc12m": (2048, 512, ("epochs", 10), 10_900_000, 3, 2, 6),
    "ncu_yfcc15m": (2048, 512, ("epochs", 10), 15_000_000, 2, 1, 2),
    "ncu_shares_cc3m": (2048, 512, ("epochs", 10), 2_800_000, 7, 1, 7),
    "softclip_cc3m": (8192, 512, ("epochs", 40), 2_800_000, 2, 2, 4),
    "softclip_cc12m": (8192, 512, ("epochs", 35), 10_900_000, 2, 2, 4),
    "prolip_ablation": (4096, 768, ("samples", 96e6), 27_752_828, 11, 1, 11),
    "prolip_datacomp": (16384, 768, ("samples", 1.28e9), 1_120_000_000, 12, 1, 12),
    "prolip_filtering": (4096, 512, ("samples", 12.8e6), 12_800_000, 4, 1, 4),
}
FIGURES = ("ncu_shares_cc3m", "nuclr_variants_cc3m")  # which print no numbers
DECLARED = [name for name in FACTS if name not in ("cc3m_noisy", *FIGURES)]


@pytest.fixture(scope="module")
def suites() -> dict[str, Suite]:
    return {name: load_suite(name) for name in FACTS}


def test_a_filtered_row_makes_as_many_steps_as_an_unfiltered_one(suites: dict[str, Suite], tmp_path: Path) -> None:
    """As Table C.7 does: scoring is on top of the budget, which could not pay for it."""
    runs = suites["prolip_filtering"].runs()
    steps = {one.run.label: one.resolved for one in Planner(Store(tmp_path), here=False).plan(runs)}
    assert {one.steps for one in steps.values()} == {3125}
    assert steps["CLIP L/14 20 %"].scoring_flops > steps["clip"].flops


@pytest.mark.parametrize("name", FACTS)
def test_a_suite_states_its_papers_facts(suites: dict[str, Suite], name: str) -> None:
    suite = suites[name]
    found = (
        suite.train.batch,
        suite.towers[0].dim,
        (suite.budget[0].kind, suite.budget[0].value),
        suite.data.rows,
        len(suite.methods),
        len(suite.towers),
        len(suite.cells()),
    )
    assert found == FACTS[name]
    assert suite.train.precision == "bf16"
    assert suite.data.size == (256 if name.startswith("nuclr") else 224)


@pytest.mark.parametrize("name", FACTS)
def test_a_suites_evaluation_data_is_in_the_catalogue(suites: dict[str, Suite], name: str) -> None:
    asked = suites[name].evaluate
    named = [one for sets in asked.datasets.values() for one in sets]
    assert named
    assert [unknown_set(one) for one in named if unknown_set(one)] == []
    assert set(asked.datasets) == set(asked.tasks) - {"noise_detection", "memorisation"}


@pytest.mark.parametrize("name", DECLARED)
def test_every_declared_row_stands_beside_a_printed_one(suites: dict[str, Suite], name: str) -> None:
    assert suites[name].tables
    for tables in suites[name].tables:
        declared = tables.model_dump(mode="json")
        numbers = [
            number
            for table in tables.numbers
            for number in printed(published_folder(), tables.paper, table).numbers.values()
        ]
        assert {_label(declared, number) for number in numbers} - {None} == set(tables.rows)


def test_noise_is_read_as_the_suites_say(suites: dict[str, Suite]) -> None:
    (cc3m,), (bayes,) = suites["cc3m_noisy"].noise, suites["bayes_cc3m"].noise
    assert (cc3m.kind, cc3m.rates) == ("shuffled_captions", (0.0, 0.2, 0.4))
    assert (bayes.kind, bayes.rates) == ("resampled_positives", (0.1,))
    assert suites["bayes_priors_cc3m"].noise == (bayes,)
    for name in set(FACTS) - {"cc3m_noisy", "bayes_cc3m", "bayes_priors_cc3m"}:
        assert suites[name].noise[0].rates == (0.0,)
    for name in set(FACTS) - {"bayes_cc3m", "bayes_priors_cc3m"}:
        assert suites[name].noise[0].natural, "pairs of the web: nobody knows that they are right"


def test_memorisation_is_measured_where_noise_is_injected(suites: dict[str, Suite]) -> None:
    injected = {name for name, suite in suites.items() if any(suite.noise[0].rates)}
    assert injected == {name for name, suite in suites.items() if "memorisation" in suite.evaluate.tasks}
    main = suites["cc3m_noisy"].evaluate
    assert main.curve == (0.25, 0.5, 0.75)
    assert main.along == ("zero_shot", "retrieval", "memorisation", "noisy_validation")


def test_runs_of_the_same_prior_are_shared(suites: dict[str, Suite]) -> None:
    keys = [{run.key for run in suites[name].cells()} for name in ("bayes_priors_cc3m", "bayes_cc3m")]
    assert len(keys[0]) == 4
    assert keys[0] <= keys[1]


def test_partial_data_is_a_share_of_the_same_recipe(suites: dict[str, Suite]) -> None:
    whole = {run.key for run in suites["ncu_cc3m"].cells() if run.towers.label == "ViT-B-16"}
    shares = {run.keep.share: run for run in suites["ncu_shares_cc3m"].cells()}
    assert sorted(share for share in shares if share) == pytest.approx([k / 6 for k in range(1, 6)], abs=1e-3)
    assert {run.key for run in suites["ncu_shares_cc3m"].cells() if run.keep.share is None} <= whole
    assert {run.keep_rule for run in shares.values()} == {"passes"}


def test_grids_are_rows(suites: dict[str, Suite]) -> None:
    rates = {entry.config["gamma"] for entry in suites["label_augmentation_cc3m"].methods if "gamma" in entry.config}
    assert rates == {0.1, 0.3, 0.5, 0.7, 0.9}
    grid = {
        (entry.config["inclusion_eps"], entry.config["inclusion_scale"])
        for entry in suites["prolip_datacomp"].methods
        if "inclusion_eps" in entry.config
    }
    assert len(grid) == 7  # Table C.5's rows
    zetas = [
        [entry.config["zeta_init"] for entry in suites[name].methods if entry.method == "nuclr"]
        for name in ("nuclr_cc3m", "nuclr_cc12m")
    ]
    assert zetas == [[-0.05, 0.0], [0.0, -0.05]]  # the better one is the paper's Table 1


@pytest.mark.parametrize("name", ["ncu_cc3m", "ncu_cc12m", "ncu_yfcc15m"])
def test_ncu_trains_with_the_channels_it_is_evaluated_with(suites: dict[str, Suite], name: str) -> None:
    assert {towers.channels for towers in suites[name].towers} == {"imagenet"}


def test_an_ablated_row_differs_from_ncu_in_one_setting(suites: dict[str, Suite]) -> None:
    configs = {run.label: run.config for run in suites["ncu_cc3m"].cells()}
    whole = set(configs["ncu"].items())
    differences = {label: dict(set(found.items()) - whole) for label, found in configs.items() if " v" in label}
    assert differences == {
        "ncu v1": {"variant": "prefixes"},
        "ncu v2": {"variant": "distance"},
        "ncu v3": {"forget": 0.0},
        "ncu v4": {"gamma": 0.0},
    }


def test_starts_lie_in_the_data_folder_by_towers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    suite = load_suite("ncu_cc3m")
    starts = {run.start for run in suite.cells()}
    assert starts == {f"{tmp_path}/checkpoints/cc3m-ViT-B-{patch}.pt" for patch in (16, 32)}


def test_the_datacomp_suite_has_all_38_tasks(suites: dict[str, Suite]) -> None:
    sets = suites["prolip_datacomp"].evaluate.datasets
    assert sum(len(names) for family, names in sets.items() if family not in ("hierarchy", "prompts")) == 38


def test_tables_of_labels_that_there_are_not_are_named(tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    text = "name: odd\nbudget: {epochs: 1}\nmethods: [clip]\ntables: {paper: ncu, numbers: ['1'], rows: {clp: CLIP}}\n"
    file.write_text(text)
    with pytest.raises(UserError, match=r"odd.yaml:4: tables.rows.clp: unknown label 'clp'; did you mean 'clip'"):
        load_suite(file)
    file.write_text(text.replace("clp", "clip"))
    assert load_suite(file).tables


def test_tables_are_no_part_of_a_runs_identity(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("name: one\nbudget: {epochs: 1}\nmethods: [clip]\n")
    before = load_suite(file).cells()[0].key
    file.write_text(file.read_text() + "tables: {paper: ncu, numbers: ['1'], rows: {clip: CLIP}}\n")
    assert load_suite(file).cells()[0].key == before
