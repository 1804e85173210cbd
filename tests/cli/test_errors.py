"""Bad input: one line on stderr, exit code 2, nothing written. Real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import bench
from bench.cli import app

ROOT = Path(bench.__file__).parents[1]
SUITE = "name: small\nbudget: {epochs: 1}\nmethods: [clip]\n"


CALL = """
import warnings

from bench.cli import main

warnings.simplefilter("error")
main()
"""


@pytest.fixture(scope="module")
def call(start_script: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`bench ...` in `folder`, in a process of its own: its exit code, standard output and standard error."""
    script = tmp_path_factory.mktemp("script") / "bench"
    script.write_text(CALL)

    def called(folder: Path, *arguments: str) -> tuple[int, str, str]:
        process = start_script(script, *arguments, cwd=folder, merged=False)
        code, output = process.finish()
        return code, output, process.errors

    return called


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("", ["run", "nosuch.yaml"], "nosuch.yaml: no such suite file"),
        (
            "",
            ["run", "quickstrat"],
            "quickstrat: no such suite file, and no suite of that name; did you mean 'quickstart'?",
        ),
        (SUITE + "trian: {}\n", ["run", "s.yaml"], "s.yaml:4: trian: unknown key; did you mean 'train'?"),
        (SUITE + "trian: {}\n", ["report", "s.yaml"], "s.yaml:4: trian: unknown key; did you mean 'train'?"),
        (SUITE + "trian: {}\n", ["status", "s.yaml"], "s.yaml:4: trian: unknown key; did you mean 'train'?"),
        (SUITE + "train: {lr: 1, lr: 2}\n", ["run", "s.yaml"], "s.yaml:4: train.lr: duplicate key"),
        (
            SUITE.replace("clip", "clpi"),
            ["run", "s.yaml", "--dry-run"],
            "s.yaml:3: methods.0.method: 'clpi' is not a method; did you mean 'clip'?",
        ),
        (
            SUITE,
            ["run", "s.yaml", "--set", "budget.epochs=none"],
            "--set budget.epochs=none: budget.epochs: 'none' should",
        ),
        (SUITE, ["run", "s.yaml", "--only", "clpi"], "--only clpi: no entry of suite small; did you mean 'clip'?"),
        (SUITE, ["run", "s.yaml", "--seeds", "1"], "--seeds 1: suite small has 0; more with --set 'seeds=[0, 1]'"),
        (SUITE, ["run", "s.yaml", "--seeds", "x"], "--seeds x: should be whole numbers"),
        (SUITE, ["run", "s.yaml", "--results", "s.yaml", "--dry-run"], "--results s.yaml: not a folder"),
        (SUITE, ["status", "s.yaml", "--results", "s.yaml"], "--results s.yaml: not a folder"),
        (SUITE, ["run", "s.yaml", "--plugin", "p.py"], "--plugin p.py: no such file"),
        ("1 = 2", ["methods", "--plugin", "s.yaml"], "s.yaml:1: SyntaxError: cannot assign to literal"),
        (SUITE, ["show", "abc"], "'abc': no run in results has an id that starts like this (0 are stored)"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    tmp_path: Path, text: str, arguments: list[str], said: str, call: Callable[..., Any]
) -> None:
    (tmp_path / "s.yaml").write_text(text)
    code, output, errors = call(tmp_path, *arguments)
    assert code == 2
    assert output == ""
    assert errors.startswith(said)
    assert errors.count("\n") == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["s.yaml"]


def test_a_wrong_option_is_said_without_a_traceback(tmp_path: Path, call: Callable[..., Any]) -> None:
    code, _, errors = call(tmp_path, "run", "quickstart", "--dryrun")
    assert code == 2
    assert "--dry-run" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(("source", "shown"), [("1a2b+", " (commit 1a2b+)"), (None, "")])
def test_the_version_is_the_packages_with_the_commit_if_it_is_known(
    monkeypatch: pytest.MonkeyPatch, source: str | None, shown: str
) -> None:
    monkeypatch.setattr("bench.machine.commit.commit", lambda: source)
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"bench {version('robust-cl-bench')}{shown}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["noise", "show", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    heavy = {"torch", "numpy", "pandas", "yaml", "pyarrow", "matplotlib", "open_clip"}
    code = (
        "import sys, bench.cli\n"
        f"sys.argv = ['bench', *{arguments}]\n"
        "try: bench.cli.main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        f"assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Usage: bench" in result.stdout
