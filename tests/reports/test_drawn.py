"""Figures that lie beside an earlier report: which are taken from there, and which are drawn again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.store import Store
from bench.store.files import write_bytes
from reports.build import build
from reports.figures.figure_cache import FILE, _code, kept, keys
from reports.figures.figure_registry import FIGURES, draw_all
from reports.figures.histograms import Learned, read
from reports.results import Results, load

from . import stores

SUITE = "emoji_noisy"
OWN = "diagnostics-02-sogclr"
SCORES = [name for name in FIGURES if name != "radar"]  #: which a report does not draw
EVERY = {*SCORES, "similarities", OWN}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two methods, one with diagnostics of its own, a run that is missing, and the report; not to be changed."""
    methods = [one for one in stores.METHODS if one[0] in ("clip", "sogclr")]
    store: Store = stores.write_store(
        tmp_path_factory.mktemp("made"), methods=methods, curve=(0.5,), states={("clip", 0.4, 2): "missing"}
    )
    build(SUITE, store)
    return store


@pytest.fixture
def store(made: Store, tmp_path: Path) -> Store:
    return Store(shutil.copytree(made.root, tmp_path / "elsewhere"))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the figures that are drawn."""
    names: list[str] = []

    def noted(results: Results, learned: Learned, chosen: Sequence[str], widths: Sequence[str]) -> object:
        names.extend(chosen)
        return draw_all(results, learned, chosen, widths)

    monkeypatch.setattr("reports.build.draw_all", noted)
    return names


@pytest.fixture
def asked(made: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the figures that would be drawn; those of `made` stand for them."""
    names: list[str] = []
    results = load(SUITE, made)
    pictures = kept(made.suite(SUITE), keys(results, read(results), ("page",)))

    def noted(_results: Results, _learned: Learned, chosen: Sequence[str], _widths: Sequence[str]) -> object:
        names.extend(chosen)
        return {name: pictures[name] for name in chosen}

    monkeypatch.setattr("reports.build.draw_all", noted)
    return names


def contents(store: Store) -> dict[str, bytes]:
    folder = store.suite(SUITE)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_second_report_of_the_same_numbers_draws_nothing_and_has_the_same_bytes(
    made: Store, store: Store, drawn: list[str]
) -> None:
    """In another folder as well, and whatever the time of the plan and of the status."""
    changed(store.suite(SUITE) / "plan.json", '"made": 0.0', '"made": 7.0')
    build(SUITE, store)
    assert drawn == []
    expected, found = contents(made), contents(store)
    del expected["plan.json"], found["plan.json"]
    assert found == expected
    assert set(json.loads(found[FILE])) == EVERY


def test_a_second_report_imports_nothing_that_draws(store: Store) -> None:
    code = (
        "import sys\nfrom bench.store import Store\nfrom reports.build import build\n"
        f"build({SUITE!r}, Store({str(store.root)!r}))\n"
        "assert not {'matplotlib', 'pandas', 'PIL'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_run_redraws_scores_and_its_own_histograms_alone(made: Store, store: Store, drawn: list[str]) -> None:
    """Histograms are of the first seed, so that a third one changes none of them."""
    last = stores.plan_cell("clip", 0.4, 2)["run"]
    with store.run(last).claim() as claim:
        out = stores.RunWriter(claim)
        stores.write_evaluations(out, 1.0, "cosine", 0.4, 2, 1.0)
        stores.write_state(out, "done", 600)
    build(SUITE, store)
    assert drawn == SCORES
    assert contents(store)["figures/noise.png"] != contents(made)["figures/noise.png"]


def test_other_histograms_redraw_their_own_figures(store: Store, drawn: list[str]) -> None:
    first = store.run(stores.plan_cell("sogclr", 0.4, 0)["run"])
    changed(first.path("diagnostics.json"), '"axis": "weight w"', '"axis": "weight"')
    build(SUITE, store)
    assert drawn == [OWN]
    first = store.run(stores.plan_cell("clip", 0.4, 0)["run"])
    changed(first.path("diagnostics.json"), '"axis": "cosine similarity"', '"axis": "cosine"')
    build(SUITE, store)
    assert drawn == [OWN, "similarities"]


@pytest.mark.parametrize(
    "number", [0, 7, 1e-9], ids=["nothing", "another number", "one that no eye sees"]
)  # what a record says decides, however little it moves
def test_another_number_redraws_every_figure_of_scores(store: Store, asked: list[str], number: float) -> None:
    path = next(iter(sorted(store.root.glob("runs/*/evaluations/*/records.json"))))
    lines = json.loads(path.read_text())
    lines[0]["value"] += number
    path.write_text(json.dumps(lines))
    build(SUITE, store)
    assert asked == (SCORES if number else [])


def test_other_widths_and_other_code_redraw_all(
    store: Store, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(SUITE, store, widths=("page", "column"))
    assert set(asked) == EVERY
    asked.clear()
    _code.cache_clear()
    monkeypatch.setattr("reports.figures.figure_cache.version", lambda _: "0")  # of the packages that draw
    build(SUITE, store, widths=("page", "column"))
    assert set(asked) == EVERY
    _code.cache_clear()


def damage(folder: Path, what: str) -> None:
    if what.endswith("is gone"):
        (folder / "figures" / what.split()[0]).unlink()
    else:
        entries = json.loads((folder / FILE).read_text())
        entries["noise"] = {"no base64": {**entries["noise"], "webp": "ä"}, "no entry": []}[what]
        (folder / FILE).write_text(json.dumps(entries))


@pytest.mark.parametrize("what", ["noise.png is gone", "noise.pdf is gone", "no base64", "no entry"])
def test_a_figure_that_is_not_there_is_drawn_anew(made: Store, store: Store, drawn: list[str], what: str) -> None:
    damage(store.suite(SUITE), what)
    build(SUITE, store)
    assert drawn == ["noise"]
    assert contents(store) == contents(made)


def test_figures_of_a_report_that_was_interrupted_are_drawn_anew(
    store: Store, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then some of its files are of other numbers than the list of figures says."""

    def stopped(path: Path, content: bytes, **_: object) -> None:
        if path.name == "noise.png":
            raise KeyboardInterrupt
        write_bytes(path, content)

    with monkeypatch.context() as patched:
        patched.setattr("reports.build.write_bytes", stopped)
        with pytest.raises(KeyboardInterrupt):
            build(SUITE, store)
    assert asked == []
    build(SUITE, store)
    assert set(asked) == EVERY


def test_without_its_list_all_figures_are_drawn_with_the_same_bytes(
    made: Store, store: Store, drawn: list[str]
) -> None:
    (store.suite(SUITE) / FILE).unlink()
    build(SUITE, store)
    assert set(drawn) == EVERY
    assert contents(store) == contents(made)


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000, "null"])
def test_a_damaged_list_of_figures_is_written_again(made: Store, store: Store, asked: list[str], content: str) -> None:
    (store.suite(SUITE) / FILE).write_text(content)
    build(SUITE, store)
    assert set(asked) == EVERY
    assert contents(store) == contents(made)
