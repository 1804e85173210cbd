"""The board: foreign text stays text, filters and sorting work in a browser without a request."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import parse_qs

import pytest

from bench.errors import UserError
from bench.store import files
from bench.store.pack import ARCHIVE, pack_runs
from reports.results import load
from reports.site.board import VERSION, page, site
from reports.site.rows import Source, board_rows
from reports.statistics.contrasts import headline_contrasts

from . import stores

SUITE = "emoji_noisy"
Tab = Any  # of conftest.py: a page in a browser
EVIL = "<script>alert(1)</script>\"'&\u202e"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A site over a store with an oracle and hostile text, and over an archive; not to be changed."""
    with mock.patch.object(files, "sync"):
        folder = tmp_path_factory.mktemp("site")
        methods = (*[one for one in stores.METHODS if one[0] in ("clip", "sogclr")], ("oracle", "CLIP", 1.4, "cosine"))
        store = stores.write_store(folder / "store", methods=methods, curve=(), diagnostics=False)
        plan = store.plan(SUITE)
        plan["data"]["name"] = EVIL
        store.write_plan(SUITE, plan)
        first = [one for one in stores.METHODS if one[0] == "clip"]
        other = stores.write_store(folder / "other", methods=first, seeds=(0,), curve=(), checkable=True)
        pack_runs(SUITE, other, folder / "reference" / "small" / ARCHIVE)
        site([folder / "store", folder / "reference"], folder / "out")
        yield SimpleNamespace(store=store, out=folder / "out", folder=folder)


@pytest.mark.promise("the page of the board loads nothing, and its link leads to a file beside it")
def test_the_page_is_whole_and_shows_foreign_text(made: SimpleNamespace) -> None:
    text = (made.out / "index.html").read_text()
    links = re.findall(r"<(?:a|img|script|link|iframe)\b[^>]*?(?:href|src)=\"?([^\"\s>]+)", text)
    papers = [link for link in links if link.startswith("https://scholar.google.com/")]
    assert [link for link in links if link not in ("data:,", *papers)] == ["board.csv"]
    assert len(papers) == 8, "each row leads to its paper"
    assert {path.name for path in made.out.iterdir()} == {"index.html", "board.csv"}
    assert "url(" not in text
    assert EVIL not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "\u202e" not in text
    assert r"\u202e" in text


def test_numbers_are_those_of_the_report(made: SimpleNamespace) -> None:
    with (made.out / "board.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "store"]
    for one in headline_contrasts(load(SUITE, made.store)):
        row = next(row for row in rows if (row["noise"], row["method"]) == (one.noise, "sogclr"))
        assert float(row["difference"]) == pytest.approx(one.gains["sogclr"].value)
        recovered = one.recovered("sogclr")
        assert (row["recovered_gap"] == "") == (recovered is None)
        if recovered:
            assert float(row["recovered_gap"]) == pytest.approx(recovered.value)
    assert any(row["recovered_gap"] for row in rows)
    index = (made.out / "index.html").read_text()
    assert f"Board version {VERSION}." in index
    assert "small: suite emoji_noisy; " in index
    assert "consistent is not proven" in index


def test_other_files_are_not_overwritten_and_sources_without_runs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is neither an empty folder nor an earlier site"):
        site([tmp_path], tmp_path)
    with pytest.raises(UserError, match="has no runs: it should be a store"):
        site([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


_ALL = """
for (const one of document.querySelectorAll("select")) one.value = "";
document.querySelector("select").dispatchEvent(new Event("change", {bubbles: true}));
"""
_OPENED = """
const rows = [...document.querySelectorAll("#board tbody tr:not([hidden])")];
const offered = name => [...document.querySelector(`select[name=${name}]`).options].filter(one => !one.disabled);
return [location.hash, rows.map(row => [row.dataset.suite, row.dataset.noise, Number(row.cells[1].dataset.v)]),
  ["suite", "noise", "method"].map(name => offered(name).map(one => one.value)),
  document.querySelector(".place").checkVisibility()];
"""
_DRIVER = """
const said = {};
const shown = () => [...document.querySelectorAll("#board tbody tr:not([hidden])")];
said.before = shown().length;
const select = document.querySelector("select[name=method]");
select.value = "sogclr"; select.dispatchEvent(new Event("change", {bubbles: true}));
said.filtered = shown().map(row => row.dataset.method);
select.value = ""; select.dispatchEvent(new Event("change", {bubbles: true}));
const head = document.querySelector('th[data-place="1"]');
for (const order of ["down", "up"]) {
  head.querySelector("button").click();
  said[order] = shown().map(row => Number(row.cells[1].dataset.v)); said[order + "_aria"] = head.ariaSort;
}
const controls = [...document.querySelectorAll("#board th button, select, .scroll")];
said.controls = new Set(controls.map(one => one.tagName)).size;
const reached = one => { one.focus(); return document.activeElement === one && one.tabIndex === 0; };
const shows = one => one.checkVisibility();  // a phone has suite and noise under the method's name
said.left = controls.filter(one => shows(one) && !reached(one)).length;
said.heads = [...document.querySelectorAll("#board th[data-place]")].every(one => one.querySelector("button"));
said.requests = performance.getEntriesByType("resource").map(one => one.name);
said.width = document.documentElement.scrollWidth - innerWidth;
return said;
"""
_FOCUSED = "return document.activeElement.closest('th')?.dataset.place"
_SORTED = """
const head = document.querySelector('th[data-place="1"]');
const values = [...document.querySelectorAll("#board tbody tr")].map(row => Number(row.cells[1].dataset.v));
return [head.ariaSort, values, document.activeElement === head.querySelector("button")];
"""
_SHOWN = """
const row = document.querySelector("tbody tr:not([hidden])");
const seen = [...row.cells].filter(one => one.checkVisibility());
const inside = one => one.getBoundingClientRect().right <= innerWidth;
return [seen.filter(inside).map(one => one.innerText), document.documentElement.scrollWidth];
"""


def test_filters_and_sorting_in_a_browser_without_a_request(made: SimpleNamespace, tab: Tab) -> None:
    tab.open((made.out / "index.html").read_text())
    tab.run(_ALL)
    said = tab.run(_DRIVER)
    assert said["before"] == 8
    assert said["filtered"] == ["sogclr", "sogclr"]
    assert said["down"] == sorted(said["down"], reverse=True)
    assert said["up"] == sorted(said["up"])
    assert (said["down_aria"], said["up_aria"]) == ("descending", "ascending")
    assert (said["controls"], said["left"], said["heads"]) == (3, 0, True), "all are reached by the keyboard"
    assert said["requests"] == []
    assert said["width"] <= 0, "the page itself does not scroll sideways"


def test_it_opens_on_one_suite_and_noise_and_the_address_keeps_the_choice(made: SimpleNamespace, tab: Tab) -> None:
    text = (made.out / "index.html").read_text()
    tab.open(text)
    address, rows, (suites, noises, methods), place = tab.run(_OPENED)
    suite, noise = f"{SUITE} (store)", "40 % shuffled captions"
    assert parse_qs(address.removeprefix("#")) == {"suite": [suite], "noise": [noise]}
    assert {(own, at) for own, at, _ in rows} == {(suite, noise)}
    values = [value for *_, value in rows]
    assert values == sorted(values, reverse=True), "the best stands first"
    assert (len(values), place) == (3, False)
    assert suites == ["", suite, f"{SUITE} (small)"]
    assert (noises, methods) == (["", "0 % shuffled captions", noise], ["", "clip", "sogclr", "oracle"])
    kept = "location.hash = 'suite=emoji_noisy+(small)'; return new Promise(done => setTimeout(done, 50));"
    tab.run(kept)
    address, rows, (suites, noises, methods), place = tab.run(_OPENED)
    assert {own for own, *_ in rows} == {f"{SUITE} (small)"}
    assert methods == ["", "clip"], "a choice without a row is not offered"


def test_less_is_better_sorts_upwards_and_arrow_and_mark_agree(made: SimpleNamespace) -> None:
    rows = list(board_rows("store", Source(load(SUITE, made.store))))
    lower = [replace(row, higher_is_better=False) for row in rows if row.noise.startswith("40")]
    text = page(lower, [])
    shown = re.findall(r'<tr[^>]*data-method="(\w+)"', text)
    assert shown == [row.method for row in sorted(lower, key=lambda row: row.score.value or 0)]
    assert "top-1 ↓" in text
    assert ("▼ +" in text, "▲ +" in text) == (True, False), "more successes of an attack are worse"
    assert "▲ +" in page([row for row in rows if row.noise.startswith("40")], [])
    home = page(rows, [], "https://docs.example/")
    assert '<a class="small" href="https://docs.example/generated/methods/clip.html">docs</a>' in home
    assert '<a href="https://docs.example/">Documentation</a>' in home


def test_heads_sort_by_real_keys(made: SimpleNamespace, tab: Tab) -> None:
    tab.open((made.out / "index.html").read_text())
    tab.run(_ALL)
    steps = 0
    while tab.run(_FOCUSED) != "1":
        tab.press("Tab")
        steps += 1
        assert steps < 20, "the keyboard does not reach the head of the scores"
    for key, order in (("Enter", "descending"), (" ", "ascending"), ("Enter", "descending")):
        tab.press(key)
        said, values, kept = tab.run(_SORTED)
        assert said == order
        assert values == sorted(values, reverse=order == "descending")
        assert len(set(values)) > 1
        assert kept, "the focus stays where it is"


def test_a_phone_shows_method_score_and_difference_without_a_scroll(made: SimpleNamespace, tab: Tab) -> None:
    tab.resize(390)
    tab.open((made.out / "index.html").read_text())
    (method, score, *others), width = tab.run(_SHOWN)
    assert method
    assert re.fullmatch(r"\d+\.\d ± \d+\.\d", score.split("\n")[0])
    assert others, "the difference stands beside them"
    assert width <= 390
