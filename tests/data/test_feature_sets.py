"""Feature sets: what is stored comes back, and what was cut, shifted or swapped is refused."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import hashing
from bench.data.features import FeaturePairs, open_feature_set, verify_feature_set
from bench.data.features import texts as texts_module
from bench.data.features.about import IMAGE, INDEX, MAPPED, NAME, ROWS, TEXT, Encoder
from bench.data.features.pairs import evenly_spaced
from bench.data.features.texts import TextPlan, text_hashes
from bench.data.features.writing import Array, Content, write_feature_set
from bench.data.noise.shuffled import shuffled_captions
from bench.data.pairs import MemoryPairs, Pairs
from bench.data.strings import TEXT_LISTS, Strings
from bench.data.text_sets import ColumnPairs
from bench.errors import UserError

from .captions import draw_captions

N, P, Q, VIEWS = 150, 4, 3, 3
KEYS = [f"k{row:04d}" for row in range(N)]
TEXTS = [[f"text {row}", f"shared {row % 7}"] for row in range(N)]
PROMPTS = ("a photo of one", "text 3")
LABELS = {"parity": np.arange(N, dtype=np.int64) % 2}


def array(values: npt.NDArray[Any], name: str = "made up") -> Array:
    views = values.shape[1] if values.ndim == 3 else 1
    dtype: Any = values.dtype.name
    encoder = Encoder(name, "ab" * 32, "none", dtype, values.shape[-1], views)
    return Array(encoder, lambda start, stop: values[start:stop])


def lists(texts: Sequence[Sequence[str]]) -> Any:
    return pa.array(texts, TEXT_LISTS)


def content(views: int = VIEWS, **changes: Any) -> Content:
    plan = TextPlan.of(lists(TEXTS), PROMPTS)
    draws = np.random.default_rng(0)
    images = draws.normal(size=(N, views, P)).astype(np.float16)
    texts = draws.normal(size=(len(plan.hashes), Q)).astype(np.float32)
    own: dict[str, Any] = {
        "name": "made/pairs",
        "description": "Random numbers.",
        "keys": Strings.of(KEYS),
        "captions": lists(TEXTS),
        "image": array(images),
        "text": array(texts),
        "plan": plan,
        "labels": LABELS,
        "classes": {"parity": ("even", "odd")},
        "templates": ("a photo of {}",),
        "prompts": PROMPTS,
    }
    return Content(**{**own, **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("features") / "set"
    write_feature_set(out, content())
    return out


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_what_is_written_is_read_back(whole: Path) -> None:
    pairs, made = open_feature_set(whole), content()
    assert isinstance(pairs, Pairs)
    assert isinstance(pairs, ColumnPairs)
    assert (len(pairs), pairs.name, list(pairs.keys)) == (N, "made/pairs", KEYS)
    assert [list(pairs.captions(row)) for row in (0, 7, N - 1)] == [TEXTS[0], TEXTS[7], TEXTS[-1]]
    assert pairs.caption_lists(np.array([5, 2])).to_pylist() == [TEXTS[5], TEXTS[2]]
    assert pairs.labels["parity"].tolist() == LABELS["parity"].tolist()
    assert pairs.classes == {"parity": ("even", "odd")}
    assert pairs.templates == ("a photo of {}",)
    assert pq.read_table(whole / "prompts.parquet")["text"].to_pylist() == list(PROMPTS)
    rows = np.array([9, 0, 149])
    images = made.image.read(0, N)
    assert pairs.images(rows).dtype == np.float16
    assert (pairs.images(rows) == images[rows, 0]).all()
    assert (pairs.image_array == images).all()
    assert pairs.about.image.name == "made up"


def test_features_of_texts_are_found_by_the_string(whole: Path) -> None:
    pairs, made = open_feature_set(whole), content()
    assert pairs.texts is not None
    assert made.plan is not None
    assert made.text is not None
    assert len(pairs.texts) == N + 7 + 1  # shared captions and repeated prompts have one row
    stored = made.text.read(0, len(pairs.texts))
    for text in ("text 3", "shared 6", "a photo of one"):
        row = made.plan.texts(0, len(pairs.texts)).index(text)
        assert (pairs.texts.array[pairs.texts.rows([text])][0] == stored[row]).all()
    asked = ["shared 0", "text 149", "shared 0"]
    assert pairs.texts.array[pairs.texts.rows(asked)].shape == (3, Q)
    assert pairs.texts.rows(asked)[0] == pairs.texts.rows(asked)[2]
    own = pairs._rows["text_rows"][12].as_py()
    assert own == pairs.texts.rows(TEXTS[12]).tolist()
    with pytest.raises(UserError, match=r"text\.npy: has no feature of the text 'text 150'"):
        pairs.texts.rows(["text 1", "text 150"])


@pytest.mark.promise("a feature set has the rows, order and noise of the pixels' set")
def test_noise_order_and_captions_are_those_of_the_pixels_set(whole: Path) -> None:
    pixels = np.zeros((N, 1, 1, 3), np.uint8)
    memory = MemoryPairs.build("made", "", KEYS, TEXTS, {}, {}, pixels)
    pairs, rows = open_feature_set(whole), np.arange(N)
    own, other = shuffled_captions(pairs, 0.4, 3), shuffled_captions(memory, 0.4, 3)
    assert own.content_hash == other.content_hash
    assert own.rows.tolist() == other.rows.tolist()
    assert draw_captions(pairs, own, rows, 2, 5) == draw_captions(memory, other, rows, 2, 5)
    assert pairs.order(1, 2).tolist() == memory.order(1, 2).tolist()
    assert pairs.texts is not None
    assert len(pairs.texts.array[pairs.texts.rows(draw_captions(pairs, own, rows, 2, 5))]) == N


def test_views_are_drawn_by_seed_row_epoch_and_differ_within_a_step(whole: Path) -> None:
    pairs, rows = open_feature_set(whole), np.arange(N)
    first, second = (pairs.view_of(rows, 0, 0, view) for view in (0, 1))
    assert set(first.tolist()) == {0, 1, 2}
    assert (first != second).all()
    assert (pairs.view_of(rows[5:9], 0, 0, 0) == first[5:9]).all()  # whatever the batch
    assert (pairs.view_of(rows, 1, 0, 0) != first).any()
    assert (pairs.view_of(rows, 0, 1, 0) != first).any()
    assert (pairs.sampled(rows, 0, 0, 1, "crop") == pairs.image_array[rows, second]).all()


def test_a_share_keeps_the_rows_that_shards_would_keep(whole: Path) -> None:
    half, pairs = FeaturePairs(whole, 0.5), open_feature_set(whole)
    assert len(half) == N // 2
    assert half.chosen is not None
    assert list(half.keys) == [KEYS[row] for row in half.chosen]
    assert half.captions(3) == pairs.captions(half.chosen[3])
    assert (half.images(np.array([3])) == pairs.images(half.chosen[[3]])).all()
    assert half.labels["parity"].tolist() == LABELS["parity"][half.chosen].tolist()
    assert half.content_hash != pairs.content_hash
    again = pickle.loads(pickle.dumps(half))
    assert again.content_hash == half.content_hash
    assert len(again) == len(half)


def test_the_content_hash_follows_the_content_and_no_file(whole: Path, tmp_path: Path) -> None:
    write_feature_set(tmp_path / "again", content(description="Other words."))
    assert open_feature_set(tmp_path / "again").content_hash == open_feature_set(whole).content_hash
    assert (tmp_path / "again" / TEXT).read_bytes() == (whole / TEXT).read_bytes()
    write_feature_set(tmp_path / "other", content(labels={"parity": 1 - LABELS["parity"]}))
    assert open_feature_set(tmp_path / "other").content_hash != open_feature_set(whole).content_hash


def test_texts_may_be_absent(tmp_path: Path) -> None:
    write_feature_set(tmp_path / "set", content(text=None))
    pairs = open_feature_set(tmp_path / "set")
    assert len(verify_feature_set(tmp_path / "set")) == 1
    assert pairs.captions(0) == tuple(TEXTS[0])
    assert pairs.texts is None
    assert pairs.images(np.array([1])).shape == (1, P)


def stored(path: Path, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> None:
    """Change the numbers of an array in place; shape, type and size stay."""
    np.save(path, np.ascontiguousarray(change(np.load(path))))


def rewritten(folder: Path, **fields: Any) -> None:
    about = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**about, **fields}))


@pytest.mark.parametrize(("name", "field"), [(IMAGE, "key 'k0000'"), (TEXT, "row ")])
def test_a_shifted_array_is_refused_when_it_is_opened(copied: Path, name: str, field: str) -> None:
    stored(copied / name, lambda values: np.roll(values, 1, axis=0))
    with pytest.raises(UserError, match=rf"{name}: .*{field}.*shifted or swapped") as error:
        FeaturePairs(copied)
    assert len(error.value.lines) == 1


def test_arrays_swapped_with_those_of_another_set_are_refused(copied: Path, tmp_path: Path) -> None:
    other = np.random.default_rng(5).normal(size=(N, VIEWS, P)).astype(np.float16)
    write_feature_set(tmp_path / "other", content(image=array(other)))
    shutil.copy(tmp_path / "other" / IMAGE, copied / IMAGE)
    with pytest.raises(UserError, match=r"image\.npy: row 0"):
        FeaturePairs(copied)


@pytest.mark.parametrize("name", [IMAGE, TEXT])
def test_two_exchanged_rows_are_found_by_verify(copied: Path, name: str) -> None:
    assert 1 not in evenly_spaced(N)  # so that opening reads neither

    def exchange(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        values[[1, 3]] = values[[3, 1]]
        return values

    stored(copied / name, exchange)
    with pytest.raises(UserError, match=rf"{name}: (sha256 is |row \d: the features are not)"):
        verify_feature_set(copied)


def test_a_whole_set_is_verified_with_its_evaluation_sets(copied: Path) -> None:
    write_feature_set(copied / "evaluation" / "made" / "test", content(name="made/test"))
    assert [line.rpartition(": ")[2] for line in verify_feature_set(copied)] == ["whole", "whole"]
    assert open_feature_set(copied).evaluation("made/test").name == "made/test"
    stored(copied / "evaluation" / "made" / "test" / IMAGE, lambda values: values[::-1])
    with pytest.raises(UserError, match=r"evaluation/made/test/image\.npy"):
        verify_feature_set(copied)


@pytest.mark.parametrize("name", [IMAGE, TEXT, INDEX, ROWS, MAPPED, "prompts.parquet"])
def test_files_that_are_cut_or_gone_are_named(copied: Path, name: str) -> None:
    data = (copied / name).read_bytes()
    (copied / name).write_bytes(data[:-1])
    with pytest.raises(UserError, match=rf"{name}: has {len(data) - 1:,} bytes, features\.json says {len(data):,}"):
        FeaturePairs(copied)
    (copied / name).unlink()
    with pytest.raises(UserError, match=rf"{name}: cannot be read: No such file"):
        FeaturePairs(copied)


@pytest.mark.parametrize("name", [INDEX, ROWS, MAPPED, "prompts.parquet"])
def test_a_changed_byte_of_any_file_is_found(copied: Path, name: str) -> None:
    data = bytearray((copied / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copied / name).write_bytes(data)
    with pytest.raises(UserError, match=str(copied)):
        verify_feature_set(copied)


def test_a_description_that_contradicts_itself_or_the_arrays_is_refused(copied: Path) -> None:
    about = json.loads((copied / NAME).read_text())
    for field, value, line in (
        ("version", 2, "version: is 2, this bench reads 1"),
        ("rows", N + 1, r"image.npy: holds float16 \[150, 3, 4\].* \[151, 3, 4\]"),
        ("texts", 0, r"text_index.npy: holds uint64 .* \[3, 0\]"),
        ("image", {**about["image"], "width": P + 1}, r"image.npy: holds float16 \[150, 3, 4\].* \[150, 3, 5\]"),
        ("text", {**about["text"], "dtype": "float16"}, "text.npy: holds float32"),
        ("text", None, "files: are"),
        ("image", None, r"is not the description of a feature set \(.*image"),
        ("files", {}, "files: are , not"),
        ("rows", "many", "is not the description of a feature set"),
    ):
        rewritten(copied, **{**about, field: value})
        with pytest.raises(UserError, match=line):
            FeaturePairs(copied)
    (copied / NAME).unlink()
    with pytest.raises(UserError, match=r"features\.json: no such file; `bench features extract`"):
        FeaturePairs(copied)


def test_captions_of_other_rows_are_found(copied: Path, tmp_path: Path) -> None:
    """The rows of another set with the same strings, two of them exchanged, beside the arrays of this one."""
    other = [list(texts) for texts in TEXTS]
    other[1], other[3] = other[3], other[1]
    plan = TextPlan.of(lists(other), PROMPTS)
    write_feature_set(tmp_path / "other", content(captions=lists(other), plan=plan))
    for name in (ROWS, MAPPED):
        shutil.copy(tmp_path / "other" / name, copied / name)
        with pytest.raises(UserError, match=rf"{name}: sha256 is .* features\.json says"):
            verify_feature_set(copied)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"keys": Strings.of(KEYS[::-1])}, "key 'k0148' follows 'k0149'; sort rows by key"),
        ({"keys": Strings.of(["k0000", *KEYS[:-1]])}, "key 'k0000' is a duplicate"),
        ({"keys": Strings.of(KEYS[:-1])}, "149 keys, but 150 lists of captions"),
        ({"captions": lists([[], *TEXTS[1:]])}, "key 'k0000' has no caption"),
        ({"labels": {"parity": LABELS["parity"] + 1}}, "labels 'parity': should be 150 indices"),
        ({"image": array(np.full((N, 1, P), np.nan, np.float16))}, "row 0: a feature is NaN or infinite"),
        ({"image": array(np.zeros((N - 1, 1, P), np.float16))}, r"gives float16 \[149, 1, 4\]"),
    ],
)
def test_wrong_content_is_refused_and_nothing_is_left(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=line):
        write_feature_set(tmp_path / "set", content(**changes))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_replaced(whole: Path) -> None:
    with pytest.raises(UserError, match="already exists"):
        write_feature_set(whole, content())


def test_different_texts_with_one_hash_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_module, "text_hashes", lambda texts: text_hashes(text[:4] for text in texts))
    with pytest.raises(UserError, match="'text 1' and 'text 0' have the same 64-bit hash"):
        TextPlan.of(lists(TEXTS))


def test_the_hash_of_a_text_is_fixed() -> None:
    import hashlib

    expected = int.from_bytes(hashlib.blake2b("größe".encode(), digest_size=8).digest(), "little")
    assert text_hashes(["größe"]).tolist() == [expected]
    assert hashing.digest({"a": 1.0}) == hashing.digest({"a": 1})


@pytest.mark.parametrize("name", [INDEX, MAPPED, "prompts.parquet"])
def test_a_file_that_is_no_array_and_was_changed_is_refused_when_it_is_opened(copied: Path, name: str) -> None:
    data = bytearray((copied / name).read_bytes())
    data[-1] ^= 1
    (copied / name).write_bytes(data)
    with pytest.raises(UserError, match=rf"{name}: sha256 is .*; it was changed, extract or import the set again"):
        FeaturePairs(copied)
