"""A run's address changes with any input that could change its result, and with nothing else."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import hashing
from bench.adapters import registry
from bench.errors import UserError
from bench.suite import run as suite_run
from bench.suite.run import Run, run_address
from bench.suite.suite import load_suite

BASE: dict[str, Any] = {
    "name": "base",
    "data": {"name": "emoji", "size": 32},
    "noise": {"kind": "shuffled_captions", "rates": [0.25]},
    "seeds": [0],
    "budget": {"samples": 1024},
    "towers": {"image": "tiny-resnet", "text": "tiny-transformer", "dim": 32, "vocabulary": 512},
    "train": {"batch": 64, "bn_group": 32, "lr": 0.001, "betas": [0.9, 0.98], "warmup": 0.1, "precision": "fp32"},
    "methods": [{"method": "clip", "config": {"temperature": 0.07, "learnable_scale": True}}],
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def runs_of(folder: Path, suite: dict[str, Any]) -> list[Run]:
    path = folder / "s.yaml"
    path.write_text(yaml.safe_dump(suite, sort_keys=False))
    return load_suite(path).runs()


def id_of(folder: Path, suite: dict[str, Any], **inputs: Any) -> str:
    (run,) = runs_of(folder, suite)
    return hashing.digest(run_address(run, **{"data_hash": "d", "manifest_hash": "m", **inputs}))


def changed(path: str, value: Any) -> dict[str, Any]:
    suite = copy.deepcopy(BASE)
    target: Any = suite
    *parents, last = path.split(".")
    for part in parents:
        target = target[int(part) if part.isdigit() else part]
    target[int(last) if last.isdigit() else last] = value
    return suite


def shuffled(value: Any, draw: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw(st.permutations(sorted(value)))}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value


@pytest.mark.promise("the order of keys and entries changes no id")
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_order_of_keys_changes_nothing(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("order")
    assert id_of(folder, shuffled(BASE, data.draw)) == id_of(folder, BASE)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_the_order_of_entries_changes_nothing(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    many = {**BASE, "seeds": [0, 1], "methods": ["clip", "siglip", "sogclr"]}
    many["noise"] = {"kind": "shuffled_captions", "rates": [0.0, 0.2]}
    other = {**many, **{key: data.draw(st.permutations(many[key])) for key in ("seeds", "methods")}}
    other["noise"] = {**many["noise"], "rates": data.draw(st.permutations([0.0, 0.2]))}
    folder = tmp_path_factory.mktemp("entries")
    ids = [
        {(run.label, run.rate, run.seed): hashing.digest(run_address(run, "d", "m")) for run in runs_of(folder, one)}
        for one in (many, other)
    ]
    assert ids[0] == ids[1]
    assert len(set(ids[0].values())) == 12


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.size", 64),
        ("noise.kind", "resampled_positives"),
        ("noise.rates", [0.26]),
        ("noise.rates", [0.0]),
        ("seeds", [1]),
        ("budget", {"samples": 1025}),
        ("budget", {"flops": 1024}),
        ("towers.image", "tiny-vit"),
        ("towers.dim", 33),
        ("towers.vocabulary", 513),
        ("train.batch", 128),
        ("train.bn_group", 64),
        ("train.lr", 0.0010000001),
        ("train.betas", [0.98, 0.9]),
        ("train.warmup", 0.2),
        ("train.precision", "bf16"),
        ("train.augment", "none"),
        ("train.eps", 1e-8),
        ("train.weight_decay", 0.2),
        ("train.threads", 2),
        ("methods.0.method", "sogclr"),
        ("methods.0.config.temperature", 0.08),
        ("methods.0.config.learnable_scale", False),
    ],
)
def test_any_changed_value_changes_the_id(tmp_path: Path, path: str, value: Any) -> None:
    suite = changed(path, value)
    if path == "methods.0.method":
        suite["methods"][0]["config"] = {}
    assert id_of(tmp_path, suite) != id_of(tmp_path, BASE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "other"),
        ("description", "words"),
        ("train.micro_batch", 32),
        ("train.weight_decay", 0.1),
        ("train.eps", 1.0e-6),
        ("train.threads", 1),
        ("methods.0.label", "mine"),
        ("methods.0.config", {}),
        ("methods.0.preset", "paper"),
        ("evaluate", {"tasks": ["retrieval"], "curve": [0.5]}),
        ("budget.samples", 1024.0),
    ],
)
def test_what_cannot_change_the_result_changes_nothing(tmp_path: Path, path: str, value: Any) -> None:
    assert id_of(tmp_path, changed(path, value)) == id_of(tmp_path, BASE)


@pytest.mark.promise("a changed byte of any input changes the run's id")
@pytest.mark.parametrize("name", ["data_hash", "manifest_hash", "reference_id", "calibration_hash"])
def test_any_changed_content_changes_the_id(tmp_path: Path, name: str) -> None:
    assert id_of(tmp_path, BASE, **{name: "other"}) != id_of(tmp_path, BASE)


def test_a_clean_run_is_the_same_in_suites_of_either_noise(tmp_path: Path) -> None:
    clean = changed("noise", {"kind": "shuffled_captions", "rates": [0]})
    resampled = changed("noise", {"kind": "resampled_positives", "rates": [0.0]})
    assert id_of(tmp_path, clean, manifest_hash="empty") == id_of(tmp_path, resampled, manifest_hash=None)


def test_the_training_version_and_the_tower_tables_are_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = id_of(tmp_path, BASE)
    with monkeypatch.context() as patch:
        patch.setattr(suite_run, "TRAINING_VERSION", suite_run.TRAINING_VERSION + 1)
        assert id_of(tmp_path, BASE) != before
    with monkeypatch.context() as patch:
        from bench.catalogue.architectures import IMAGE_TOWERS

        patch.setitem(IMAGE_TOWERS, "tiny-resnet", {**IMAGE_TOWERS["tiny-resnet"], "width": 24})
        assert id_of(tmp_path, BASE) != before
    assert id_of(tmp_path, BASE) == before


def test_the_meaning_of_the_adapter_changes_the_id_its_words_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_plugins", {})
    file = tmp_path / "mine.py"
    text = 'from methods.clip import Clip\n\nclass Mine(Clip):\n    name = "mine"\n    SIZE = 1\n'
    file.write_text(text)
    registry.add_plugin(file)
    before = id_of(tmp_path, changed("methods.0.method", "mine"))
    assert id_of(tmp_path, changed("methods.0.method", "mine")) == before
    file.write_text(f'"""Words."""\n{text}# more words\n')
    assert id_of(tmp_path, changed("methods.0.method", "mine")) == before
    file.write_text(text.replace("SIZE = 1", "SIZE = 2"))
    assert id_of(tmp_path, changed("methods.0.method", "mine")) != before
    registry.clear_caches()


@given(json_values, st.data())
def test_canonical_json_ignores_the_order_of_keys(value: Any, data: st.DataObject) -> None:
    assert hashing.canonical(shuffled(value, data.draw)) == hashing.canonical(value)


@given(json_values)
def test_canonical_json_knows_one_spelling(value: Any) -> None:
    assert hashing.canonical(json.loads(hashing.canonical(value))) == hashing.canonical(value)


@given(st.integers(-(2**53), 2**53))
def test_a_whole_float_is_its_int(number: int) -> None:
    assert hashing.canonical({"x": [number]}) == hashing.canonical({"x": (float(number),)})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_there_is_no_spelling_for_what_is_no_number(value: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        hashing.canonical({"x": value})


def test_true_is_not_one_and_text_is_not_a_number() -> None:
    assert len({hashing.digest(value) for value in (True, 1, "1", [1], None, False, 0)}) == 7


def test_a_file_that_is_not_there_has_its_own_error_and_no_id(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path, changed("methods.0.start", "nowhere.safetensors"))
    assert run.content()["start"] == hashing.Absent("nowhere.safetensors: cannot be read: No such file or directory")
    assert run.key != runs_of(tmp_path, BASE)[0].key
    with pytest.raises(
        hashing.MissingFile, match=r"start: nowhere\.safetensors: cannot be read: .*; a path, or open_clip"
    ):
        hashing.digest(run_address(run, "d", "m"))


def test_words_that_look_like_a_missing_file_are_words() -> None:
    """What is not there is told by its type: a value that begins with "missing: " is a value."""
    assert hashing.digest({"x": "missing: y"}) != hashing.digest({"x": hashing.Absent("y")})


def test_a_path_among_hyper_parameters_stands_for_its_bytes(tmp_path: Path) -> None:
    def with_words(folder: str, text: str) -> str:
        words = tmp_path / folder
        words.mkdir(exist_ok=True)
        (words / "data.noun").write_text(text)
        suite = changed("methods.0", {"method": "ncu", "config": {"wordnet": str(words)}})
        run = runs_of(tmp_path, suite)[-1]
        assert run.settings()["config"]["wordnet"] == str(words)
        return hashing.digest(run_address(run, "d", "m", "r"))

    assert with_words("here", "cat") == with_words("there", "cat")
    assert with_words("here", "cat") != with_words("here", "dog")
    endless = changed("methods.0", {"method": "ncu", "config": {"wordnet": "/dev/zero"}})
    with pytest.raises(UserError, match="/dev/zero: cannot be read: it is a device, not a file"):
        run_address(runs_of(tmp_path, endless)[-1], "d", "m", "r")
