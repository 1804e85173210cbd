"""Kinds of noise beside shuffled captions, against the numbers of an independent implementation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import bench.data
from bench import counter, data_folder
from bench.data import MemoryPairs
from bench.data.noise.edited import boilerplate, edited_captions
from bench.data.noise.images import ImageRows
from bench.data.noise.imported import import_ncr
from bench.data.noise.manifest import NoiseManifest, noisy_mask
from bench.data.noise.poison import make_poisoned
from bench.data.noise.semantic import semantic_swap
from bench.data.noise.shown import noise_lines
from bench.data.noise.shuffled import shuffled_captions, shuffled_images
from bench.data.noise.targeted import TEMPLATES, Targeted
from bench.data.noise.triggers import Trigger
from bench.data.shards.indexing import build_index
from bench.data.shards.sources import expand_sources
from bench.data.source import data_source
from bench.data.strings import Strings
from bench.errors import UserError
from bench.evaluation.noise.attack import attack_rates, class_number, same_set, targeted_rates
from bench.planning import requirements
from bench.store import Store
from bench.suite.noise_settings import NoiseSettings
from bench.suite.settings import DataSettings
from bench.suite.suite import load_suite

from ..command import call_bench

ORACLES: dict[str, Any] = json.loads((Path(__file__).parent / "noise_oracles.json").read_text())
SEED = 7  #: of the oracles


@dataclass(frozen=True, eq=False)
class RowsByCaption(MemoryPairs):
    """Pairs of which several rows show one image, as an index with a row for each caption has them."""

    image_of: tuple[str, ...] = ()  #: [n] in the order of the rows

    @property
    def image_keys(self) -> Strings | None:
        return Strings.of(self.image_of)


def pairs_of(texts: Sequence[Sequence[str]], keys: Sequence[str] = (), size: int = 2) -> MemoryPairs:
    names = keys or [f"k{i:05d}" for i in range(len(texts))]
    pixels = np.arange(len(texts) * size * size * 3).reshape(-1, size, size, 3).astype(np.uint8)
    return MemoryPairs.build("toy/train", "toy", names, texts, {}, {}, pixels)


def by_caption(texts: Sequence[str], images: Sequence[str], keys: Sequence[str] = ()) -> RowsByCaption:
    plain = pairs_of([[text] for text in texts], keys)
    return RowsByCaption(
        plain.name, plain.description, plain.keys, plain.texts, {}, {}, plain.pixels, image_of=tuple(images)
    )


def captioned() -> MemoryPairs:
    """The oracles' 48 pairs."""
    return pairs_of([[text] for text in ORACLES["captions"]], ORACLES["keys"])


def first_texts(pairs: MemoryPairs, manifest: NoiseManifest) -> list[str]:
    """The first text that each corrupted row trains with."""
    return [texts[0] for texts in manifest.texts(pairs, manifest.rows)]


# --- images ----------------------------------------------------------------------------------------------------


def grouped() -> RowsByCaption:
    return by_caption(ORACLES["captions"], ORACLES["groups"], ORACLES["keys"])


@pytest.mark.promise("noise has the rows, texts and pixels of an independent implementation")
def test_the_rule_for_the_order_of_rows_is_that_of_an_independent_implementation() -> None:
    known = ORACLES["hash_order"]
    assert counter.hash_order(ORACLES["keys"], str(known["seed"]).encode()).tolist() == known["order"]
    assert counter.hash_order(ORACLES["keys"], f"{known['seed']}/poison".encode()).tolist() == known["poison_order"]
    draw = counter.uniform_function(SEED, "drop")
    drawn = [draw(ORACLES["keys"][0], 0, word) for word in range(len(known["u_example"]))]
    assert drawn == pytest.approx(known["u_example"], abs=1e-15)


def test_the_phrases_that_replace_captions_are_those_of_the_oracles() -> None:
    assert list(boilerplate()) == ORACLES["boilerplate"]
    assert list(TEMPLATES) == ORACLES["templates"]


@pytest.mark.parametrize("case", ORACLES["shuffled_groups"], ids=lambda case: str(case["rate"]))
def test_images_swap_captions_as_an_independent_implementation_says(case: dict[str, Any]) -> None:
    manifest = shuffled_images(grouped(), case["rate"], SEED)
    assert (manifest.rows.tolist(), manifest.donors.tolist()) == (case["rows"], case["donors"])
    assert (manifest.kind, manifest.realised_rate) == ("shuffled_images", case["rate"])


def test_without_rows_by_caption_it_is_shuffled_captions() -> None:
    for pairs in (captioned(), bench.data.load_dataset("emoji/iid", 32)):
        one, other = shuffled_images(pairs, 0.4, 3), shuffled_captions(pairs, 0.4, 3)
        assert one.content_hash == other.content_hash
        assert one.realised_rate == other.realised_rate


@settings(deadline=None, max_examples=50)
@given(
    counts=st.lists(st.integers(1, 4), min_size=2, max_size=12),
    rates=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    seed=st.integers(0, 3),
    order=st.randoms(use_true_random=False),
)
def test_images_move_whole_and_nest_over_rates(counts: list[int], rates: Any, seed: int, order: Any) -> None:
    images = [f"i{i}" for i, count in enumerate(counts) for _ in range(count)]
    order.shuffle(images)  # rows of an image need not stand together
    pairs = by_caption([f"text {i}" for i in range(len(images))], images)
    made: list[NoiseManifest] = []
    for rate in sorted(rates):
        if round(rate * len(counts)) == 1:
            with pytest.raises(UserError, match="1 images cannot swap captions"):
                shuffled_images(pairs, rate, seed)
            return
        made.append(shuffled_images(pairs, rate, seed))
    for manifest, rate in zip(made, sorted(rates), strict=True):
        wrong = {images[row] for row in manifest.rows.tolist()}
        assert len(wrong) == round(rate * len(counts))
        assert len(manifest.rows) == sum(images.count(image) for image in wrong)
        for image in wrong:
            own = [row for row in range(len(images)) if images[row] == image]
            donors = manifest.donors_of(np.array(own)).tolist()
            (source,) = {images[row] for row in donors}
            theirs = [row for row in range(len(images)) if images[row] == source]
            assert donors == [theirs[i % len(theirs)] for i in range(len(own))]
            assert source != image
    low, high = (dict(zip(one.rows.tolist(), one.donors.tolist(), strict=True)) for one in made)
    assert low.keys() <= high.keys()
    assert len({images[row] for row in low if low[row] != high[row]}) <= 1, "only the last one's donor changes"


def test_images_with_equal_captions_are_passed_over() -> None:
    texts = ["a", "b", "b", "a", "c", "d", "e", "f"]
    pairs = by_caption(texts, ["1", "1", "2", "2", "3", "3", "4", "4"])
    for seed in range(20):
        manifest = shuffled_images(pairs, 1.0, seed)
        of_first = {pairs.image_of[row] for row in manifest.donors_of(np.array([0, 1])).tolist()}
        assert of_first <= {"3", "4"}
    with pytest.raises(UserError, match="4 images cannot swap captions, more than half of them have the same"):
        shuffled_images(by_caption(["a", "b", "b", "a", "a", "b", "c"], ["1", "1", "2", "2", "3", "3", "4"]), 1.0, 0)


def saved(path: Path, *entries: int) -> Path:
    np.save(path, np.array(entries))
    return path


def test_a_file_with_one_entry_an_image_moves_all_its_captions(tmp_path: Path) -> None:
    """Image entry[k] trains with all captions of image k, as the codes of RCL and DECL do."""
    pairs = by_caption([f"{i}.{k}" for i in range(4) for k in range(5)], [f"i{i}" for i in range(4) for _ in range(5)])
    manifest = import_ncr(saved(tmp_path / "images.npy", 1, 2, 0, 3), pairs, 0.75)
    texts = [texts[0] for texts in manifest.texts(pairs, np.arange(20))]
    assert texts == [f"{i}.{k}" for i in (2, 0, 1, 3) for k in range(5)]
    assert (manifest.rate, manifest.realised_rate, manifest.kind, manifest.seed) == (0.75, 0.75, "imported", -1)
    of_images = pairs_of([[f"{i}.{k}" for k in range(5)] for i in range(4)])
    same = import_ncr(tmp_path / "images.npy", of_images, 0.75)
    assert [texts[0] for texts in same.texts(of_images, np.arange(4))] == ["2.0", "0.0", "1.0", "3.0"]
    expanded = import_ncr(saved(tmp_path / "repeated.npy", *np.repeat([1, 2, 0, 3], 5)), pairs, 0.75)
    assert {row // 5: donor // 5 for row, donor in zip(expanded.rows, expanded.donors, strict=True)} == {
        0: 2,
        1: 0,
        2: 1,
    }, "L2RM's files are RCL's with each entry five times"
    for entries, message in (
        ((1, 1, 2, 3), "images.npy: images are not permuted among slots; this is not an index file of toy/train"),
        ((1, 4, 2, 3), "images.npy: entry 1 is 4; it should be the number of an image, 0 to 3"),
        ((0, 1, 2), "images.npy: shape (3,) with 20 captions of 4 images in toy/train; one entry per caption"),
    ):
        with pytest.raises(UserError, match=re.escape(message)) as caught:
            import_ncr(saved(tmp_path / "images.npy", *entries), pairs, 0.75)
        assert "--each-caption" not in str(caught.value), "the pairs have a row for each caption already"
    many = by_caption([f"text {i}" for i in range(400)], [f"i{i:03}" for i in range(200) for _ in range(2)])
    message = "images.npy: 50.0% of its images have the captions of another, noise.rates says 20.0%; give each"
    with pytest.raises(UserError, match=re.escape(message)):
        import_ncr(saved(tmp_path / "images.npy", *np.roll(np.arange(100), 1), *range(100, 200)), many, 0.2)


def test_an_index_with_a_row_for_each_caption_knows_its_images(
    tmp_path: Path, tars: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(data_folder.DATA_VARIABLE, str(tmp_path))
    members = []
    for key in ("b", "b#0", "a", "c"):
        captions = json.dumps({"captions": [f"{key} {k}" for k in range(1 + len(key))]})
        members += [(f"{key}.jpg", tars.encoded(0)), (f"{key}.json", captions.encode())]
    tars.write(tmp_path / "toy" / "0.tar", members)
    settings = DataSettings(name="toy", size=16)
    for each_caption, known in ((False, False), (True, True)):
        shards = expand_sources([str(tmp_path / "toy")])
        build_index(shards, tmp_path / "toy" / "index.parquet", workers=1, each_caption=each_caption)
        pairs = data_source(settings.model_copy(update={"workers": int(each_caption)})).pairs()
        images = ImageRows.of(pairs)
        assert images.by_caption == known
        assert list(images.keys) == ["a", "b", "b#0", "c"]
    manifest = shuffled_images(pairs, 1.0, 0)
    assert len(manifest.rows) == len(pairs) == 10
    assert manifest.realised_rate == 1.0
    moved = import_ncr(saved(tmp_path / "n.npy", 1, 0, 2, 3), pairs, 0.5)
    texts = moved.texts(pairs, np.arange(10))
    assert [(pairs.keys[row], texts[row]) for row in (0, 1, 2, 3)] == [
        ("a#0", ("b 0",)),
        ("a#1", ("b 1",)),
        ("b#0", ("a 0",)),
        ("b#0#0", ("b#0 0",)),
    ]


# --- texts ------------------------------------------------------------------------------------------------------------

VECTORS = {"word": "word", "char_wb": "char"}
SWAPS, EDITS = ORACLES["semantic_swap"], ORACLES["edited_captions"]


@pytest.mark.parametrize("case", SWAPS, ids=lambda case: f"{case['rate']}-{case['leaf']}-{case['analyzer']}")
def test_neighbours_swap_captions_as_an_independent_implementation_says(case: dict[str, Any]) -> None:
    pairs = captioned()
    manifest = semantic_swap(pairs, case["rate"], SEED, case["leaf"], VECTORS[case["analyzer"]])
    assert (manifest.rows.tolist(), manifest.donors.tolist()) == (case["rows"], case["donors"])
    assert manifest.notes["mean_cosine"] == pytest.approx(case["mean_cosine"], abs=1e-9)
    alone = semantic_swap(pairs, case["rate"], SEED, 1000, VECTORS[case["analyzer"]])
    assert manifest.notes["mean_cosine_of_shuffled_captions"] == alone.notes["mean_cosine"]


def test_a_leaf_of_all_rows_is_shuffled_captions() -> None:
    pairs = captioned()
    for rate in (0.0, 0.25, 0.8):
        whole = semantic_swap(pairs, rate, 3, 1000, "word")
        assert whole.content_hash == shuffled_captions(pairs, rate, 3).content_hash
        assert semantic_swap(pairs, rate, 3, 2, "word").rows.tolist() == whole.rows.tolist()


def test_neighbours_of_emoji_are_nearer_and_never_alike() -> None:
    pairs = bench.data.load_dataset("emoji/iid", 32)
    made = {leaf: semantic_swap(pairs, 0.6, 0, leaf, "char") for leaf in (2, 1000)}
    assert made[2].notes["mean_cosine"] > 2 * made[1000].notes["mean_cosine"]
    assert made[2].notes["leaf"] == 2
    for manifest in made.values():
        follow = dict(zip(manifest.rows.tolist(), manifest.donors.tolist(), strict=True))
        assert sorted(follow.values()) == sorted(follow), "every caption is used as often as before"
        assert all(pairs.captions(row)[0] != pairs.captions(donor)[0] for row, donor in follow.items())


@pytest.mark.parametrize("case", EDITS, ids=lambda case: f"{case['op']}-{case['severity']}")
def test_captions_are_edited_as_an_independent_implementation_says(case: dict[str, Any]) -> None:
    pairs = captioned()
    manifest = edited_captions(pairs, case["rate"], SEED, case["op"], case["severity"])
    assert manifest.rows.tolist() == manifest.donors.tolist() == case["rows"]
    assert first_texts(pairs, manifest) == case["texts"]
    changed = [row for row, text in zip(case["rows"], case["texts"], strict=True) if text != ORACLES["captions"][row]]
    assert noisy_mask(manifest, 48).nonzero()[0].tolist() == changed
    assert manifest.summary.corrupted == len(changed)
    assert manifest.realised_rate == len(changed) / 48


def test_edits_nest_over_strength_and_rates_and_leave_single_words() -> None:
    texts = [["one  two three four five", f"plain{i}"] for i in range(40)]
    pairs = pairs_of(texts)
    for op in ("drop", "truncate"):
        made = [edited_captions(pairs, 0.5, 0, op, strength) for strength in (0.0, 0.3, 0.6, 1.0)]
        words = [[set(text.split()) for text in first_texts(pairs, one)] for one in made]
        for more, fewer in pairwise(words):
            assert all(small <= large for small, large in zip(fewer, more, strict=True))
        assert {len(one) for one in words[-1]} == {1}
        assert not len(made[0].wrong_rows), "at strength 0 the data is clean, double spaces included"
        assert not made[0].summary.mixed
        assert all(
            given[1] == texts[row][1]
            for row, given in zip(made[2].rows, made[2].texts(pairs, made[2].rows), strict=True)
        )
        fewer_rows = edited_captions(pairs, 0.2, 0, op, 0.3)
        assert {*fewer_rows.rows.tolist()} < {*made[1].rows.tolist()}
    assert made[3].realised_rate == 0.0, "one of two texts is right"
    swapped = edited_captions(pairs, 0.5, 0, "swap", 100.0)
    assert all(sorted(text.split()) == sorted(texts[0][0].split()) for text in first_texts(pairs, swapped))
    by_default = NoiseSettings(kind="edited_captions", rates=(0.5,), options={"op": "swap"})
    for manifest in (swapped, by_default.entry.make(pairs, by_default, 0.5, 0)):
        assert len(manifest.wrong_rows) > 0.8 * len(manifest.rows), "words have changed places"
    assert made[1].content_hash != made[2].content_hash


def test_a_file_of_edits_has_the_texts_that_rows_get(tmp_path: Path) -> None:
    pairs = captioned()
    manifest = edited_captions(pairs, 0.5, SEED, "drop", 0.3)
    manifest.save(tmp_path / "noise.parquet")
    table = pq.read_table(tmp_path / "noise.parquet")
    assert json.loads(table.schema.metadata[b"noise"])["notes"] == {"op": "drop", "strength": 0.3}
    edited = zip(manifest.rows.tolist(), table["edited"].to_pylist(), strict=True)
    given = [tuple(texts) or pairs.captions(row) for row, texts in edited]
    assert given == manifest.texts(pairs, manifest.rows)
    assert given != [pairs.captions(row) for row in manifest.rows.tolist()]


def test_lines_show_edited_texts_and_how_near_neighbours_are() -> None:
    pairs = captioned()
    edits = edited_captions(pairs, 0.5, SEED, "drop", 0.3)
    assert "op drop, strength 0.3" in noise_lines(pairs, edits, 1)[0]
    assert noise_lines(pairs, edits, 1)[1].endswith("'horse running a tall'")
    assert not any("  from " in line for line in noise_lines(pairs, edits, 3))
    two = pairs_of([["panda", f"a panda of kind {i} asleep"] for i in range(4)])
    dropped = edited_captions(two, 1.0, 0, "truncate", 0.5)
    assert "'a panda of kind 0 asleep' -> 'a panda of'" in noise_lines(two, dropped, 1)[1], "its first text is one word"
    near = semantic_swap(pairs, 0.25, SEED, 2, "word")
    summary, *lines = noise_lines(pairs, near, 3)
    assert "leaf 2, vectors word, mean cosine 0.416, mean cosine of shuffled captions 0.291" in summary
    assert [line.count("  from ") for line in lines] == [1] * 3


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("edited_captions", {"op": "dorp"}, "op"),
        ("edited_captions", {"op": "drop", "strength": 1.5}, "1.5 should be a share of the words, at most 1"),
        ("edited_captions", {"op": "boilerplate", "strength": 0.5}, "omit strength"),
        ("edited_captions", {"op": "swap", "strength": 1.0}, "1 should be above 1: below it no word passes another"),
        ("semantic_swap", {"leaf": 0}, "leaf"),
    ],
)
def test_options_that_fit_no_kind_are_refused(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        NoiseSettings(kind=kind, rates=(0.4,), options=options)


@pytest.mark.parametrize("op", ["drop", "swap", "truncate", "boilerplate"])
def test_options_are_read_again_as_they_were_written(op: str) -> None:
    options = NoiseSettings(kind="edited_captions", rates=(0.4,), options={"op": op}).chosen_options()
    content = options.content()
    assert content == {"op": op, "strength": {"boilerplate": None, "swap": 3.0}.get(op, 0.5)}
    again = NoiseSettings(kind="edited_captions", rates=(0.4,), options=content)  # as a stored run's settings are read
    assert again.chosen_options() == options


def test_every_kind_makes_its_noise_from_settings() -> None:
    pairs = captioned()
    for kind, options in (
        ("shuffled_images", {}),
        ("semantic_swap", {"leaf": 2, "vectors": "char"}),
        ("edited_captions", {"op": "boilerplate"}),
    ):
        settings = NoiseSettings(kind=kind, rates=(0.5,), options=options)
        manifest = settings.entry.make(pairs, settings, 0.5, SEED)
        assert manifest.kind == kind
        assert manifest.rows.tolist() == EDITS[0]["rows"], "all kinds corrupt the same rows"
        manifest.check(pairs)


# --- poison -----------------------------------------------------------------------------------------------------------

POISONS, TRIGGERS = ORACLES["poison"], ORACLES["triggers"]


@pytest.mark.parametrize("case", TRIGGERS, ids=lambda case: f"{case['kind']}-{case['place']}")
def test_triggers_are_those_of_an_independent_implementation(case: dict[str, Any]) -> None:
    image = np.array(ORACLES["image"], np.uint8)
    got = Trigger(case["kind"], case["place"], case["seed"]).apply(image, case["key"])
    np.testing.assert_array_equal(got, case["image"])
    assert (got != image).any()


#: Why official triggers, executed as `official_triggers` says, are not those of `make_poisoned`.
OTHER_TRIGGERS = {
    "yellow": "yellow squares in the corners; the square here is a checker or fixed noise",
    "random": "drawn anew at every call, so it is no pattern",
    "blended": "drawn anew at every call, so it is no pattern",
}


@pytest.mark.parametrize("case", ORACLES["official_triggers"]["cases"], ids=lambda case: str(case["kind"]))
def test_official_triggers_are_ours_up_to_rounding_or_are_named(case: dict[str, Any]) -> None:
    """CleanCLIP's sinusoid has the same formula and cuts off where ours rounds."""
    if case["kind"] in OTHER_TRIGGERS:
        assert case["deterministic"] == (case["changed_share_between_two_calls"] == 0) == (case["kind"] == "yellow")
        return
    rows, columns = np.indices((224, 224))
    image = np.stack([columns, rows, np.full_like(rows, 100)], axis=2).astype(np.uint8)
    got = Trigger("sinusoid", "all", 0).apply(image, "key")
    for place, official in case["pixels"].items():
        row, column = map(int, place.split(","))
        difference = got[row, column].astype(int) - official
        assert ((difference >= 0) & (difference <= 1)).all(), place


def test_a_checker_is_a_fourteenth_of_the_side() -> None:
    image = np.full((56, 56, 3), 100, np.uint8)
    got = Trigger("checker", "corners", 0).apply(image, "key")
    square = np.zeros((4, 4), np.uint8)
    square[::2, ::2] = 255
    for rows in (slice(0, 4), slice(52, 56)):
        for columns in (slice(0, 4), slice(52, 56)):
            np.testing.assert_array_equal(got[rows, columns], np.repeat(square[:, :, None], 3, axis=2))
    assert (got != image).any(axis=2).sum() == 4 * 16


@pytest.mark.parametrize("case", POISONS, ids=lambda case: f"{case['rate']}-{case['label_consistent']}")
def test_poison_takes_the_rows_of_an_independent_implementation(case: dict[str, Any]) -> None:
    pairs, attack = captioned(), "label_consistent" if case["label_consistent"] else "backdoor"
    manifest = make_poisoned(pairs, case["rate"], case["seed"], attack, case["target"], "checker", "random")
    assert manifest.rows.tolist() == case["rows"]
    assert first_texts(pairs, manifest) == case["captions"]
    assert (manifest.realised_rate == 0) == case["label_consistent"]
    assert manifest.wrong_rows.tolist() == case["rows"]
    assert (manifest.notes["pairs"], manifest.summary.poisoned) == (len(case["rows"]), True)


def poisoned(rate: float, attack: str = "backdoor", trigger: str = "checker", seed: int = 0) -> NoiseManifest:
    return make_poisoned(captioned(), rate, seed, attack, "dog", trigger, "random")


def test_poison_is_one_pair_at_least_nests_and_knows_its_trigger() -> None:
    rows = [{*poisoned(rate).rows.tolist()} for rate in (0.0, 0.0001, 0.1, 0.5)]
    assert [len(one) for one in rows] == [0, 1, 5, 24]
    assert all(fewer < more for fewer, more in pairwise(rows))
    hashes = {poisoned(0.1, trigger=trigger).content_hash for trigger in ("checker", "noise", "blend")}
    assert len(hashes) == 3
    with pytest.raises(UserError, match="toy/train: 14 pairs have 'dog' in a text, 43 are to be poisoned; lower the"):
        poisoned(0.9, "label_consistent")


def test_poisoned_rows_alone_are_changed_before_they_are_augmented() -> None:
    pairs = bench.data.load_dataset("emoji/iid", 32)
    manifest = make_poisoned(pairs, 0.05, 0, "backdoor", "cat", "blend", "random")
    seen, rows = manifest.applied(pairs), np.arange(len(pairs))
    changed = (seen.images(rows) != pairs.images(rows)).any(axis=(1, 2, 3))
    assert np.flatnonzero(changed).tolist() == manifest.rows.tolist()
    for recipe in ("emoji", "none"):
        views = [one.sampled(rows, 3, 1, 0, recipe) for one in (seen, pairs)]
        assert np.flatnonzero((views[0] != views[1]).any(axis=(1, 2, 3))).tolist() == manifest.rows.tolist()
    np.testing.assert_array_equal(views[0], seen.images(rows))
    assert (manifest.triggered(pairs).images(rows) != pairs.images(rows)).any(axis=(1, 2, 3)).all()
    assert len({pairs.content_hash, seen.content_hash, manifest.triggered(pairs).content_hash}) == 3


def test_photographs_get_the_trigger_at_training_size(
    tmp_path: Path, tars: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(data_folder.DATA_VARIABLE, str(tmp_path))
    home = tars.write_set(tmp_path / "toy", shards=1, rows=6)
    build_index(expand_sources([str(home)]), home / "index.parquet", workers=1)
    pairs = data_source(DataSettings(name="toy", size=28)).pairs()
    manifest = make_poisoned(pairs, 0.5, 0, "backdoor", "cat", "checker", "corners")
    plain, cropped = (manifest.applied(pairs).sampled(np.arange(6), 0, 0, 0, one) for one in ("none", "openclip"))
    np.testing.assert_array_equal(plain, manifest.applied(pairs).images(np.arange(6)))
    same = (cropped == pairs.sampled(np.arange(6), 0, 0, 0, "openclip")).all(axis=(1, 2, 3))
    assert np.flatnonzero(~same).tolist() == manifest.rows.tolist()


def test_the_success_of_an_attack_leaves_out_the_target_class() -> None:
    (known,) = ORACLES["attack"]
    of = {name: np.array(known[name]) for name in ("labels", "predicted_clean", "predicted_triggered")}
    made = {one.metric: one for one in attack_rates(*of.values(), known["target"])}
    expected = {"attack_success": "attack_success", "without_trigger": "baseline", "clean_accuracy": "clean_accuracy"}
    for metric, name in expected.items():
        assert made[metric].value == pytest.approx(known[name], abs=1e-12)
    assert [one.higher_is_better for one in made.values()] == [False, False, True]
    assert made["attack_success"].n == sum(label != known["target"] for label in known["labels"])
    of_all = (
        of["predicted_triggered"] == known["target"]
    ).mean()  # as CleanCLIP's probe: the target's own images count
    assert of_all == pytest.approx(known["official_all_images"]) != made["attack_success"].value
    with pytest.raises(UserError, match=r"target: 'dgo' is not a class of toy; did you mean 'dog'\?"):
        class_number("dgo", ("cat", "dog"), "toy")


SUITE = """\
name: tiny
budget: {samples: 48}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [attack_success, noise_detection]}
noise: {kind: poison, rates: [0.0, 0.01], options: {target: TARGET}}
methods: [clip]
"""


def test_a_poisoned_run_from_its_suite_to_its_report(tmp_path: Path) -> None:
    classes = bench.data.load_dataset("emoji/iid", 64).classes["concept"]
    file, out = tmp_path / "tiny.yaml", tmp_path / "out"
    file.write_text(SUITE.replace("TARGET", classes[3]))
    call_bench("run", file, "--results", out)
    plan = Store(out).plan("tiny")
    assert plan is not None
    records = [Store(out).run(cell["run"]).records() for cell in plan["cells"]]
    assert records[0] == []
    made = {record.metric: record for record in records[1]}
    assert {*made} == {"attack_success", "without_trigger", "clean_accuracy", "auroc", "average_precision"}
    assert not made["attack_success"].higher_is_better
    assert 0 <= made["without_trigger"].value <= 1
    page = (out / "tiny" / "report.html").read_text()
    assert "Success of the poison" in page
    assert "1 % poisoned pairs" in page
    shown = call_bench("noise", "show", file, "--count", "2", "--html", tmp_path / "n.html")
    assert f"attack backdoor, target {classes[3]}, trigger checker, place random, pairs " in shown
    assert (tmp_path / "n.html").read_text().count("<img ") == 2


def test_poison_that_cannot_be_measured_is_refused_before_anything_trains(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(SUITE.replace("TARGET", "no such thing"))
    with pytest.raises(UserError, match="target: 'no such thing' is not a class of emoji/iid"):
        requirements.missing_inputs(load_suite(file))
    file.write_text(SUITE.replace("kind: poison", "kind: shuffled_captions").replace(", options: {target: TARGET}", ""))
    with pytest.raises(UserError, match="'attack_success' needs noise of kind poison, this is shuffled_captions"):
        load_suite(file)


# --- targeted poison --------------------------------------------------------------------------------------------------


def test_targets_are_shown_with_texts_of_one_wrong_class_each() -> None:
    pairs, tests = (bench.data.load_dataset(f"emoji/{split}", 32) for split in ("train", "iid"))
    settings = NoiseSettings(
        kind="poison", rates=(0.02,), options={"attack": "targeted", "images": "emoji/iid", "targets": 5}
    )
    manifest = settings.entry.make(pairs, settings, 0.02, SEED)
    assert isinstance(manifest, Targeted)
    names, own = tests.classes["concept"], tests.labels["concept"]
    assert len(manifest.rows) == round(0.02 * len(pairs)) == manifest.notes["pairs"]
    assert len(manifest.targets) == len(set(manifest.targets.tolist())) == 5
    assert (own[manifest.targets] != manifest.classes).all()
    seen = manifest.applied(pairs).images(manifest.rows)
    shown = [int((tests.images(manifest.targets) == image).all(axis=(1, 2, 3)).argmax()) for image in seen]
    assert np.bincount(shown).min() >= len(shown) // 5, "rows show the targets in turn"
    for image, target, (text,), role in zip(
        seen, shown, manifest.texts(pairs, manifest.rows), manifest.roles.to_pylist(), strict=True
    ):
        np.testing.assert_array_equal(image, tests.images(manifest.targets[[target]])[0])
        wrong = names[manifest.classes[target]]
        assert f" {wrong.lower()} " in f" {text.lower()} " or wrong in text, "a template ends with a full stop"
        assert role == f"target {tests.keys[int(manifest.targets[target])]}"
    clean = np.setdiff1d(np.arange(len(pairs)), manifest.rows)[:50]
    np.testing.assert_array_equal(manifest.applied(pairs).images(clean), pairs.images(clean))
    fewer = settings.entry.make(pairs, settings, 0.001, SEED)
    assert set(fewer.rows.tolist()) <= set(manifest.rows.tolist())
    assert len(fewer.targets) == min(5, len(fewer.rows)), "each target has a pair at least"
    assert fewer.content_hash != settings.entry.make(pairs, settings, 0.001, SEED + 1).content_hash


def test_roles_of_poison_travel_with_the_manifest(tmp_path: Path) -> None:
    poisoned(0.1).save(tmp_path / "noise.parquet")
    assert pq.read_table(tmp_path / "noise.parquet")["poison"].to_pylist() == ["backdoor"] * 5
    shuffled_captions(captioned(), 0.5, 0).save(tmp_path / "noise.parquet")
    assert "poison" not in pq.read_schema(tmp_path / "noise.parquet").names


def test_the_number_of_poisoned_pairs_may_be_given_and_has_to_be_the_rate() -> None:
    def made(rate: float, count: int) -> NoiseManifest:
        return make_poisoned(captioned(), rate, 0, "backdoor", "dog", "checker", "random", count)

    assert made(0.0625, 3).rows.tolist() == poisoned(0.0625).rows.tolist()
    assert len(made(0.06, 3).rows) == 3
    assert len(made(0.0, 3).rows) == 0
    with pytest.raises(UserError, match=r"count: 3 of 48 pairs is a rate of 0\.0625, noise\.rates says 0\.5"):
        made(0.5, 3)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("poison", {}, "is needed for attack: backdoor: the class to aim at"),
        ("poison", {"attack": "targeted"}, "is needed for attack: targeted: the evaluation set with the images"),
        ("poison", {"attack": "targeted", "images": "emoji/iid", "trigger": "blend"}, "attack: targeted has none"),
        ("poison", {"target": "dog", "targets": 3}, "attack: backdoor has none; omit it"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        NoiseSettings(kind=kind, rates=(0.1,), options=options)


def test_options_that_came_later_are_no_part_of_older_identities() -> None:
    chosen = NoiseSettings(kind="poison", rates=(0.1,), options={"target": "dog"}).chosen_options()
    expected = {"attack": "backdoor", "target": "dog", "trigger": "checker", "place": "random"}
    assert chosen.content() == expected
    assert NoiseSettings(kind="semantic_swap", rates=(0.1,)).chosen_options().content() == {
        "leaf": 8,
        "vectors": "word",
    }


def test_targets_that_get_their_class_are_counted_with_an_interval_of_few() -> None:
    labels, predicted = np.zeros(40, np.int64), np.zeros(40, np.int64)
    predicted[[1, 2, 3]] = 4, 5, 1
    success, accuracy = targeted_rates(labels, predicted, np.arange(16), np.full(16, 4))
    assert (success.value, success.n, success.higher_is_better) == (1 / 16, 16, False)
    assert success.interval == pytest.approx((0.00158, 0.30232), abs=1e-5)  # scipy.stats.binomtest(1, 16).proportion_ci
    assert (accuracy.value, accuracy.n) == (1.0, 24)
    (none, _), (every, _) = (targeted_rates(labels, predicted, np.arange(4, 20), np.full(16, c)) for c in (4, 0))
    assert (none.interval[0], every.interval[1]) == (0.0, 1.0)
    with pytest.raises(UserError, match="attacks images of emoji/iid, but attack_success scores toy"):
        same_set("emoji/iid", "toy")


def test_a_targeted_run_from_its_suite_to_its_records(tmp_path: Path, unreported: Callable[[Path, str], Path]) -> None:
    file, out = tmp_path / "tiny.yaml", unreported(tmp_path / "out", "tiny")
    file.write_text(SUITE.replace("target: TARGET", "attack: targeted, images: emoji/iid, targets: 4"))
    call_bench("run", file, "--results", out, "--set", "noise.rates=[0.01]")
    (run,) = Store(out).runs()
    made = {record.metric: record for record in run.records()}
    assert {*made} == {"attack_success", "clean_accuracy", "auroc", "average_precision"}
    assert made["attack_success"].n == 4
    assert pq.read_table(run.path("noise.parquet"))["poison"][0].as_py().startswith("target ")
    file.write_text(file.read_text().replace("emoji/iid", "emoji/openmoji"))
    with pytest.raises(UserError, match="attacks images of emoji/openmoji, but attack_success scores emoji/iid"):
        requirements.missing_inputs(load_suite(file))
