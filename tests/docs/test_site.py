"""The documentation site: it builds without a warning, its links and anchors lead somewhere, nothing is remote."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.cmd.build import build_main

import bench
from bench.adapters import registry
from bench.catalogue.noise_kinds import KINDS

#: MyST 5.2 uses names of Sphinx 9 that Sphinx 11 removes
pytestmark = pytest.mark.filterwarnings("ignore:.*Check CHANGES for Sphinx API:PendingDeprecationWarning")
ROOT = Path(bench.__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Its sources are copied, so that a test writes no generated page into the checkout."""
    folder = tmp_path_factory.mktemp("site")
    for entry in ROOT.iterdir():
        if entry.name not in ("docs", "build") and not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("generated"))
    out = folder / "out"
    assert build_main(["-W", "--keep-going", "-q", "-d", str(folder / "trees"), str(folder / "docs"), str(out)]) == 0
    return out


PROSE = sorted((ROOT / "docs").glob("*.md"))
WORDS, COLUMNS = 1500, 130  #: of a page that is not generated, without its code; of a line of prose


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_pages_are_short_and_their_lines_too(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    assert sum(bool(re.search(r"\w", word)) for word in text.split()) <= WORDS
    assert [line for line in text.splitlines() if len(line) > COLUMNS and not line.startswith("|")] == []


class Page(HTMLParser):
    """Links, what the browser loads by itself, and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.loads += [values[name] for name in ("src", "data") if name in values]
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(values["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def _targets(path: Path, links: list[str]) -> Iterator[tuple[str, Path, str]]:
    """The local links of a page: as written, the file, the anchor."""
    for link in links:
        parts = urlsplit(link)
        if not parts.scheme:
            file = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            yield link, file, unquote(parts.fragment)


@pytest.mark.promise("the site of the docs builds without a warning, its links lead somewhere, it loads nothing remote")
def test_every_link_and_anchor_leads_somewhere(pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link, file, anchor in _targets(path, page.links):
            known = pages[file].anchors if file in pages else None
            if not file.exists() or (anchor and known is not None and anchor not in known):
                broken.append(f"{path.name}: {link}")
    assert broken == []


def test_the_first_page_leads_to_the_tours_page(site: Path, pages: dict[Path, Page]) -> None:
    links = pages[site / "index.html"].links
    assert "tour.html" in links


def test_every_picture_is_there(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert [link for link, file, _ in _targets(path, page.loads) if not file.is_file()] == [], path
    noise = [link for link in pages[site / "generated" / "noise_kinds.html"].loads if "noise-" in link]
    shown = {kind.name for kind in KINDS if any(f"noise-{kind.name}-" in link for link in noise)}
    assert shown == {kind.name for kind in KINDS if not kind.files}
    assert [link for link in pages[site / "tour.html"].loads if link.endswith(".png")]


def test_no_page_loads_anything_remote(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert [link for link in page.loads if urlsplit(link).scheme in ("http", "https") or link[:2] == "//"] == [], (
            path
        )
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"url\(['\"]?(?:https?:)?//", styles)


def test_every_method_kind_of_noise_and_page_is_there(site: Path, pages: dict[Path, Page]) -> None:
    shipped = {name for name in registry.method_names() if registry.method_source(name).shipped}
    written = {path.stem for path in (site / "generated" / "methods").glob("*.html")}
    assert written == shipped | {"index"}
    for name in shipped:
        text = (site / "generated" / "methods" / f"{name}.html").read_text()
        assert f'<span class="pre">{name}</span>' in text
        assert all(title in text for title in ("Formula", "Options", "Citation"))
    assert pages[site / "generated" / "noise_kinds.html"].anchors >= {kind.name.replace("_", "-") for kind in KINDS}
    held = (site / "generated" / "promises.html").read_text()
    assert "tests/docs/test_site.py" in held
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= {path.stem for path in site.glob("*.html")}
