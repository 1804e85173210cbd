"""Evaluation data on the disk: two layouts, one name, one content; what is missing or broken is said."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from bench import data
from bench.catalogue.evaluation_sets import entries
from bench.cli import app
from bench.data import Pairs, evaluation
from bench.data.evaluation import index, words
from bench.data.evaluation.rows import drawn_rows
from bench.data.photo import SQUASH
from bench.errors import UserError
from bench.evaluation.probabilistic.hierarchy import levels

Folder = Callable[..., Path]
CLASSES, TEMPLATES = ("cat", "dog", "snow fox"), ("a photo of a {c}.", "a bad photo of the {c}.")


def picture(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    """Smooth colours, so that JPEG keeps them about."""
    corners = np.random.default_rng(seed).integers(0, 255, (2, 2, 3), dtype=np.uint8)
    return Image.fromarray(corners).resize(size, Image.Resampling.BICUBIC)


def encoded(seed: int, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    picture(seed).save(file, form)
    return file.getvalue()


def classified(count: int = 7) -> list[dict[str, object]]:
    return [{"png": encoded(number), "cls": number % 3} for number in range(count)]


def pixels(pairs: Pairs) -> np.ndarray:
    return pairs.images(np.arange(len(pairs)))


def test_a_webdataset_folder_is_read_in_order_of_keys(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    home = evaluation_folder / "wds_vtab-pets"
    webdataset_folder(home, classified(), shards=3, classes=CLASSES, templates=TEMPLATES)
    pairs = evaluation.load("pets", 24)
    assert isinstance(pairs, Pairs)
    assert pairs.keys == tuple(f"s{number:07d}" for number in range(7))
    np.testing.assert_array_equal(pairs.labels["class"], [0, 1, 2, 0, 1, 2, 0])
    assert pairs.classes["class"] == CLASSES
    assert pairs.templates == ("a photo of a {}.", "a bad photo of the {}.")
    assert pairs.captions(5) == ("snow fox",)
    whole = picture(4).resize((32, 24), Image.Resampling.BICUBIC).crop((4, 0, 28, 24))
    np.testing.assert_array_equal(pairs.images(np.array([4]))[0], np.asarray(whole))
    squashed = evaluation.load("pets", 24, SQUASH).images(np.array([4]))[0]
    np.testing.assert_array_equal(squashed, np.asarray(picture(4).resize((24, 24), Image.Resampling.BICUBIC)))
    assert evaluation.counts("pets") == (7, 3)


def test_other_shards_are_the_same_data(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    found = []
    for shards in (1, 3):
        webdataset_folder(evaluation_folder / "wds_pets", classified(), shards=shards, classes=CLASSES)
        found.append(evaluation.load("pets", 24).content_hash)
        evaluation._load.cache_clear()
    assert found[0] == found[1]
    changed = [*classified()[:-1], {"png": encoded(99), "cls": 0}]
    webdataset_folder(evaluation_folder / "wds_pets", changed, classes=CLASSES)
    assert evaluation.load("pets", 24).content_hash != found[0]


def test_an_index_is_kept_until_the_files_change(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    home = webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES)
    first = evaluation.load("pets", 24)
    assert not first.rows.digests
    assert first.content_hash
    evaluation._load.cache_clear()
    again = evaluation.load("pets", 24)
    assert len(again.rows.digests) == 7  # nothing is hashed twice
    assert again.content_hash == first.content_hash
    webdataset_folder(home, classified(5), classes=CLASSES)
    evaluation._load.cache_clear()
    assert len(evaluation.load("pets", 24)) == 5


def stored_again(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], object]:
    """Write a kept index as a sound Parquet file with another table in it."""
    return lambda path: pq.write_table(change(pq.read_table(path)), path)


def with_other_type(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("label"), "label", pa.array(["cat"] * len(table)))


def with_gaps(table: pa.Table) -> pa.Table:
    labels = pa.array([None, *table["label"].to_pylist()[1:]], pa.int64())
    return table.set_column(table.column_names.index("label"), "label", labels)


def with_value(name: str, value: object, row: int = 0) -> Callable[[Path], object]:
    """Give a column of a kept index another value in one row."""

    def change(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        values[row] = value
        return table.set_column(table.column_names.index(name), name, pa.array(values, table[name].type))

    return stored_again(change)


def with_a_bomb(table: pa.Table) -> pa.Table:
    """A long text that the file holds once and the table often."""
    rows = 600
    long = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 200_000]))
    return pa.table({"key": long}).replace_schema_metadata(table.schema.metadata)


def with_a_flipped_bit(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[60] ^= 1
    path.write_bytes(whole)


def with_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def with_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-30]),
        lambda path: path.write_text("no index"),
        with_a_flipped_bit,
        with_a_folder,
        with_a_pipe,
        stored_again(lambda table: table.drop_columns(["label"])),
        stored_again(lambda table: table.drop_columns(["key"])),
        stored_again(lambda table: table.replace_schema_metadata({"mark": "0 other"})),
        stored_again(lambda table: table.replace_schema_metadata({"mark": b"\xff\xfe"})),
        stored_again(with_other_type),
        stored_again(with_gaps),
        stored_again(lambda table: table.slice(0, 0)),
        stored_again(lambda table: table.slice(0, 5)),
        stored_again(lambda table: table.slice(1)),
        stored_again(lambda table: pa.concat_tables([table, table])),
        stored_again(with_a_bomb),
        with_value("label", 2),
        with_value("label", 10**6),
        with_value("key", "s0000000x"),
        with_value("key", "t"),
        with_value("place:shard", 1),
        with_value("place:shard", 2**62),
        with_value("place:start", 512),
        with_value("place:end", 2**62, row=6),
        with_value("place:offset", 2**62),
        with_value("place:size", 1),
    ],
)
def test_a_kept_index_that_does_not_read_is_made_again(
    evaluation_folder: Path, webdataset_folder: Folder, damage: Callable[[Path], object]
) -> None:
    webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES)
    first = evaluation.load("pets", 24)
    kept = evaluation_folder / "index" / "pets-test-webdataset.parquet"
    damage(kept)
    evaluation._load.cache_clear()
    assert evaluation.counts("pets") == (7, 3)
    again = evaluation.load("pets", 24)
    assert (again.keys, again.content_hash) == (first.keys, first.content_hash)
    assert index.known(again.source) is not None, "it is kept again"


def forged(name: str, row: int) -> Callable[[Path], object]:
    """Give a row of a kept index the value of the row after it."""

    def change(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        values[row] = values[row + 1]
        return table.set_column(table.column_names.index(name), name, pa.array(values, table[name].type))

    return stored_again(change)


@pytest.mark.parametrize("name", ["label", "place:offset", "digest"])
def test_a_row_of_a_kept_index_that_lies_is_found_as_its_image_is_read(
    evaluation_folder: Path, webdataset_folder: Folder, name: str
) -> None:
    webdataset_folder(evaluation_folder / "wds_pets", classified(24), classes=CLASSES)
    first = evaluation.load("pets", 24)
    before = pixels(first), first.content_hash
    row = min({*range(23)} - {*drawn_rows("pets", 24)})
    kept = evaluation_folder / "index" / "pets-test-webdataset.parquet"
    forged(name, row)(kept)
    evaluation._load.cache_clear()
    pairs = evaluation.load("pets", 24)  # a few rows alone are compared before anything trains
    with pytest.raises(UserError, match=rf"{kept}: row 's\d{{5}}{row:02d}' is not what .*test holds; delete the index"):
        pixels(pairs)
    kept.unlink()
    evaluation._load.cache_clear()
    again = evaluation.load("pets", 24)
    np.testing.assert_array_equal(pixels(again), before[0])
    assert again.content_hash == before[1]


def test_a_kept_index_of_a_builder_that_lies_is_found(evaluation_folder: Path) -> None:
    eurosat(evaluation_folder / "eurosat" / "eurosat", 30)
    first = evaluation.load("eurosat", 24)
    kept = evaluation_folder / "index" / "eurosat-test-builder.parquet"
    for change in (stored_again(lambda table: table.slice(0, 3)), forged("place:number", 1)):
        change(kept)
        evaluation._load.cache_clear()
        assert evaluation.counts("eurosat")[0] == entries()["eurosat"].count("test"), "the index is not believed"
        again = evaluation.load("eurosat", 24)
        assert (again.keys, again.content_hash) == (first.keys, first.content_hash)
    for name, value in (("label", 9), ("digest", "0" * 64)):
        with_value(name, value, row=1)(kept)
        evaluation._load.cache_clear()
        with pytest.raises(UserError, match=rf"{kept}: row '{first.keys[1]}' is not what .*eurosat holds"):
            pixels(evaluation.load("eurosat", 24))
        kept.unlink()
        evaluation._load.cache_clear()
        evaluation.load("eurosat", 24)


def test_captions_that_became_classes_are_read_anew(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    """The tars are the same, so the kept index seems to fit; one of captions is no index of classes."""
    from bench.catalogue import evaluation_sets

    samples = [{"png": encoded(n), "txt": "a cat", "cls": n % 2} for n in range(4)]
    home = webdataset_folder(evaluation_folder / "wds_mine", samples)
    assert evaluation.load("mine", 24).captions(1) == ("a cat",)
    (home / "classnames.txt").write_text("cat\ndog\n")
    evaluation_sets._own.cache_clear()
    evaluation._load.cache_clear()
    assert evaluation.load("mine", 24).captions(1) == ("dog",)


def test_without_a_place_to_keep_it_an_index_is_made_each_time(
    evaluation_folder: Path, webdataset_folder: Folder, tmp_path: Path
) -> None:
    webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES)
    for place in (evaluation_folder / "index", tmp_path / "cache"):
        place.write_text("a file where the folder would be")
    assert len(evaluation.load("pets", 24)) == 7
    assert evaluation.load("pets", 24).content_hash


def test_a_folder_that_cannot_be_written_is_indexed_in_the_users_cache(
    evaluation_folder: Path, webdataset_folder: Folder, tmp_path: Path
) -> None:
    webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES)
    (evaluation_folder / "index").write_text("a file where the folder would be")
    pairs = evaluation.load("pets", 24)
    assert isinstance(pairs, evaluation.EvaluationPairs)
    (kept,) = (tmp_path / "cache").rglob("pets-test-webdataset.parquet")
    assert kept in index._homes(pairs.source.found)
    assert len(index.known(pairs.source) or ()) == len(pairs) == 7


def test_keys_that_begin_anew_in_every_shard_are_told_apart(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    home = webdataset_folder(evaluation_folder / "wds_pets", classified(4), classes=CLASSES)
    shutil.copy(home / "test" / "0.tar", home / "test" / "1.tar")
    (home / "test" / "nshards.txt").write_text("2\n")
    pairs = evaluation.load("pets", 24)
    assert pairs.keys[3:5] == ("00000/s0000003", "00001/s0000000")
    assert pairs.labels["class"].tolist() == [0, 1, 2, 0] * 2


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"cls": 0}, r"sample 's0000001' has no image \(webp, png, jpg, jpeg\)"),
        ({"png": b"no picture", "txt": "cat"}, r"sample 's0000001' has no class \(cls\)"),
        ({"png": b"no picture", "cls": b"cat"}, r"sample 's0000001' has class b'cat', which is no number"),
        ({"png": b"no picture", "cls": 7}, r"labels go to 7, but there are 3 class names; .*classnames\.txt"),
        ({"png": b"no picture", "cls": b"1_0"}, r"has class b'1_0', which is no number from 0 on"),
        ({"png": b"no picture", "cls": b"9" * 5000}, r"has class b'9{20}'; there are at most 1,000,000 classes"),
        (
            {"png": b"no picture", "cls": b"x" * 2_000_000},
            r"has a member \.cls of 2,000,000 bytes; at most 1,048,576 are",
        ),
    ],
)
def test_broken_samples_are_named(
    evaluation_folder: Path, webdataset_folder: Folder, sample: dict[str, object], message: str
) -> None:
    samples = [{"png": encoded(0), "cls": 0}, sample]
    home = webdataset_folder(evaluation_folder / "wds_pets", samples, classes=CLASSES)
    with pytest.raises(UserError, match=message):
        evaluation.load("pets", 24)
    assert home.is_dir()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"7", "the .json should be a list of texts, or have one as captions"),
        (b'[["a cat"]]', "the .json should be a list of texts"),
        (b'{"captions": {"a": 1}}', "the .json should be a list of texts"),
        (b'["\\ud83d"]', "surrogates not allowed"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"null", "the .json should be a list of texts"),
        (b"[]", "no caption (txt, json)"),
    ],
)
def test_broken_captions_are_named(
    evaluation_folder: Path, webdataset_folder: Folder, content: bytes, message: str
) -> None:
    samples = [{"png": encoded(0), "txt": "a cat"}, {"png": encoded(1), "json": content}]
    webdataset_folder(evaluation_folder / "wds_flickr30k", samples)
    with pytest.raises(UserError, match=rf"0\.tar: sample 's0000001' has .*?{re.escape(message)}"):
        evaluation.load("flickr30k", 24)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text", "metadata (npy) that cannot be read: it is not a .npy file of NumPy"),
        (npy(np.zeros(3))[:-1], "it is cut or damaged"),
        (npy(np.zeros(3)).replace(b"(3,), ", b"(9**9)"), "its header is malformed"),
        (npy(np.zeros(3)).replace(b"(3,), }      ", b"(3000000,), }"), "its header says shape (3000000,)"),
        (npy(np.array([0, 1, 0.5])), "number 1 is 0.5, which is not an integer"),
        (npy(np.array([0, 1, -2])), "metadata [0, -2]; each number should be 0 to 999,999"),
        (npy(np.array([10**12, 1, 2])), "each number should be 0 to 999,999"),
        (npy(np.array([0])), "metadata of 1 numbers; should have 3 at least"),
    ],
)
def test_broken_metadata_is_named(
    evaluation_folder: Path, webdataset_folder: Folder, content: bytes, message: str
) -> None:
    samples = [{"png": encoded(0), "cls": 0, "npy": content}]
    webdataset_folder(evaluation_folder / "wds_dollar_street_test", samples, classes=CLASSES)
    with pytest.raises(UserError, match=rf"0\.tar: sample 's0000000' has .*{re.escape(message)}"):
        evaluation.load("dollar_street", 24)


def test_an_unused_field_of_the_metadata_may_be_anything(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    samples = [{"png": encoded(0), "cls": 0, "npy": np.array([3, -0.5, 2])}]
    webdataset_folder(evaluation_folder / "wds_dollar_street_test", samples, classes=CLASSES)
    labels = evaluation.load("dollar_street", 24).labels
    assert (labels["income"].tolist(), labels["region"].tolist()) == ([3], [2])


def test_a_builders_broken_image_and_pipe_are_named(evaluation_folder: Path) -> None:
    home = evaluation_folder / "eurosat" / "eurosat"
    eurosat(home, 9)
    evaluation.check("eurosat")
    assert not (evaluation_folder / "index").exists(), "a sample is opened, not every image"
    broken = home / "2750" / "AnnualCrop" / "0.png"
    broken.write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"eurosat: image 0 of EuroSAT cannot be read: UnidentifiedImageError"):
        evaluation.check("eurosat")
    with pytest.raises(UserError, match=r"eurosat: image 0 of EuroSAT cannot be read: UnidentifiedImageError"):
        evaluation.load("eurosat", 24)
    broken.unlink()
    os.mkfifo(broken)
    with pytest.raises(UserError, match=r"0\.png: is a FIFO or a device, not a file; remove it"):
        evaluation.check("eurosat")


def test_broken_files_are_named(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    broken = [*classified(2), {"png": b"no picture", "cls": 0}]
    home = webdataset_folder(evaluation_folder / "wds_pets", broken, classes=CLASSES)
    with pytest.raises(UserError, match=r"0\.tar: the image at byte \d+ cannot be read"):
        pixels(evaluation.load("pets", 24))
    tar = home / "test" / "0.tar"
    tar.write_bytes(tar.read_bytes()[:700])
    evaluation._load.cache_clear()
    with pytest.raises(UserError, match=r"0\.tar: cannot be read: .*get it again"):
        evaluation.load("pets", 24)


def test_what_is_missing_is_said_with_how_to_get_it(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    gone = evaluation.missing("imagenet-a", "shift")
    assert gone is not None
    assert gone.what == "ImageNet-A (imagenet-a), shift"
    assert gone.looked == tuple(
        str(evaluation_folder / name) for name in ("wds_imagenet-a/test", "wds_imagenet-a_test/test", "imagenet-a")
    )
    assert "hf download clip-benchmark/wds_imagenet-a --repo-type dataset" in gone.get
    assert str(evaluation_folder / "wds_imagenet-a") in gone.get
    assert "imagenet-a.tar" in gone.get
    assert gone.bytes == 700_000_000
    with pytest.raises(UserError, match=r"ImageNet-A \(imagenet-a\) is missing; looked in .* Get it with: hf download"):
        evaluation.load("imagenet-a", 24)
    home = webdataset_folder(evaluation_folder / "wds_imagenet-a", classified(), classes=CLASSES)
    assert evaluation.missing("imagenet-a") is None
    (home / "test" / "nshards.txt").write_text("3\n")  # a download that was stopped
    partly = evaluation.missing("imagenet-a")
    assert partly is not None
    assert partly.what.endswith("/test lacks 1.tar, 2.tar")
    with pytest.raises(UserError, match="'imagenet_a' is no evaluation data set; did you mean 'imagenet-a'"):
        evaluation.load("imagenet_a", 24)
    with pytest.raises(UserError, match=r"data set 'pets/val': 'val' should be one of test, train, validation"):
        evaluation.load("pets/val", 24)


@pytest.mark.usefixtures("evaluation_folder")
def test_without_data_the_catalogue_says_what_there_will_be() -> None:
    assert evaluation.counts("imagenet-r") == (30_000, 200)
    assert evaluation.counts("cifar10/train") == (50_000, 10)
    assert sum(entry.datacomp for entry in entries().values()) == 38


def eurosat(home: Path, count: int = 9) -> None:
    """As torchvision has it: one folder a class, names sorted."""
    for number in range(count):
        path = home / "2750" / ("AnnualCrop", "Forest", "Highway")[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(number))


def test_both_layouts_hold_the_same(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    """ImageNet-A: 200 classes of the 1,000, in the order of their WordNet ids."""
    wnids = sorted(_wnids_of_imagenet_a())
    for number, wnid in enumerate(wnids):
        path = evaluation_folder / "imagenet-a" / wnid / f"{number}.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(encoded(number))
    built = evaluation.load("imagenet-a", 24)
    assert (len(built), len(built.classes["class"]), len(built.templates)) == (200, 200, 80)
    assert built.classes["class"][0] == "stingray"
    assert "{c}" not in built.templates[0]
    samples = [{"png": encoded(number), "cls": number} for number in range(200)]
    webdataset_folder(evaluation_folder / "wds_imagenet-a", samples, classes=built.classes["class"], shards=2)
    evaluation._load.cache_clear()
    tars = evaluation.load("imagenet-a", 24)
    assert (tars.source.found.layout, built.source.found.layout) == ("webdataset", "builder")
    assert (tars.keys, tars.classes, tars.templates) == (built.keys, built.classes, built.templates)
    np.testing.assert_array_equal(tars.labels["class"], built.labels["class"])
    np.testing.assert_array_equal(pixels(tars), pixels(built))


def _wnids_of_imagenet_a() -> list[str]:
    """Those clip-benchmark's builder knows: ImageFolder numbers whatever folders there are."""
    import inspect
    import re

    from clip_benchmark.datasets import builder

    (line,) = re.findall(r"imagenet_a_wnids = \[(.*?)\]", inspect.getsource(builder))
    return re.findall(r"n\d{8}", line)


def test_a_set_without_splits_is_cut_by_hash(evaluation_folder: Path) -> None:
    eurosat(evaluation_folder / "eurosat" / "eurosat", 30)
    test, train = evaluation.load("eurosat", 24), evaluation.load("eurosat/train", 24)
    assert (len(train), len(test)) == (24, 6)
    assert not set(train.keys) & set(test.keys)
    assert test.description.endswith("80% of the images, by hash, are for training")
    assert test.classes["class"] == words.class_names(entries()["eurosat"])
    assert test.labels["class"].tolist() == [int(key[1:]) // 10 for key in test.keys]
    assert len(train.rows.digests) == 24


def test_cifar_pickles_are_read(evaluation_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    from torchvision.datasets import CIFAR10

    home = evaluation_folder / "cifar10" / "cifar-10-batches-py"
    home.mkdir(parents=True)
    drawn = np.random.default_rng(0).integers(0, 255, (4, 3072), dtype=np.uint8)
    parts = {
        "test_batch": {"data": drawn, "labels": [3, 0, 9, 3]},
        "data_batch_1": {"data": drawn[::-1], "labels": [1] * 4},
    }
    sums = {}
    for name, content in {**parts, "batches.meta": {"label_names": [f"name {i}" for i in range(10)]}}.items():
        (home / name).write_bytes(pickle.dumps(content))
        sums[name] = hashlib.md5((home / name).read_bytes()).hexdigest()
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "train_list", [["data_batch_1", sums["data_batch_1"]]])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": sums["batches.meta"]})
    pairs = evaluation.load("cifar10", 32)
    assert pairs.labels["class"].tolist() == [3, 0, 9, 3]
    assert pairs.captions(2) == ("name 9",)
    assert len(pairs.templates) == 18
    np.testing.assert_array_equal(pixels(pairs), drawn.reshape(4, 3, 32, 32).transpose(0, 2, 3, 1))
    assert evaluation.load("cifar10/train", 32).labels["class"].tolist() == [1] * 4


def test_a_builders_folder_that_holds_something_else_is_said(evaluation_folder: Path) -> None:
    (evaluation_folder / "cifar10").mkdir(parents=True)
    (evaluation_folder / "cifar10" / "notes.txt").write_text("nothing of use")
    with pytest.raises(UserError, match=r"cifar10: is not CIFAR-10 as the builder 'cifar10' reads it.*cifar-10-python"):
        evaluation.load("cifar10", 32)
    (evaluation_folder / "imagenetv2" / "ImageNetV2-matched-frequency" / "0").mkdir(parents=True)
    with pytest.raises(UserError, match=r"has 0 images of 10000 of ImageNet-V2"):  # its builder would download them
        evaluation.load("imagenetv2", 32)


def flickr(home: Path, captions: dict[str, list[str]]) -> None:
    home.mkdir(parents=True)
    lines = [f"{name},{text}" for name, texts in captions.items() for text in texts]
    (home / "flickr30k_test_karpathy.txt").write_text("\n".join(["image,caption", *lines]) + "\n")
    for number, name in enumerate(captions):
        (home / name).write_bytes(encoded(number, "JPEG"))


def test_captions_are_the_same_in_three_layouts(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    texts = [[f"a cat, number {n}", f"an animal {n}", "five", "four", "three", "two"][: 5 + n % 2] for n in range(4)]
    flickr(evaluation_folder / "flickr30k", {f"{n}.jpg": texts[n] for n in range(4)})
    built = evaluation.load("flickr30k", 24)
    expected = pixels(built)
    assert built.captions(1) == tuple(texts[1])
    table = pa.table({"image": [{"bytes": encoded(n, "JPEG"), "path": None} for n in range(4)], "caption": texts})
    cached = evaluation_folder / "hf_cache" / "nlphuji___flickr_1k_test_image_text_retrieval" / "TEST" / "1.1.0"
    cached.mkdir(parents=True)
    with pa.ipc.new_stream(str(cached / "flickr_1k_test_image_text_retrieval-test.arrow"), table.schema) as out:
        out.write_table(table)
    shutil.rmtree(evaluation_folder / "flickr30k")
    evaluation._load.cache_clear()
    hub = evaluation.load("flickr30k", 24)
    samples = [{"jpg": encoded(n, "JPEG"), "txt": "\n".join(texts[n])} for n in range(3)]
    samples.append({"jpg": encoded(3, "JPEG"), "json": json.dumps(texts[3])})
    webdataset_folder(evaluation_folder / "wds_flickr30k", samples, kind="retrieval")
    tars = evaluation.load("flickr30k", 24)
    assert [one.source.found.layout for one in (built, hub, tars)] == ["builder", "hub", "webdataset"]
    for one in (hub, tars):
        assert [one.captions(row) for row in range(4)] == [tuple(some) for some in texts]
        assert one.classes == {}
        np.testing.assert_array_equal(pixels(one), expected)
    assert hub.content_hash == tars.content_hash  # of the same files


def test_hierarcaps_has_four_levels(evaluation_folder: Path) -> None:
    home = evaluation_folder / "hierarcaps"
    home.mkdir(parents=True)
    url = "http://images.cocodataset.org/val2014/COCO_val2014_000000000139.jpg"
    said = "animal => cat => black cat => a black cat, asleep on a chair"
    (home / "hierarcaps_test.csv").write_text(f'id,captions,image_url\n139,"{said}",{url}\n')
    (home / "COCO_val2014_000000000139.jpg").write_bytes(encoded(0, "JPEG"))
    pairs = data.load("hierarcaps", 24)
    assert levels(pairs) == [("animal", "cat", "black cat", "a black cat, asleep on a chair")]


def test_groups_come_from_the_metadata(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    regions = [0, 2, 2, 1]
    samples = [{"png": encoded(n), "cls": n % 3, "npy": np.array([7, 1, regions[n]], np.int64)} for n in range(4)]
    webdataset_folder(evaluation_folder / "wds_dollar_street_test", samples, classes=CLASSES, templates=TEMPLATES)
    pairs = evaluation.load("dollar_street", 24)
    assert set(pairs.labels) == {"class", "income", "region"}
    assert pairs.labels["region"].tolist() == regions
    assert pairs.labels["income"].tolist() == [7] * 4
    assert pairs.classes["region"] == ("region 0", "region 1", "region 2")
    del samples[2]["npy"]
    webdataset_folder(evaluation_folder / "wds_dollar_street_test", samples, classes=CLASSES, templates=TEMPLATES)
    evaluation._load.cache_clear()
    with pytest.raises(UserError, match=r"sample 's0000002' has no metadata \(npy\) of income, region"):
        evaluation.load("dollar_street", 24)


def test_puzzles_share_their_images(evaluation_folder: Path) -> None:
    table = pa.table(
        {
            "candidates": [["fox", "wolf", "tree"], ["tree", "moon"]],
            "candidate_images": [
                [{"bytes": encoded(n), "path": None} for n in (0, 1, 2)],
                [{"bytes": encoded(n), "path": None} for n in (2, 3)],
            ],
            "cue": ["animal", "night"],
            "associations": [["wolf", "fox"], ["moon"]],
        }
    )
    home = evaluation_folder / "hf_cache" / "nlphuji___winogavil" / "TEST"
    home.mkdir(parents=True)
    with pa.ipc.new_stream(str(home / "winogavil-test.arrow"), table.schema) as out:
        out.write_table(table)
    pairs = evaluation.load("winogavil", 24)
    assert pairs.keys == ("fox", "moon", "tree", "wolf")
    first, second = pairs.puzzles
    assert (first.cue, first.candidates, first.right) == ("animal", (0, 3, 2), (True, True, False))
    assert (second.cue, second.candidates, second.right) == ("night", (2, 1), (False, True))
    np.testing.assert_array_equal(
        pairs.images(np.array([1]))[0],
        np.asarray(picture(3).resize((32, 24), Image.Resampling.BICUBIC).crop((4, 0, 28, 24))),
    )


def test_where_says_what_is_there_and_how_to_get_the_rest(
    evaluation_folder: Path, webdataset_folder: Folder, tmp_path: Path
) -> None:
    webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES)
    asked = "{tasks: [zero_shot, linear_probe], datasets: {zero_shot: [pets], linear_probe: [pets]}}"
    suite = tmp_path / "mine.yaml"
    suite.write_text(f"name: mine\nbudget: {{epochs: 1}}\nmethods: [clip]\nevaluate: {asked}\n")
    found = CliRunner().invoke(app, ["data", "where", str(suite)])
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    assert lines[1].split() == ["pets", "webdataset", "7", str(evaluation_folder / "wds_pets" / "test")]
    assert lines[2] == "missing: Oxford Pets (pets/train), linear_probe"
    assert f"    looked for {evaluation_folder / 'wds_vtab-pets' / 'train'}" in lines
    assert any(line.startswith("    get it: hf download clip-benchmark/wds_vtab-pets") for line in lines)
    everything = CliRunner().invoke(app, ["data", "where", "--data", str(tmp_path / "data")]).output
    assert "pets " in everything.splitlines()[1]
    assert "imagenet1k, imagenetv2" in everything
