"""Methods are found in files, entry points and plugins; a broken one is said with file and line."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from bench.adapters import hyperparameters, registry
from bench.errors import UserError
from methods.protocol import Facts

pytestmark = pytest.mark.usefixtures("own_plugins")
ROOT = Path(registry.__file__).parents[1]
GOOD = """\
from dataclasses import dataclass
from typing import Literal

from methods.clip import Clip
from methods.base import check

@dataclass(frozen=True)
class Config:
    temperature: float = 0.07
    learnable_scale: bool = True
    sizes: tuple[int, ...] = (1, 2)
    mode: Literal["a", "b"] = "a"

    def __post_init__(self):
        word = "anything else"
        check(self, "sizes", self.sizes != (9,), word)


class Mine(Clip):
    name = "mine"
    Config = Config
    presets = {"paper": {"temperature": 1, "mode": "b"}}
"""


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_every_method_of_the_package_can_be_found_and_made() -> None:
    methods = {name: registry.find_method(name) for name in registry.method_names()}
    assert {"clip", "siglip"} <= set(methods)
    for name, method in methods.items():
        assert method.name == name
        made = hyperparameters.make_method(name, None, {}, Facts(rows=64, batch=8, dim=4, seed=0))
        assert isinstance(made, method)
        for preset in method.presets:
            hyperparameters.resolve_config(name, preset, {})


def test_listing_names_imports_neither_torch_nor_adapters() -> None:
    code = "import sys; from bench.adapters import registry;"
    code += "assert 'clip' in registry.method_names(); registry.method_source('clip');"
    code += "from bench.adapters.reach import adapter_source_hash; adapter_source_hash('clip');"
    code += "assert not {'torch', 'methods.clip', 'methods.base'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_a_plugin_is_a_method_like_any_other(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert registry.add_plugin(path) == "mine"
    assert "mine" in registry.method_names()
    assert hyperparameters.resolve_config("mine", "paper", {"sizes": [3]}) == {
        "temperature": 1.0,
        "learnable_scale": True,
        "sizes": (3,),
        "mode": "b",
    }
    method = hyperparameters.make_method("mine", "paper", {"temperature": 0.5}, Facts(rows=8, batch=4, dim=2, seed=0))
    assert (method.config.temperature, method.config.mode) == (0.5, "b")


@pytest.mark.parametrize(
    ("preset", "config", "expected"),
    [
        ("papper", {}, "mine: preset: 'papper' is not a preset of mine; did you mean 'paper'?"),
        (
            None,
            {"temprature": 1},
            "mine: config.temprature: unknown hyper-parameter of mine; did you mean 'temperature'?",
        ),
        (None, {"temperature": True}, "mine: config.temperature: True should be a valid number"),
        (None, {"temperature": float("inf")}, "mine: config.temperature: inf should be a finite number"),
        (
            None,
            {"sizes": [1, 10**6 + 1]},
            "mine: config.sizes: 1000001 should be at most 1,000,000",
        ),
        (None, {"learnable_scale": 1}, "mine: config.learnable_scale: 1 should be a valid boolean"),
        (None, {"sizes": [1, "2"]}, "mine: config.sizes: [1, '2'] should be a valid integer"),
        (None, {"mode": "c"}, "mine: config.mode: 'c' should be 'a' or 'b'"),
        (None, {"sizes": [9]}, "mine: config.sizes: (9,), but it must be anything else"),
    ],
)
def test_hyper_parameters_are_checked(
    tmp_path: Path, preset: str | None, config: dict[str, object], expected: str
) -> None:
    registry.add_plugin(write(tmp_path, GOOD))
    with pytest.raises(UserError) as caught:
        hyperparameters.resolve_config("mine", preset, config)
    assert str(caught.value) == expected


def test_the_place_of_a_refused_value_comes_from_the_error_not_from_its_words(tmp_path: Path) -> None:
    plain = GOOD.replace("check(self", "self.own(self").replace(
        "\n\nclass Mine",
        '\n    def own(self, *_):\n        raise ValueError("Config.sizes = 9\\n, in words")\n\n\nclass Mine',
    )
    registry.add_plugin(write(tmp_path, plain))
    with pytest.raises(UserError, match=r"^mine: config: Config\.sizes = 9 , in words$"):
        hyperparameters.resolve_config("mine", None, {"sizes": [9]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "\nx = 1 / 0\n", r"mine.py:24: cannot be imported: ZeroDivisionError: division by zero$"),
        (GOOD.replace("methods.clip", "methods.clpi"), r"mine.py:4: cannot be imported: ModuleNotFoundError: .*clpi'$"),
        (GOOD.replace("frozen=True", "frozen=False"), r"mine.py: Config of Mine should be a frozen dataclass$"),
        (
            GOOD.replace('"mode": "b"', '"mood": "b"'),
            r"mine.py: preset 'paper': 'mood' is not a field of Config; did you",
        ),
        (GOOD + '    reference = "clpi"\n', r"mine.py: reference 'clpi' is not a method; did you mean 'clip'"),
        (
            "def f():\n    import json\n    json.loads('')\n\n\n" + GOOD + "\nf()\n",
            r"mine.py:3: cannot be imported: JSONDecode",
        ),
        ("class M(object):\n    name = 'mine'\n", r"mine.py: class M lacks about, Config, presets, phases, loss"),
    ],
)
def test_a_broken_plugin_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    registry.add_plugin(write(tmp_path, text))
    with pytest.raises(UserError, match=message):
        registry.find_method("mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", r"mine.py:1: SyntaxError"),
        ("x = 1\n", r"mine.py:1: defines no method"),
        (GOOD.replace('"mine"', '"clip"'), r"mine.py: the method name 'clip' is taken by .*methods/clip.py"),
        (
            GOOD + '\n\nclass Other(Clip):\n    name = "other"\n',
            r"mine.py:25: a second method; a file defines exactly one",
        ),
    ],
)
def test_what_is_no_plugin_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        registry.add_plugin(write(tmp_path, text))
    assert {"mine", "other"}.isdisjoint(registry.method_names())


def test_a_missing_plugin(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        registry.add_plugin(tmp_path / "none.py")


def test_two_plugins_cannot_share_a_name(tmp_path: Path) -> None:
    registry.add_plugin(write(tmp_path, GOOD))
    with pytest.raises(UserError, match=r"other.py: the method name 'mine' is taken by .*mine.py"):
        registry.add_plugin(write(tmp_path, GOOD, "other.py"))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path that looks like an installed distribution with an entry point."""
    info = tmp_path / "lab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lab_method", raising=False)
    return info


def test_an_entry_point_is_a_method(install: Path) -> None:
    (install / "entry_points.txt").write_text("[bench.methods]\nmine = lab_method:Mine\n")
    write(install.parent, GOOD, "lab_method.py")
    assert importlib.metadata.entry_points(group=registry.ENTRY_POINT_GROUP)
    assert registry.find_method("mine").__module__ == "lab_method"
    assert registry.method_source("mine").path == install.parent / "lab_method.py"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("clip = lab_method:Mine", "the method name 'clip' is taken twice"),
        ("mine = lab_other:Mine", "entry point 'mine' of bench.methods: there is no module 'lab_other'"),
        ("yours = lab_method:Mine", 'should define exactly one class with name = "yours", not 0'),
    ],
)
def test_a_wrong_entry_point(install: Path, line: str, message: str) -> None:
    (install / "entry_points.txt").write_text(f"[bench.methods]\n{line}\n")
    write(install.parent, GOOD, "lab_method.py")
    with pytest.raises(UserError, match=message):
        registry.find_method(line.split()[0])


def test_a_need_that_is_no_word_names_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "needy.py"
    file.write_text(
        'from methods.clip import Clip\n\nclass Needy(Clip):\n    name = "needy"\n    needs = frozenset({"pixel"})\n'
    )
    registry.add_plugin(file)
    with pytest.raises(UserError, match=r"needs of Needy holds 'pixel', which is not a need; did you mean 'pixels'\?"):
        registry.find_method("needy")
