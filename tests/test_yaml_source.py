"""YAML as people write it: what scalars mean, where every value stands, and what `--set` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from bench.errors import UserError
from bench.settings_base import Model
from bench.yaml_source import YamlSource, dotted, fault, faults_of, value_line

WORD = st.text("abcxyz", min_size=1, max_size=5)
quick = settings(deadline=None, max_examples=50)


def located(folder: Path, text: str) -> YamlSource:
    path = folder / "s.yaml"
    path.write_text(text)
    return YamlSource.read(path)


def read(folder: Path, scalar: str) -> Any:
    return located(folder, f"a: {scalar}\n").data["a"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("1E3", 1000.0), ("-.5", -0.5), ("3.", 3.0), ("+2", 2), ("010", 10), ("1_000", 1000),
        ("no", "no"), ("off", "off"), ("yes", "yes"), ("2024-01-01", "2024-01-01"), ("12:30", "12:30"),
        ("0x10", "0x10"), ("true", True), ("False", False), ("TRUE", "TRUE"), ("null", None), ("~", None), ('"3"', "3"),
        ("1.2.3", "1.2.3"), (".inf", float("inf")), ("e5", "e5"),
        (r'"\ud83d\ude00 x"', "\U0001f600 x"),
    ],
)  # fmt: skip
def test_scalars_mean_what_they_look_like(tmp_path: Path, text: str, value: object) -> None:
    found = read(tmp_path, text)
    assert found == value
    assert type(found) is type(value)


@quick
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**12), 10**12))
def test_every_number_that_python_prints_is_that_number(
    tmp_path_factory: pytest.TempPathFactory, number: float
) -> None:
    found = read(tmp_path_factory.mktemp("y"), repr(number))
    assert found == number
    assert type(found) is type(number)


@quick
@given(st.lists(st.tuples(WORD, WORD), min_size=1, max_size=6, unique_by=lambda item: item[0]), st.integers(0, 3))
def test_every_value_knows_its_line(
    tmp_path_factory: pytest.TempPathFactory, items: list[tuple[str, str]], blank: int
) -> None:
    lines = [""] * blank + ["top:"] + [f"  {key}: [{value}, {value}]" for key, value in items]
    found = located(tmp_path_factory.mktemp("y"), "\n".join(lines) + "\n")
    assert found.where(("top",)) == f"{found.name}:{blank + 1}"
    for number, (key, _) in enumerate(items):
        line = f"{found.name}:{blank + 2 + number}"
        assert found.where(("top", key)) == found.where(("top", key, 1)) == line
        assert found.where(("top", key, 1, "below", 7)) == line, "the nearest thing around it"
    assert found.where(("other",)).startswith(f"{found.name}:"), "what is nowhere stands in the file"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", ":3: a: duplicate key"),
        ("a:\n  b: 1\n  b: 2\n", ":3: a.b: duplicate key"),
        ("- 1\n", ":1: should be a mapping"),
        ("", ":1: should be a mapping"),
        ("a: [1,\n", ":2: not valid YAML"),
        ("a: &x\n  b: *x\n", "a.b: an alias contains itself"),
        ("a: !!python/object:os.system x\n", "not valid YAML"),
        ('a: "\\ud83d x"\n', "control character U+D83D"),
    ],
)
def test_what_is_no_suite_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        located(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "s.yaml"))
    assert said in str(caught.value)


def test_a_file_that_is_not_there_or_is_not_utf8_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.yaml: cannot be read"):
        YamlSource.read(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"bytes\.yaml:1: is not UTF-8; save the file as UTF-8"):
        YamlSource.read(tmp_path / "bytes.yaml")


def test_set_changes_a_value_and_is_named_as_its_place(tmp_path: Path) -> None:
    found = located(tmp_path, "train: {lr: 1, batch: 8}\nmethods:\n  - clip\n  - {method: ncu, label: two}\n")
    found.set("train.lr=1e-3")
    found.set("new.deep.key=[a, 2]")
    found.set("methods.clip.lr=5")
    found.set("methods.two.config.x=true")
    found.set("methods.1.label=three")
    assert found.data == {
        "train": {"lr": 1e-3, "batch": 8},
        "new": {"deep": {"key": ["a", 2]}},
        "methods": [{"method": "clip", "lr": 5}, {"method": "ncu", "label": "three", "config": {"x": True}}],
    }
    assert found.where(("train", "lr")) == "--set train.lr=1e-3"
    assert found.where(("train", "batch")) == f"{found.name}:1"
    assert found.where(("new", "deep", "key", 1)) == "--set new.deep.key=[a, 2]"
    assert found.where(("methods", 0, "lr")) == "--set methods.clip.lr=5"


def test_set_changes_one_place_of_a_value_with_aliases(tmp_path: Path) -> None:
    found = located(tmp_path, "a: &it {x: [1, 2]}\nb: *it\nc: {<<: *it}\n")
    found.set("b.x.0=5")
    assert found.data == {"a": {"x": [1, 2]}, "b": {"x": [5, 2]}, "c": {"x": [1, 2]}}


def test_what_stood_inside_a_replaced_value_is_forgotten(tmp_path: Path) -> None:
    found = located(tmp_path, "train:\n  lr: 1\n  deep:\n    x: 1\n")
    found.set("train={lr: 2}")
    assert found.where(("train", "deep", "x")) == found.where(("train", "lr")) == "--set train={lr: 2}"


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("train.lr", "should look like --set train.lr=1e-3"),
        ("=3", "should look like"),
        ("a..b=3", "should look like"),
        ("a=[1", "'[1' is not valid YAML"),
        ("methods.clap.lr=1", "'clap' is not an entry of the list; did you mean 'clip'?"),
        ("methods.2=ncu", "'2' is not an entry of the list"),
    ],
)
def test_a_set_that_cannot_be_is_refused(tmp_path: Path, assignment: str, said: str) -> None:
    found = located(tmp_path, "methods: [clip, ncu]\n")
    with pytest.raises(UserError) as caught:
        found.set(assignment)
    assert str(caught.value).startswith(f"--set {assignment}: ")
    assert said in str(caught.value)


def test_several_faults_stand_in_the_order_of_the_file_each_once(tmp_path: Path) -> None:
    found = located(tmp_path, "a: 1\nb: 2\nc:\n  d: 1\n")
    message = str(found.fail([(("c", "d"), "third"), (("a",), "first"), (("b",), "second"), (("a",), "first")]))
    said = [line.split(": ", 1)[1] for line in message.splitlines()]
    assert said == ["a: first", "b: second", "c.d: third"]
    assert dotted(("methods", 1, "config")) == "methods.1.config"


def test_a_lone_value_where_several_could_be_is_named_as_it_is_written(tmp_path: Path) -> None:
    found = located(tmp_path, "towers:\n  dim: 0\n")
    assert str(found.fail([(("towers", 0, "dim"), "is wrong")])) == f"{found.name}:2: towers.dim: is wrong"


class Inner(Model):
    number: int = 0
    share: float = Field(default=0.5, gt=0)


class Outer(Model):
    inner: Inner = Inner()
    several: tuple[Inner, ...] = Field(default=(), strict=False)
    names: tuple[str, ...] = Field(default=("a",), min_length=1, strict=False)


@pytest.mark.parametrize(
    ("given_", "place", "said"),
    [
        ({"inner": {"numbr": 1}}, ("inner", "numbr"), "unknown key; did you mean 'number'?"),
        ({"several": [{}, {"shar": 1}]}, ("several", 1, "shar"), "unknown key; did you mean 'share'?"),
        ({"inner": {"number": "3"}}, ("inner", "number"), "'3' should be a valid integer"),
        ({"inner": {"share": 0.0}}, ("inner", "share"), "0.0 should be greater than 0"),
        ({"inner": {"share": float("inf")}}, ("inner", "share"), "inf should be a finite number"),
        ({"inner": 3}, ("inner",), "3 should be a mapping of Inner"),
        ({"names": []}, ("names",), "[] is too short"),
    ],
)
def test_a_models_errors_are_said_in_our_words(given_: dict[str, object], place: tuple[object, ...], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(given_)
    assert faults_of(caught.value, Outer) == [(place, said)]


def test_a_validators_fault_keeps_its_place() -> None:
    error = fault("is odd", "deep", 3)
    assert error.message() == "is odd"
    assert error.context == {"message": "is odd", "at": ["deep", 3]}


@quick
@given(st.text() | st.lists(st.integers()))
def test_a_value_is_shown_on_one_short_line(value: object) -> None:
    text = value_line(value)
    assert len(text) <= 60
    assert "\n" not in text
    assert text.endswith("...") or " ".join(repr(value).split()) == text


def test_a_document_is_read_by_the_loader_that_reads_overrides(tmp_path: Path) -> None:
    """PyYAML's own loader would read these otherwise."""
    found = located(tmp_path, "a: 0\n")
    for text in ("no", "1e3", "010", "12:30:00"):
        found.set(f"a={text}")
        assert found.data["a"] == read(tmp_path, text)
        assert found.data["a"] != yaml.safe_load(text)
