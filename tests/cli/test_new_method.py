"""`bench new-method` writes a method and a test that pass as they stand, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from bench.adapters import registry
from bench.adapters.scaffold import template_source, write_new_method
from bench.checks import suite
from bench.cli import app
from bench.errors import UserError


def generated(folder: Path) -> None:
    """Three generated methods: one as it stands, one with another Config, one that is wrong."""
    write_new_method("two_words", folder / "new")
    changed, _ = write_new_method("changed_loss", folder / "changed")
    head = "    def __post_init__(self) -> None:\n"
    field = "    power: float = 1.0  #: exponent of the total\n\n"
    text = (
        changed.read_text().replace("epsilon", "smoothing").replace("total / (2 *", "total**self.config.power / (2 *")
    )
    changed.write_text(text.replace(head, f'{field}{head}        check(self, "power", self.power > 0, "> 0")\n'))
    wrong, _ = write_new_method("wrong_loss", folder / "wrong")
    wrong.write_text(wrong.read_text().replace("total / (2 *", "total / (3 *"))


PYTEST = """
import sys
import pytest
from forked_server import prepare

prepare()
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, start_script: Callable[..., Any]) -> dict[str, list[str]]:
    """For each generated method the outcomes of its own tests, which one pytest runs in a folder of nobody else's."""
    folder = tmp_path_factory.mktemp("generated")
    generated(folder)
    tests = [
        "new/test_two_words.py",
        "changed/test_changed_loss.py",
        "wrong/test_wrong_loss.py::test_without_smoothing_it_is_clip",
    ]
    script = tmp_path_factory.mktemp("script") / "run_pytest.py"
    script.write_text(PYTEST)
    arguments = ("-q", "-p", "no:cacheprovider", "--junit-xml=report.xml", *tests)
    code, output = start_script(script, *arguments, cwd=folder).finish()
    assert code == 1, output
    by_method: dict[str, list[str]] = {}
    for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
        outcome = "passed" if not len(case) else f"{case[0].tag}: {case[0].get('message')}"
        by_method.setdefault(case.get("classname", "").partition(".")[0], []).append(outcome)
    return by_method


def test_what_it_writes_passes_its_own_test_and_with_it_bench_check(
    tmp_path: Path, outcomes: dict[str, list[str]]
) -> None:
    files = write_new_method("two_words", tmp_path / "new")
    assert [path.name for path in files] == ["two_words.py", "test_two_words.py"]
    assert outcomes["new"] == ["passed", "passed"]


def test_its_test_fails_where_the_method_is_wrong(outcomes: dict[str, list[str]]) -> None:
    (outcome,) = outcomes["wrong"]
    assert outcome.startswith("failure: AssertionError: Scalars are not close!"), outcome


def test_its_test_outlives_a_changed_config(outcomes: dict[str, list[str]]) -> None:
    assert outcomes["changed"] == ["passed", "passed"]


@pytest.mark.usefixtures("own_plugins")
def test_an_identity_that_says_an_old_field_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    method, _ = write_new_method("my_loss", tmp_path)
    old = '{"epsilon": 0.0}'
    text = method.read_text().replace(old, "OLD").replace("epsilon", "smoothing").replace("OLD", old)
    method.write_text(text)
    chosen = tuple(check for check in suite.CHECKS if check.name in ("refusals", "identities"))
    examine = suite.run_checks
    monkeypatch.setattr(suite, "run_checks", lambda subject, pool, **more: examine(subject, pool, chosen, **more))
    result = CliRunner().invoke(app, ["check", str(method)])
    assert result.exit_code == 1, result.output
    output = " ".join(result.output.split())
    assert "identity 'without smoothing it is CLIP': 'epsilon' is not a field of Config" in output


def test_the_name_is_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, test = write_new_method("soft_focal2", tmp_path)
    text = method.read_text() + test.read_text()
    assert "my_loss" not in text
    assert "MyLoss" not in text
    assert "class SoftFocal2(" in text
    monkeypatch.setattr(registry, "_plugins", {})
    assert registry.add_plugin(method) == "soft_focal2"
    assert registry.find_method("soft_focal2").about.title == "Soft focal2"
    monkeypatch.undo()
    registry.clear_caches()


def test_it_is_short_and_parses() -> None:
    source = template_source("my_loss")
    ast.parse(source)
    assert len(source.splitlines()) <= 40
    assert max(map(len, source.splitlines())) <= 120


@pytest.mark.parametrize("taken", ["my_loss.py", "test_my_loss.py"])
def test_nothing_is_overwritten(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    with pytest.raises(UserError, match=f"{taken}: already exists"):
        write_new_method("my_loss", tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("clip", "there is a method of this name, .*clip.py"),
        ("class", "is a Python keyword"),
        ("MyLoss", "lower-case words with underscores"),
        ("my-loss", "lower-case words with underscores"),
        ("../loss", "lower-case words with underscores"),
        ("", "lower-case words with underscores"),
        ("random", "a Python module has this name"),
        ("base", "a Python module has this name"),
    ],
)
def test_a_name_that_cannot_be_is_refused(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        write_new_method(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--folder .*file: is not a folder"):
        write_new_method("my_loss", tmp_path / "file")
