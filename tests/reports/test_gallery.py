"""The worst examples as pictures: which they are, what is said of them, and what is left out without outcomes."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import bench
from bench.data.examples import changed_captions, examples
from bench.data.noise import NoiseManifest
from bench.store import Store
from reports.pages.gallery import SHOWN, Pictures, gallery
from reports.results import load

SUITE, NOISY = "emoji_noisy", "40 % shuffled captions"
LATE, WORST = 30, 7  #: an image whose caption is found late, and the image whose caption is found last
DOUBTED, CLEAN = 5, 8  #: a corrupted and a clean training pair of little confidence
DONOR = 11


@pytest.fixture
def store(tmp_path: Path, stores: SimpleNamespace) -> Store:
    """Three methods, one seed, with the outcomes of retrieval and of finding noise as evaluation stores them."""
    root = tmp_path / "out"
    store: Store = stores.write_store(root, methods=stores.METHODS[:3], seeds=(0,), curve=(), diagnostics=False)
    held_out, training = examples("emoji/iid"), examples("emoji/train")
    assert held_out is not None
    assert training is not None
    better, confidence, noisy = np.zeros(len(held_out), np.int32), np.ones(len(training)), np.zeros(len(training), bool)
    better[[LATE, WORST]] = 900, 1200
    confidence[[DOUBTED, CLEAN]] = -0.5, -0.4
    noisy[DOUBTED] = True
    ties = {f"cosine_i2t_{name}": np.zeros(len(held_out), np.int32) for name in ("tied_wrong", "tied_right")}
    outcomes = {
        "retrieval@emoji.iid@1": {"cosine_i2t_better": better, "cosine_owner": np.zeros(9800, np.int32), **ties},
        "noise_detection@emoji.train@1": {"confidence": confidence.astype(np.float32), "noisy": noisy},
    }
    keys = {"keys": ["a"], "donor_keys": ["b"]}
    rows, donor_rows = np.array([DOUBTED]), np.array([DONOR])
    for cell in store.plan(SUITE)["cells"]:  # type: ignore[index]
        if cell["noise"] == NOISY:
            run = store.run(cell["run"])
            for key, arrays in outcomes.items():
                np.savez(run.path("evaluations") / key / "outcomes.npz", **arrays)  # type: ignore[arg-type]
            manifest = NoiseManifest(
                "shuffled_captions", 0.4, 0, len(training), rows, donor_rows, realised_rate=0.4, **keys
            )
            manifest.save(run.path("noise.parquet"))
    return store


def shown(store: Store) -> str:
    return gallery(load(SUITE, store), Pictures(examples, changed_captions))


def items(text: str, title: str) -> list[str]:
    """What stands beside the pictures of the first list with this title, as text."""
    part = text[text.index(title) :]
    return [re.sub("<[^>]*>", "|", one) for one in re.findall("<li>(.*?)</li>", part[: part.index("</ol>")])]


def test_the_worst_come_first_with_their_captions_and_places(store: Store) -> None:
    text = shown(store)
    assert re.findall("<h3>(.*?)</h3>", text) == ["clip", "permutation_0.1"]
    held_out, training = examples("emoji/iid"), examples("emoji/train")
    assert held_out is not None
    assert training is not None
    last, late, *others = items(text, "Images of emoji/iid whose right caption is found last")
    assert held_out[WORST].captions[0] in last
    assert "place 1,201 of 9,800" in last
    assert held_out[LATE].captions[0] in late
    assert len(others) == SHOWN - 2
    wrong, clean, *others = items(text, f"1 of these {SHOWN} are corrupted")
    assert wrong.index(training[DOUBTED].captions[0]) < wrong.index(training[DONOR].captions[0])
    assert wrong.strip("|").endswith("corrupted")
    assert training[CLEAN].captions[0] in clean
    assert clean.strip("|").endswith("clean")
    assert text.count("data:image/webp;base64,UklGR") == 2 * 2 * SHOWN


def test_the_page_of_a_report_has_it_small_and_with_a_link(store: Store) -> None:
    page = bench.Results(store.root).report(SUITE)
    text = page.read_text(encoding="utf-8")
    assert '<a href="#gallery">In pictures</a>' in text
    assert text.count('<section id="gallery">') == 1
    assert len(shown(store)) < 400_000


@pytest.mark.parametrize(
    ("harm", "lines", "lists"),
    [("outcomes", 1, 0), ("length", 2, 2), ("manifest", 2, 2)],  # a run with damaged outcomes shows nothing at all
)
def test_what_cannot_be_read_is_left_out_with_a_line(store: Store, harm: str, lines: int, lists: int) -> None:
    for run in store.runs():
        folder = run.path("evaluations") / "noise_detection@emoji.train@1"
        if not folder.exists():
            continue
        if harm == "outcomes":
            (folder / "outcomes.npz").write_bytes(b"PK\x03\x04")
        elif harm == "length":
            np.savez(folder / "outcomes.npz", confidence=np.zeros(3, np.float32), noisy=np.zeros(3, bool))
        else:
            run.path("noise.parquet").unlink()
    text = shown(store)
    assert text.count("No pictures of its training pairs") == lines
    assert text.count("whose right caption is found last") == lists


def test_without_outcomes_there_is_a_line_a_kind_and_without_tasks_no_section(three: Store, store: Store) -> None:
    assert gallery(load(SUITE, three), Pictures(examples, changed_captions)).count("No pictures of its") == 4
    assert shown(store).count("<img") > 0
    nothing = Pictures(lambda _: None, changed_captions)
    assert gallery(load(SUITE, store), nothing).count("No pictures of its") == 4


def test_an_edited_text_is_shown_in_place_of_a_donors(store: Store) -> None:
    edited: dict[int, int | str] = dict.fromkeys(range(10_000), "a text with fewer words")
    text = gallery(load(SUITE, store), Pictures(examples, lambda _: edited))
    assert text.count("a text with fewer words") >= 20
    assert "a text with fewer words" not in shown(store)


def test_text_from_elsewhere_stays_text(store: Store) -> None:
    known = {name: examples(name) for name in ("emoji/iid", "emoji/train")}
    forged = SimpleNamespace(captions=("<script>\x1b",), webp=b'"><script>')
    pictures = Pictures(lambda name: [forged] * len(known[name] or ()), changed_captions)
    text = gallery(load(SUITE, store), pictures)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text


def test_rows_are_those_of_the_loaded_data_set() -> None:
    from bench import data

    pairs, rows = data.load("emoji/validation", 32), examples("emoji/validation")
    assert rows is not None
    assert [row.captions for row in rows] == [pairs.captions(row) for row in range(len(pairs))]
    assert examples("digits/test") is examples("coco/test") is examples("emoji/nosuch") is None
