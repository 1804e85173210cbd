"""`bench check`: a table, an exit code, a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.adapters import registry
from bench.checks import suite
from bench.checks.suite import CHECKS, Check
from bench.cli import app, methods
from bench.errors import UserError

pytestmark = pytest.mark.usefixtures("own_plugins")
MINE = """
from methods.clip import Clip

class Mine(Clip):
    name = "mine"
"""


@pytest.fixture(autouse=True)
def few_checks(monkeypatch: pytest.MonkeyPatch) -> tuple[Check, ...]:
    """Only the checks that take no time; that the whole list runs is tested where every method passes it."""
    few = tuple(check for check in CHECKS if check.name in ("card", "tiles", "scalars", "identities"))
    examine = suite.run_checks
    monkeypatch.setattr(suite, "run_checks", lambda subject, pool, **more: examine(subject, pool, few, **more))
    return few


def test_a_users_file_is_checked_and_reported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    result = CliRunner().invoke(app, ["check", str(tmp_path / "mine.py"), "--report", str(tmp_path / "a.json")])
    assert result.exit_code == 0, result.output
    _, *lines, _, written_to = result.stdout.splitlines()
    assert written_to == str(tmp_path / "a.json")
    rows = {line.split()[0]: line.split()[1] for line in lines}
    assert rows == {"card": "passed", "identities": "skipped", "tiles": "passed", "scalars": "passed"}
    assert "declares none" in result.stdout
    written = json.loads((tmp_path / "a.json").read_text())
    assert {row["check"]: row["outcome"] for row in written} == rows


def test_a_failed_check_is_exit_code_1_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE + "    def after_step(self, clock):\n        pass\n")
    report = tmp_path / "report.json"
    result = CliRunner().invoke(app, ["check", str(tmp_path / "mine.py"), "--report", str(report)])
    assert result.exit_code == 1
    for text in (result.stdout, report.read_text()):
        assert "failed" in text
        assert "the logit scale goes to" in text
    assert all(check in report.read_text() for check in ("card", "tiles", "scalars"))


def test_all_ends_with_a_matrix(few_checks: tuple[Check, ...]) -> None:
    result = CliRunner().invoke(app, ["check", "--all"])
    assert result.exit_code == 0, result.output
    for name in registry.method_names():
        (row,) = [line for line in result.stdout.splitlines() if line.startswith(f"{name} ")]
        assert len(row.split()) == 1 + len(few_checks) + 2


@pytest.mark.parametrize(
    ("target", "everything", "message"),
    [
        ("clpi", False, "'clpi' is not a method; did you mean 'clip'?"),
        ("nowhere.py", False, "nowhere.py: no such file"),
        (None, False, "give a method"),
        ("clip", True, "give a method"),
    ],
)
def test_bad_input_is_named(target: str | None, everything: bool, message: str) -> None:
    with pytest.raises(UserError, match="^.*" + message.replace(".", r"\.").replace("?", r"\?")):
        methods.check(target, everything)


def test_a_file_that_cannot_be_imported_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import nowhere_to_be_found\n\nclass A(object):\n    name = 'broken'\n")
    with pytest.raises(UserError, match=r"broken\.py:1: cannot be imported: ModuleNotFoundError"):
        suite.check(str(path))


def test_every_check_has_a_line_about_it() -> None:
    assert all(check.about for check in CHECKS)
    assert set(suite.OUTCOME_SIGNS) == {"passed", "failed", "skipped", "expected"}
