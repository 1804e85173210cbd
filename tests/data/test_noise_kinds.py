"""Kinds of noise beside shuffled captions, against the numbers of an independent implementation."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bench.data
from bench import counter, data_folder
from bench.data import MemoryPairs
from bench.data.noise import NoiseManifest, import_ncr, shuffled_captions, shuffled_images
from bench.data.noise.images import Images
from bench.data.shards.indexing import build
from bench.data.shards.sources import expand
from bench.data.strings import Strings
from bench.errors import UserError
from bench.suite.settings import DataSettings

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


def test_the_rule_for_the_order_of_rows_is_that_of_an_independent_implementation() -> None:
    known = ORACLES["hash_order"]
    assert counter.hash_order(ORACLES["keys"], str(known["seed"]).encode()).tolist() == known["order"]
    assert counter.hash_order(ORACLES["keys"], f"{known['seed']}/poison".encode()).tolist() == known["poison_order"]


@pytest.mark.parametrize("case", ORACLES["shuffled_groups"], ids=lambda case: str(case["rate"]))
def test_images_swap_captions_as_an_independent_implementation_says(case: dict[str, Any]) -> None:
    manifest = shuffled_images(grouped(), case["rate"], SEED)
    assert (manifest.rows.tolist(), manifest.donors.tolist()) == (case["rows"], case["donors"])
    assert (manifest.kind, manifest.realised_rate) == ("shuffled_images", case["rate"])


def test_without_rows_by_caption_it_is_shuffled_captions() -> None:
    for pairs in (captioned(), bench.data.load("emoji/iid", 32)):
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
        ((1, 1, 2, 3), "images.npy: images are not permuted among slots; this is no index file of toy/train"),
        ((1, 4, 2, 3), "images.npy: entry 1 is 4; it should be the number of an image, 0 to 3"),
        ((0, 1, 2), "images.npy: shape (3,) with 20 captions of 4 images in toy/train; one entry a caption or one an"),
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
    monkeypatch.setenv(data_folder.VARIABLE, str(tmp_path))
    members = []
    for key in ("b", "b#0", "a", "c"):
        captions = json.dumps({"captions": [f"{key} {k}" for k in range(1 + len(key))]})
        members += [(f"{key}.jpg", tars.encoded(0)), (f"{key}.json", captions.encode())]
    tars.write(tmp_path / "toy" / "0.tar", members)
    settings = DataSettings(name="toy", size=16)
    for each_caption, known in ((False, False), (True, True)):
        shards = expand([str(tmp_path / "toy")])
        build(shards, tmp_path / "toy" / "index.parquet", workers=1, each_caption=each_caption)
        pairs = bench.data.training(settings.model_copy(update={"workers": int(each_caption)}))
        images = Images.of(pairs)
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
