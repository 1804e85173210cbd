"""`bench data where`: one broken folder ends no listing, and one's own folders are in it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from bench.planning.availability import of_catalogue

Folder = Callable[..., Path]


def picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    return file.getvalue()


def classified(count: int) -> list[dict[str, object]]:
    return [{"png": picture(), "cls": number % 2} for number in range(count)]


def line_of(lines: list[str], name: str) -> str:
    (match,) = [line for line in lines if line.split()[0] == name]
    return match


def test_broken_folders_are_rows_and_so_are_ones_own(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    for name in ("wds_cars", "wds_vtab-pets", "wds_mine"):
        webdataset_folder(evaluation_folder / name, classified(6), classes=("cat", "tree"))
    webdataset_folder(evaluation_folder / "wds_mine", classified(4), split="train")
    tar = evaluation_folder / "wds_cars" / "test" / "0.tar"
    tar.write_bytes(tar.read_bytes()[:700])
    webdataset_folder(evaluation_folder / "wds_dtd", classified(2), classes=("cat", "tree"))
    (evaluation_folder / "wds_dtd" / "test" / "nshards.txt").write_text("several")
    webdataset_folder(evaluation_folder / "wds_vtab-svhn", [{"png": b"no picture", "cls": 0}], classes=("0", "1"))
    webdataset_folder(evaluation_folder / "wds_latin", classified(2))
    (evaluation_folder / "wds_latin" / "classnames.txt").write_bytes("naïve\ntree\n".encode("latin-1"))
    (evaluation_folder / "wds_not a name").mkdir()
    lines = of_catalogue()
    assert "0.tar: the image at byte" in line_of(lines, "svhn"), "images are opened in a sample"
    assert [line for line in lines if "wds_latin/classnames.txt: line 1 is not UTF-8" in line]
    assert [line for line in lines if "broken: 'not a name' is no evaluation data set" in line]
    assert f"broken: {tar}: cannot be read" in line_of(lines, "cars")
    assert "broken: " in line_of(lines, "dtd")
    assert "nshards.txt" in line_of(lines, "dtd")
    assert line_of(lines, "pets").split()[1:3] == ["webdataset", "6"]
    assert line_of(lines, "mine").split()[1:3] == ["webdataset", "6"]
    assert line_of(lines, "mine/train").split()[1:3] == ["webdataset", "4"]
    assert not [line for line in lines if line.startswith("vtab-pets")]
    (gone,) = [line for line in lines if line.startswith("missing, ")]
    assert " cars," not in gone
    assert " imagenet1k," in gone
