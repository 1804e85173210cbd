"""`bench noise show` prints corrupted pairs, and a page with the pictures."""

from __future__ import annotations

import base64
import io
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from bench import data
from bench.cli import app
from bench.data.noise.shown import spaced_places
from bench.data.noise.shuffled import shuffled_captions
from bench.errors import UserError


class Reader(HTMLParser):
    """The elements that are open, and the attributes of images."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.images.append(dict(attrs))
        elif tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_manifest_of_the_suite_is_shown(tmp_path: Path) -> None:
    page = tmp_path / "noise.html"
    result = CliRunner().invoke(app, ["noise", "show", "smoke", "--count", "3", "--html", str(page)])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    manifest = shuffled_captions(data.load_dataset("emoji/train", 32), 0.4, 0)
    assert manifest.content_hash[:16] in lines[0]
    assert len(lines) == 5
    assert lines[1].startswith(manifest.keys[0])
    assert lines[-1] == str(page)
    reader = Reader()
    reader.feed(page.read_text())
    assert reader.open == []
    assert len(reader.images) == 3
    assert "<script" not in page.read_text()
    pairs, place = data.load_dataset("emoji/train", 32), spaced_places(manifest, 3)[1]
    webp = base64.b64decode((reader.images[1]["src"] or "").split(",", 1)[1])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(webp))), pairs.images(manifest.rows[[place]])[0])
    own, given = (escape(pairs.captions(int(rows[place]))[0]) for rows in (manifest.rows, manifest.donors))
    assert f"<del>{own}</del> {given}" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "0.3"], r"--rate 0.3: suite smoke has 0.0, 0.4"),
        (["--seed", "4"], r"--seed 4: suite smoke has 0$"),
        (
            ["--html", "/nowhere/noise.html"],
            r"--html /nowhere/noise.html: cannot be written: there is no folder /nowhere",
        ),
        (["--set", "noise.kind=resampled_positives"], r"suite smoke: resampled_positives is drawn again"),
    ],
)
def test_what_the_suite_does_not_have_is_refused(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["noise", "show", "smoke", *arguments])
    assert isinstance(result.exception, UserError)
    with pytest.raises(UserError, match=said):
        raise result.exception
