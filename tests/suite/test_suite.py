"""A suite expands into runs: axes, selections, overrides, references."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.adapters import registry
from bench.catalogue.families import FAMILIES
from bench.catalogue.noise_kinds import noise_label
from bench.errors import UserError
from bench.resources import suite_names
from bench.suite.settings import EvaluateSettings
from bench.suite.suite import Suite, load_suite

SUITE = """\
name: axes
noise: {rates: [0.0, 0.4]}
seeds: [3, 1]
budget: {samples: 1_000}
methods:
  - siglip
  - {method: clip, label: cold, config: {temperature: 0.5}}
  - clip
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "axes.yaml"
    file.write_text(SUITE)
    return file


@pytest.fixture
def starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A method that starts from a CLIP run."""
    file = tmp_path / "starter.py"
    file.write_text(
        'from methods.clip import Clip\n\nclass Starter(Clip):\n    name = "starter"\n    reference = "clip"\n'
    )
    monkeypatch.setattr(registry, "_plugins", {})
    yield registry.add_plugin(file)
    registry.clear_caches()


def test_a_rate_can_have_fewer_seeds(path: Path) -> None:
    suite = load_suite(path, ["seeds=[5, 3, 1]", "noise.seeds=[1, 3]"])
    seeds = [(run.rate, run.seed) for run in suite.cells() if run.label == suite.methods[0].label]
    assert seeds == [(0.0, 5), (0.4, 5), (0.4, 3), (0.4, 1)]
    same = load_suite(path, ["seeds=[5, 3, 1]"])
    assert {run.key for run in suite.runs()} < {run.key for run in same.runs()}  # what a run is does not depend on it
    for wrong, message in (
        ("[1]", "noise.seeds: 1 counts for 2 rates; give one for each"),
        ("[1, 4]", "noise.seeds.1: 4 should be at most 3, the suite's seeds"),
        ("[0, 1]", "noise.seeds.0: 0 should be greater than or equal to 1"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            load_suite(path, ["seeds=[5, 3, 1]", f"noise.seeds={wrong}"])


def test_axes_expand_seeds_first_then_rates_then_methods(path: Path) -> None:
    runs = load_suite(path).runs()
    assert [(run.seed, run.rate, run.label) for run in runs] == [
        (seed, rate, label) for seed in (3, 1) for rate in (0.0, 0.4) for label in ("siglip", "cold", "clip")
    ]
    assert runs[1].config == {"temperature": 0.5, "learnable_scale": True}
    assert (runs[0].noise, runs[3].noise) == (None, "shuffled_captions")
    assert runs[3].title == "siglip, 40 % shuffled captions, seed 3"
    assert (runs[0].budget.kind, runs[0].budget.value) == ("samples", 1000)


def test_selections_choose_runs_but_not_cells(path: Path) -> None:
    suite = load_suite(path)
    chosen = suite.narrowed(["cold"], [1])
    assert [(run.label, run.seed, run.rate) for run in chosen.runs()] == [("cold", 1, 0.0), ("cold", 1, 0.4)]
    assert len(chosen.cells()) == len(suite.cells()) == 12
    assert len(chosen.narrowed().runs()) == 12
    assert chosen.hash == suite.hash
    assert suite.narrowed("cold", 1).runs() == chosen.runs(), "one label and one seed need no list"


def test_a_setting_that_a_later_version_adds_leaves_the_hash_of_a_plan(path: Path) -> None:
    class Later(Suite):
        novelty: float = 0.5

    written = load_suite(path)
    assert Later.model_validate(written.model_dump()).hash == written.hash
    assert Later.model_validate({**written.model_dump(), "novelty": 0.4}).hash != written.hash
    assert load_suite(path, ["train.lr=0.1"]).hash != written.hash


@pytest.mark.parametrize(
    ("only", "seeds", "said"),
    [(["clod"], [], "--only clod: .*did you mean 'cold'"), ([], [2], r"--seeds 2: suite axes has 3, 1; .*\[3, 1, 2\]")],
)
def test_selecting_what_is_not_there(path: Path, only: list[str], seeds: list[int], said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_suite(path).narrowed(only, seeds)


def test_overrides_reach_everything(path: Path) -> None:
    overrides = [
        "train.lr=1e-4",
        "train.betas=[0.8, 0.9]",
        "seeds=[7]",
        "budget={epochs: 3}",
        "methods.clip.config.temperature=0.2",
        "methods.1.label=warm",
        "name=other",
    ]
    suite = load_suite(path, overrides)
    assert (suite.name, suite.train.lr, suite.train.betas, suite.seeds) == ("other", 1e-4, (0.8, 0.9), (7,))
    assert suite.budget[0].kind == "epochs"
    assert {run.label: run.config.get("temperature") for run in suite.runs()} == {
        "siglip": None,
        "warm": 0.5,
        "clip": 0.2,
    }


def test_yaml_words_mean_what_they_say(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(SUITE.replace("label: cold", "label: no").replace("1_000", "1e3"))
    suite = load_suite(file)
    assert suite.methods[1].label == "no"
    assert suite.budget[0].value == 1000


def test_a_small_batch_is_one_group_of_batchnorm(path: Path) -> None:
    assert load_suite(path).train.bn_group == 128
    assert load_suite(path, ["train.batch=48"]).train.bn_group == 48
    assert load_suite(path, ["train.batch=48", "train.bn_group=16"]).train.bn_group == 16


def test_a_reference_comes_first_once_and_takes_its_share(path: Path, starter: str) -> None:
    suite = load_suite(
        path, [f"methods=[{starter}, clip, {{method: {starter}, label: b, config: {{temperature: 1}}}}]"]
    )
    group = [run for run in suite.runs() if (run.seed, run.rate) == (3, 0.4)]
    assert [(run.label, run.method, run.budget.value) for run in group] == [
        ("clip (reference)", "clip", 500),
        ("starter", "starter", 500),
        ("clip", "clip", 1000),
        ("b", "starter", 500),
    ]
    assert group[1].reference is not None
    assert group[1].reference.key == group[0].key == group[3].reference.key
    assert group[1].content()["reference"] == group[0].content()
    assert group[0].key != group[2].key
    assert (group[0].seed, group[0].rate, group[0].noise) == (3, 0.4, "shuffled_captions")


@pytest.fixture
def chained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A plug-in that starts from NCU, which starts from CLIP."""
    monkeypatch.setattr(registry, "_plugins", {})
    file = tmp_path / "chained.py"
    file.write_text(
        'from methods.clip import Clip\n\nclass Chained(Clip):\n    name = "chained"\n    reference = "ncu"\n'
    )
    registry.add_plugin(file)
    yield
    registry.clear_caches()


@pytest.mark.usefixtures("chained")
def test_a_chain_of_references_is_refused_and_never_cut(tmp_path: Path) -> None:
    file = tmp_path / "chain.yaml"
    file.write_text("name: chain\nbudget: {samples: 512}\nmethods: [clip, chained]\n")
    said = r"chain\.yaml:3: methods\.1.*chained starts from a run of ncu, which itself starts from a run of clip; "
    with pytest.raises(UserError, match=said + "references are not chained: train ncu first and give its weights"):
        load_suite(file)
    with pytest.raises(UserError, match="references are not chained"):
        load_suite(file, check_methods=False).runs()


@pytest.mark.usefixtures("chained")
def test_given_weights_end_a_chain_of_references(tmp_path: Path) -> None:
    file = tmp_path / "chain.yaml"
    rows = "[{method: chained, start: here.safetensors}, {method: ncu, start: here.safetensors}]"
    file.write_text(f"name: chain\nbudget: {{samples: 512}}\nmethods: {rows}\n")
    assert [run.reference for run in load_suite(file).runs()] == [None, None]
    file.write_text(file.read_text().replace("chained, start: here.safetensors", "chained"))
    reference, chain, _ = load_suite(file).runs()
    assert (reference.method, reference.start, chain.reference) == ("ncu", "here.safetensors", reference)


def test_an_additional_reference_is_the_suites_own_run(path: Path, starter: str) -> None:
    suite = load_suite(path, [f"methods=[{starter}, {{method: clip, label: mine}}]", "budget_rule=additional"])
    group = [run for run in suite.runs() if (run.seed, run.rate) == (3, 0.0)]
    assert [(run.label, run.budget.value) for run in group] == [("mine", 1000), ("starter", 1000)]
    assert [run.label for run in suite.narrowed(["starter"]).runs()] == ["mine", "starter"] * 4


def test_noise_labels() -> None:
    assert noise_label("shuffled_captions", 0.0) == "clean"
    assert noise_label("shuffled_captions", 0.4) == "40 % shuffled captions"
    assert noise_label("resampled_positives", 0.125) == "12.5 % resampled positives"


@pytest.mark.parametrize("name", suite_names())
def test_shipped_suites_load(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    assert suite.runs()


@pytest.mark.parametrize("name", ["emoji_noisy", "cc3m_noisy"])
def test_the_big_suites_have_every_method_and_bound(name: str) -> None:
    ablations = {"ncu_ablation"}  # of a paper's own table; no method to choose
    vectors = {"pcmepp_features", "prolip_features"}  # forms for stored features, where the originals do not apply
    # A row of emoji_noisy has settings of its own trials.
    later = {"amorlip", "bicro", "cream", "l2rm", "m2mix", "otter", "pau", "superclip"}
    untuned = later if name == "emoji_noisy" else set()
    rows = load_suite(name).methods
    assert {entry.method for entry in rows} == set(registry.method_names()) - ablations - vectors - untuned
    assert {"oracle", "clip filtered", "clip random"} < {entry.label for entry in rows}
    assert vectors < {entry.method for entry in load_suite("cc3m_features").methods}


def test_the_tasks_are_those_that_can_be_evaluated() -> None:
    for family in FAMILIES:
        assert EvaluateSettings.model_validate({"tasks": (family.name,)}).tasks == (family.name,)
        assert callable(family.measures())
