"""`bench noise show` prints corrupted pairs, and a page with the pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import data
from bench.cli import app
from bench.data.noise import shuffled_captions
from bench.errors import UserError


def test_the_manifest_of_the_suite_is_shown(tmp_path: Path) -> None:
    page = tmp_path / "noise.html"
    result = CliRunner().invoke(app, ["noise", "show", "smoke", "--count", "3", "--html", str(page)])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    manifest = shuffled_captions(data.load("emoji/train", 32), 0.4, 0)
    assert manifest.content_hash[:16] in lines[0]
    assert len(lines) == 5
    assert lines[1].startswith(manifest.keys[0])
    assert lines[-1] == str(page)
    assert page.read_text().count("<img ") == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "0.3"], r"--rate 0.3: suite smoke has 0.0, 0.4"),
        (["--seed", "4"], r"--seed 4: suite smoke has 0$"),
        (
            ["--html", "/nowhere/noise.html"],
            r"--html /nowhere/noise.html: cannot be written: there is no folder /nowhere",
        ),
        (["--set", "noise.kind=resampled_positives"], r"suite smoke: resampled_positives draws anew"),
    ],
)
def test_what_the_suite_does_not_have_is_refused(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["noise", "show", "smoke", *arguments])
    assert isinstance(result.exception, UserError)
    with pytest.raises(UserError, match=said):
        raise result.exception
