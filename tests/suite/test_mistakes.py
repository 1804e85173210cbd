"""Every mistake in a suite is one line with file, line, field, value and the nearest valid word."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import UserError
from bench.suite.suite import load_suite

GOOD = """\
name: small
data: {name: emoji, size: 32}
noise:
  kind: shuffled_captions
  rates: [0.0, 0.4]
seeds: [0, 1]
budget: {epochs: 2}
train:
  batch: 64
  lr: 1e-3
evaluate: {tasks: [zero_shot]}
methods:
  - clip
  - method: label_permutation
    config: {gamma: 0.2}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "small.yaml"
    path.write_text(text)
    return path


def mistakes(folder: Path, text: str, *overrides: str) -> list[str]:
    """The lines of the error that loading `text` raises, without the folder."""
    path = write(folder, text)
    with pytest.raises(UserError) as caught:
        load_suite(path, overrides)
    return str(caught.value).replace(f"{folder}/", "").split("\n")


CASES = [
    ("epochs: 2", "epoch: 2", "small.yaml:7: budget.epoch: unknown key; did you mean 'epochs'?"),
    ("seeds:", "sedes:", "small.yaml:6: sedes: unknown key; did you mean 'seeds'?"),
    ("  batch:", "  btach:", "small.yaml:9: train.btach: unknown key; did you mean 'batch'?"),
    ("  lr: 1e-3", "  lr: fast", "small.yaml:10: train.lr: 'fast' should be a valid number"),
    (
        "  lr: 1e-3",
        "  lr: 1e-3\n  final_lr: 2e-3",
        "small.yaml:11: train.final_lr: 0.002 should be at most lr 0.001, from which the cosine falls",
    ),
    ("batch: 64", "batch: 64.5", "small.yaml:9: train.batch: 64.5 should be a valid integer"),
    ("batch: 64", 'batch: "64"', "small.yaml:9: train.batch: '64' should be a valid integer"),
    ("seeds: [0, 1]", "seeds: [0, true]", "small.yaml:6: seeds.1: True should be a valid integer"),
    ("seeds: [0, 1]", "seeds: [0, 1, 0]", "small.yaml:6: seeds.2: 0 is a duplicate"),
    ("seeds: [0, 1]", "seeds: []", "small.yaml:6: seeds: [] is too short"),
    ("rates: [0.0, 0.4]", "rates: [1.0]", "small.yaml:5: noise.rates.0: 1.0 should be less than 1"),
    ("rates: [0.0, 0.4]", "rates: [0, 0.0]", "small.yaml:5: noise.rates.1: 0.0 is a duplicate"),
    ("epochs: 2", "epochs: 0", "small.yaml:7: budget.epochs: 0 should be greater than 0"),
    ("epochs: 2", "epochs: -1", "small.yaml:7: budget.epochs: -1 should be greater than 0"),
    ("epochs: 2", "epochs: .inf", "small.yaml:7: budget.epochs: inf should be a finite number"),
    ("batch: 64", "batch: 100\n  bn_group: 64", "small.yaml:10: train.bn_group: 64 does not divide batch 100"),
    ("batch: 64", "batch: 200", "small.yaml:8: train.bn_group: 128 does not divide batch 200"),
    ("batch: 64", "batch: 64\n  compile: max", "small.yaml:10: train.compile: 'max' should be a valid boolean"),
    ("batch: 64", "batch: 64\n  compile: 1", "small.yaml:10: train.compile: 1 should be a valid boolean"),
    ("batch: 64", "batch: 64\n  micro_batch: 128", "small.yaml:10: train.micro_batch: 128 should be at most batch 64 "),
    (
        "batch: 64",
        "batch: 64\n  bn_group: 32\n  micro_batch: 48",
        "small.yaml:11: train.micro_batch: 48 should be at most ",
    ),
    ("tasks: [zero_shot]", "curve: [0.5, 0.3]", "small.yaml:11: evaluate.curve.1: 0.3 should be 0.25, 0.5 or 0.75"),
    ("name: emoji", "name: emojis", "small.yaml:2: data.name: 'emojis' resembles 'emoji', which comes with"),
    ("size: 32", "size: 48", "small.yaml:2: data.size: 48 should be 32 or 64"),
    ("size: 32", "size: 32, share: 0.5", "small.yaml:2: data.share: is of shards and stored features; omit it, or"),
    (
        "  lr: 1e-3\nevaluate: {tasks: [zero_shot]}\nmethods:\n  - clip",
        "  final_lr: 1e-4\nmethods:\n  - {method: clip, lr: 1e-5}",
        "small.yaml:12: methods.0.lr: 1e-05 is below train.final_lr 0.0001",
    ),
    ("- clip", "- clpi", "small.yaml:13: methods.0.method: 'clpi' is not a method; did you mean 'clip'?"),
    ("gamma: 0.2", "gama: 0.2", "small.yaml:15: methods.1.config.gama: unknown hyper-parameter of label_permutation; "),
    ("gamma: 0.2", "gamma: x", "small.yaml:15: methods.1.config.gamma: 'x' should be a valid number"),
    ("gamma: 0.2", "gamma: 2", "small.yaml:15: methods.1.config.gamma: 2.0, but it must be "),
    ("    config: {gamma: 0.2}", "    preset: papr", "small.yaml:15: methods.1.preset: 'papr' is not a preset of "),
    (
        "- clip",
        "- {method: m2mix, preset: paper}",
        "small.yaml:13: methods.0.preset: 'paper' is not a preset of m2mix; valid: official, official_readme",
    ),
    ("method: label_permutation", "method: clip\n    lable: b", "small.yaml:15: methods.1.lable: unknown key; did you"),
    ("- clip", "- label_permutation", "small.yaml:14: methods.1: duplicate label 'label_permutation'; "),
    ("name: small", "name: runs", "small.yaml:1: name: 'runs' is where the store keeps runs; choose another name"),
    ("name: small", "name: RUNS", "small.yaml:1: name: 'RUNS' is where the store keeps runs; choose another name"),
    ("name: small", "name: Store.JSON", "small.yaml:1: name: 'Store.JSON' is where the store keeps store; choose"),
    (
        "- clip",
        "- {method: clip, label: e\u0301}\n  - {method: clip, label: \u00e9}",
        "small.yaml:14: methods.1: duplicate label '\u00e9'",
    ),
    ("{epochs: 2}", "{epochs:2}", "small.yaml:7: budget.epochs:2: needs a space after the colon: {epochs: 2}"),
    ("name: small", "name: a/b", "small.yaml:1: name: 'a/b' "),
    ("name: small\n", "", "small.yaml:1: name: is missing"),
    ("seeds: [0, 1]", "seeds: [0, 1]\nseeds: [2]", "small.yaml:7: seeds: duplicate key"),
    ("seeds: [0, 1]", "seeds: [0, 1", "small.yaml:7: not valid YAML: "),
    ("seeds: [0, 1]", "seeds: &a [*a]", "small.yaml:6: seeds.0: an alias contains itself"),
    ("{name: emoji, size: 32}", "emoji", "small.yaml:2: data: 'emoji' should be a mapping"),
]


@pytest.mark.parametrize(("old", "new", "expected"), CASES, ids=[case[1].strip().replace("\n", " ") for case in CASES])
def test_a_mistake_is_one_line_that_names_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert GOOD.count(old) == 1
    (line,) = mistakes(tmp_path, GOOD.replace(old, new))
    assert line.startswith(expected)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("wds_quickdraw", "quickdraw"),
        ("wds_vtab-pets", "pets"),
        ("wds_imagenet-a_test", "imagenet-a"),
        ("wds_mine", "mine"),
    ],
)
def test_a_folder_of_evaluation_data_is_not_its_name(tmp_path: Path, folder: str, name: str) -> None:
    (line,) = mistakes(tmp_path, GOOD.replace("[zero_shot]", f"[zero_shot], datasets: {{zero_shot: [{folder}]}}"))
    assert line == (
        f"small.yaml:11: evaluate.datasets.zero_shot.0: {folder!r} is the name of a folder; "
        f"the data set in it is called {name!r}"
    )


@pytest.mark.parametrize(
    ("budget", "said"),
    [("{}", "nothing"), ("{epochs: 1, samples: 5}", "epochs and samples"), ("{flops: null}", "nothing")],
)
def test_a_budget_is_of_exactly_one_kind(tmp_path: Path, budget: str, said: str) -> None:
    (line,) = mistakes(tmp_path, GOOD.replace("{epochs: 2}", budget))
    assert line == (
        f"small.yaml:7: budget: has {said}; should have exactly one of epochs, samples, flops, device_seconds"
    )


@pytest.mark.parametrize(
    ("field", "nearest"),
    [
        ("kind: shufled_captions", "shuffled_captions"),
        ("tasks: [zero_shto]", "zero_shot"),
    ],
)
def test_a_misspelt_choice_names_the_nearest(tmp_path: Path, field: str, nearest: str) -> None:
    key = field.split(":")[0]
    old = next(part for part in ("kind: shuffled_captions", "tasks: [zero_shot]") if part.startswith(key))
    (line,) = mistakes(tmp_path, GOOD.replace(old, field))
    assert line.endswith(f"; did you mean {nearest!r}?")


def test_a_time_needs_no_quotes_and_a_number_alone_is_said(tmp_path: Path) -> None:
    for time in ("24:00:00", "2-12:00:00", "90:00", "'90'"):
        found = load_suite(write(tmp_path, f"{GOOD}slurm: {{time: {time}}}\n"))
        assert found.slurm.time == time.strip("'")
    assert load_suite(write(tmp_path, GOOD), ["slurm.time=1:30:00"]).slurm.time == "1:30:00"
    (line,) = mistakes(tmp_path, GOOD + "slurm: {time: 90}\n")
    assert line == "small.yaml:16: slurm.time: 90 should be a valid string"


def test_towers_are_looked_up(tmp_path: Path) -> None:
    (line,) = mistakes(tmp_path, GOOD, "towers.image=tiny-resnt")
    assert (
        line
        == "--set towers.image=tiny-resnt: towers.image: no image tower named 'tiny-resnt'; did you mean 'tiny-resnet'?"
    )


def test_a_method_that_needs_what_the_towers_lack_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace("  - clip\n", "  - clip\n  - ncu\n  - {method: cyclip, config: {in_modal: true}}\n")
    assert load_suite(write(tmp_path, text), ["towers.text=bert-base-uncased"]).methods
    (line,) = mistakes(tmp_path, text, "towers.text=roberta-ViT-B-32")
    assert line == (
        "small.yaml:14: methods.1: ncu needs text_transformer (it reaches into the text tower), but towers.text "
        "roberta-ViT-B-32 is a model of transformers that open_clip wraps; take a transformer of open_clip or ours, or "
        "bert-base-uncased"
    )


def test_all_mistakes_of_a_file_are_listed_in_its_order(tmp_path: Path) -> None:
    text = GOOD.replace("batch:", "btach:").replace("size:", "siez:").replace("- clip", "- {mehtod: clip}")
    lines = mistakes(tmp_path, text)
    assert [line.split(": ")[0] for line in lines] == ["small.yaml:2", "small.yaml:9", *["small.yaml:13"] * 2]


@pytest.mark.parametrize(
    ("override", "start"),
    [
        ("train.lr", "--set train.lr: should look like"),
        ("train..lr=1", "--set train..lr=1: should look like"),
        ("train.lr=[", "--set train.lr=[: '[' is not valid YAML"),
        ("train={batch: x}", "--set train={batch: x}: train.batch: 'x' should be a valid integer"),
        ("train.lr=x", "--set train.lr=x: train.lr: 'x' should be a valid number"),
        (
            "methods.cilp.config.x=1",
            "--set methods.cilp.config.x=1: 'cilp' is not an entry of the list; did you mean 'clip'?",
        ),
        ("budget.samples=9", "small.yaml:7: budget: has epochs and samples"),
        ("methods.clip.config.hot=1", "--set methods.clip.config.hot=1: methods.0.config.hot: unknown hyper-parameter"),
    ],
)
def test_overrides_are_checked_like_the_file(tmp_path: Path, override: str, start: str) -> None:
    (line,) = mistakes(tmp_path, GOOD, override)
    assert line.startswith(start)


@pytest.mark.parametrize(("content", "said"), [(b"", ":1: should be a mapping"), (b"- a\n", ":1: should be a mapping")])
def test_a_file_that_is_no_suite(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=said):
        load_suite(path)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"name: x\ndescription: caf\xe9\n")
    with pytest.raises(UserError, match=r"x\.yaml:2: is not UTF-8; save the file as UTF-8"):
        load_suite(path)
    with pytest.raises(UserError, match=r": is a folder; name the YAML file of a suite"):
        load_suite(tmp_path)


def test_an_unknown_suite_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"quickstrat: no such suite file.*did you mean 'quickstart'"):
        load_suite("quickstrat")
