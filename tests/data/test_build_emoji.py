"""The build tool's rules, on small inputs (the packages themselves are not part of the project)."""

import importlib
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools" / "art"


@pytest.fixture(scope="module")
def tools():
    sys.path.insert(0, str(TOOLS))
    try:
        yield {name: importlib.import_module(name) for name in ("emoji_texts", "emoji_art", "build_emoji")}
    finally:
        sys.path.remove(str(TOOLS))


def concept(tools, code, *slugs, keywords=()):
    names = (slugs[0].replace("-", " "),)
    return tools["emoji_texts"].Concept(code, names, tuple(keywords), slugs, "bugs", "animals")


def test_codes_compare_without_joiners(tools):
    assert tools["emoji_texts"].bare("1F441-FE0F-200D-1F5E8-FE0F") == "1f441-1f5e8"
    assert tools["emoji_texts"].bare("00A9-fe0f") == "a9"


def test_captions_hold_every_name_and_keyword(tools):
    captions = tools["emoji_texts"].captions(("ant", "worker ant"), tuple("abcdefgh"))
    assert captions[:2] == ("ant", "worker ant")
    assert "an emoji of worker ant, b, c" in captions
    assert captions[-3:] == ("a, b, c", "d, e, f", "g, h")
    assert set("abcdefgh") == {word for text in captions[2:-3] for word in text.split(", ")[1:]}
    assert len(set(captions)) == len(captions)
    assert tools["emoji_texts"].captions(("ant",), ()) == ("ant",)


def test_labels_choose_icons_before_short_codes(tools):
    ant, pismire = concept(tools, "1", "pismire", "ant"), concept(tools, "2", "ant", "ant-face")
    icons = {
        "prefix": "x",
        "icons": {"ant": {}, "ant-face": {}},
        "aliases": {"pismire": {"parent": "ant", "hFlip": True}},
    }
    found = tools["emoji_art"].by_name(icons, [ant, pismire])
    assert found == {"2": "ant"}
    icons["aliases"] = {"pismire": {"parent": "ant-face"}}
    assert tools["emoji_art"].by_name(icons, [ant, pismire]) == {"1": "ant-face", "2": "ant"}


def test_misnamed_icons_go_to_what_they_draw(tools):
    bow = [concept(tools, "1f3f9", "bow-and-arrow", "bow"), concept(tools, "1f380", "ribbon")]
    drawn = tools["emoji_art"].MISNAMED["fxemoji"]
    icons = {"prefix": "fxemoji", "icons": {name: {} for name in drawn}}
    found = tools["emoji_art"].by_name(icons, bow)
    assert found["1f380"] == "bow"
    assert "1f3f9" not in found


def test_frames_are_square_and_icons_own_sizes_win(tools):
    icons = {"width": 32, "height": 32, "icons": {"a": {"body": "<g/>"}, "b": {"body": "<g/>", "width": 64, "left": 4}}}
    assert b'viewBox="0 0 32 32"' in tools["emoji_art"].svg(icons, "a")
    assert b'viewBox="4 -16 64 64"' in tools["emoji_art"].svg(icons, "b")


def test_shards_have_the_same_bytes_every_time(tools, tmp_path):
    members = {"a.webp": b"123", "a.json": b"{}"}
    for name in ("one.tar.gz", "two.tar.gz"):
        tools["build_emoji"].write_style(tmp_path / name, members)
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        assert archive.getnames() == ["a.webp", "a.json"]


def test_splits_keep_a_training_pair_and_never_leak(tools):
    build = tools["build_emoji"]
    styles = [*build.STYLES[:3], build.STYLES[-1]]
    concepts = [concept(tools, f"{i:x}", f"thing-{i}") for i in range(200)]
    drawings = [build.EmojiDrawing(c, style, b"") for c in concepts for style in styles]
    split = build.splits(drawings)
    assert split == build.splits(drawings[::-1])
    count = Counter(split.values())
    assert count == {"novel": 90, "train": 433, "iid": 51, "validation": 26, "near": 170}
    novel = {key.split("-")[0] for key, where in split.items() if where == "novel"}
    assert len(novel) == 30
    known = {key.split("-")[0] for key, where in split.items() if where != "novel"}
    assert not novel & known
    assert known == {key.split("-")[0] for key, where in split.items() if where == "train"}


def test_blank_drawings_stop_the_build(tools):
    pytest.importorskip("resvg_py")
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64" viewBox="0 0 64 64">%s</svg>'
    image = tools["build_emoji"].rasterise(svg % b'<path d="M0 0h32v64H0z" fill="currentColor"/>')
    assert image.getpixel((10, 10)) == (0, 0, 0)
    assert image.getpixel((50, 10)) == (255, 255, 255)
    with pytest.raises(ValueError, match="blank"):
        tools["build_emoji"].rasterise(svg % b"")
