"""Evaluation data on the disk: read by one name; what is missing or broken is said."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bench import data
from bench.catalogue.evaluation_sets import evaluation_sets
from bench.data import Pairs, evaluation
from bench.data.evaluation import index
from bench.data.photo import SQUASH
from bench.errors import UserError
from bench.evaluation.probabilistic.hierarchy import levels

from ..command import call_bench

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
    pairs = evaluation.load_evaluation_set("pets", 24)
    assert isinstance(pairs, Pairs)
    assert pairs.keys == tuple(f"s{number:07d}" for number in range(7))
    np.testing.assert_array_equal(pairs.labels["class"], [0, 1, 2, 0, 1, 2, 0])
    assert pairs.classes["class"] == CLASSES
    assert pairs.templates == ("a photo of a {}.", "a bad photo of the {}.")
    assert pairs.captions(5) == ("snow fox",)
    whole = picture(4).resize((32, 24), Image.Resampling.BICUBIC).crop((4, 0, 28, 24))
    np.testing.assert_array_equal(pairs.images(np.array([4]))[0], np.asarray(whole))
    squashed = evaluation.load_evaluation_set("pets", 24, SQUASH).images(np.array([4]))[0]
    np.testing.assert_array_equal(squashed, np.asarray(picture(4).resize((24, 24), Image.Resampling.BICUBIC)))
    assert evaluation.evaluation_set_counts("pets") == (7, 3)


def test_other_shards_are_the_same_data(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    found = []
    for shards in (1, 3):
        webdataset_folder(evaluation_folder / "wds_pets", classified(), shards=shards, classes=CLASSES)
        found.append(evaluation.load_evaluation_set("pets", 24).content_hash)
        evaluation._load.cache_clear()
    assert found[0] == found[1]
    changed = [*classified()[:-1], {"png": encoded(99), "cls": 0}]
    webdataset_folder(evaluation_folder / "wds_pets", changed, classes=CLASSES)
    assert evaluation.load_evaluation_set("pets", 24).content_hash != found[0]


def test_an_index_is_kept_until_the_files_change(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    home = webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES)
    first = evaluation.load_evaluation_set("pets", 24)
    assert not first.rows.digests
    assert first.content_hash
    evaluation._load.cache_clear()
    again = evaluation.load_evaluation_set("pets", 24)
    assert len(again.rows.digests) == 7  # nothing is hashed twice
    assert again.content_hash == first.content_hash
    webdataset_folder(home, classified(5), classes=CLASSES)
    evaluation._load.cache_clear()
    assert len(evaluation.load_evaluation_set("pets", 24)) == 5


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
    ],
)
def test_a_kept_index_that_does_not_read_is_made_again(
    evaluation_folder: Path, webdataset_folder: Folder, damage: Callable[[Path], object]
) -> None:
    webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES)
    first = evaluation.load_evaluation_set("pets", 24)
    kept = evaluation_folder / "index" / "pets-test.parquet"
    damage(kept)
    evaluation._load.cache_clear()
    assert evaluation.evaluation_set_counts("pets") == (7, 3)
    again = evaluation.load_evaluation_set("pets", 24)
    assert (again.keys, again.content_hash) == (first.keys, first.content_hash)
    assert kept.is_dir() or len(pq.read_table(kept)) == 7, "it is kept again"


def test_an_image_that_is_not_the_indexed_one_is_named(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    home = webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES)
    assert evaluation.load_evaluation_set("pets", 24).content_hash
    tar, state = home / "test" / "0.tar", (home / "test" / "0.tar").stat()
    tar.write_bytes(tar.read_bytes().replace(encoded(2)[-20:], bytes(20)))
    os.utime(tar, ns=(state.st_atime_ns, state.st_mtime_ns))
    evaluation._load.cache_clear()
    with pytest.raises(
        UserError, match=r"pets-test\.parquet: row 's0000002' is not the image that .*; delete the index"
    ):
        pixels(evaluation.load_evaluation_set("pets", 24))


def test_captions_that_became_classes_are_read_anew(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    """The tars are the same, so the kept index seems to fit; one of captions is no index of classes."""
    from bench.catalogue import evaluation_sets

    samples = [{"png": encoded(n), "txt": "a cat", "cls": n % 2} for n in range(4)]
    home = webdataset_folder(evaluation_folder / "wds_mine", samples)
    assert evaluation.load_evaluation_set("mine", 24).captions(1) == ("a cat",)
    (home / "classnames.txt").write_text("cat\ndog\n")
    evaluation_sets._own.cache_clear()
    evaluation._load.cache_clear()
    assert evaluation.load_evaluation_set("mine", 24).captions(1) == ("dog",)


def test_without_a_place_to_keep_it_an_index_is_made_each_time(
    evaluation_folder: Path, webdataset_folder: Folder, tmp_path: Path
) -> None:
    webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES)
    for place in (evaluation_folder / "index", tmp_path / "cache"):
        place.write_text("a file where the folder would be")
    assert len(evaluation.load_evaluation_set("pets", 24)) == 7
    assert evaluation.load_evaluation_set("pets", 24).content_hash


def test_a_folder_that_cannot_be_written_is_indexed_in_the_users_cache(
    evaluation_folder: Path, webdataset_folder: Folder, tmp_path: Path
) -> None:
    webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES)
    (evaluation_folder / "index").write_text("a file where the folder would be")
    pairs = evaluation.load_evaluation_set("pets", 24)
    assert isinstance(pairs, evaluation.EvaluationPairs)
    (kept,) = (tmp_path / "cache").rglob("pets-test.parquet")
    assert kept in index.homes(pairs.source.found)
    assert len(index.indexed_rows(pairs.source)) == len(pairs) == 7


def test_keys_that_begin_anew_in_every_shard_are_told_apart(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    home = webdataset_folder(evaluation_folder / "wds_pets", classified(4), classes=CLASSES)
    shutil.copy(home / "test" / "0.tar", home / "test" / "1.tar")
    (home / "test" / "nshards.txt").write_text("2\n")
    pairs = evaluation.load_evaluation_set("pets", 24)
    assert pairs.keys[3:5] == ("00000/s0000003", "00001/s0000000")
    assert pairs.labels["class"].tolist() == [0, 1, 2, 0] * 2


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"cls": 0}, r"sample 's0000001' has no image \(jpeg, jpg, png, webp\)"),
        ({"png": b"no picture", "txt": "cat"}, r"sample 's0000001' has no class \(cls\)"),
        ({"png": b"no picture", "cls": b"cat"}, r"sample 's0000001' has class b'cat', which is not a whole number"),
        ({"png": b"no picture", "cls": 7}, r"labels go to 7, but there are 3 class names; .*classnames\.txt"),
        ({"png": b"no picture", "cls": b"1_0"}, r"has class b'1_0', which is not a whole number from 0 on"),
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
        evaluation.load_evaluation_set("pets", 24)
    assert home.is_dir()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"7", "no caption: neither a .txt, nor a .json"),
        (b'[["a cat"]]', 'json cannot be read: "captions" should be a list of texts'),
        (b'{"captions": {"a": 1}}', 'json cannot be read: "captions" should be a list of texts'),
        (b'["\\ud83d"]', "surrogates not allowed"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"null", "no caption: neither a .txt, nor a .json"),
        (b"[]", "empty caption: the caption has no text"),
    ],
)
def test_broken_captions_are_named(
    evaluation_folder: Path, webdataset_folder: Folder, content: bytes, message: str
) -> None:
    samples = [{"png": encoded(0), "txt": "a cat"}, {"png": encoded(1), "json": content}]
    webdataset_folder(evaluation_folder / "wds_flickr30k", samples)
    with pytest.raises(UserError, match=rf"0\.tar: sample 's0000001' has .*?{re.escape(message)}"):
        evaluation.load_evaluation_set("flickr30k", 24)


def test_lines_are_captions_without_blank_ones_or_a_byte_order_mark(
    evaluation_folder: Path, webdataset_folder: Folder
) -> None:
    """As training reads them. Beside img2dataset's json the whole text is one caption."""
    texts = ["\ufeffone cat\r\n \nno\u2028end\n", "a dog\nin two lines", "plain"]
    samples: list[dict[str, object]] = [{"png": encoded(n), "txt": text} for n, text in enumerate(texts)]
    samples[1]["json"] = {"caption": "a dog\nin two lines"}
    webdataset_folder(evaluation_folder / "wds_flickr30k", samples)
    pairs = evaluation.load_evaluation_set("flickr30k", 24)
    assert [pairs.captions(row) for row in range(3)] == [
        ("one cat", "no\u2028end"),
        ("a dog\nin two lines",),
        ("plain",),
    ]


@pytest.mark.parametrize("name", ["imagenet-a", "imagenet-r", "objectnet"])
def test_names_of_another_set_do_not_stand_in_for_a_missing_file(
    evaluation_folder: Path, webdataset_folder: Folder, name: str
) -> None:
    """clip-benchmark names ImageNet's 1,000 classes for its variants of 113 to 200."""
    webdataset_folder(evaluation_folder / f"wds_{name}", [{"png": encoded(n), "cls": n} for n in range(3)])
    with pytest.raises(
        UserError, match=r"classnames\.txt: is missing, and clip-benchmark's \d+ names are not those of"
    ):
        evaluation.load_evaluation_set(name, 24)


def test_a_set_of_vtab_has_the_order_of_its_classes(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    webdataset_folder(evaluation_folder / "wds_vtab-caltech101", [{"png": encoded(n), "cls": n} for n in range(3)])
    pairs = evaluation.load_evaluation_set("caltech101", 24)
    assert pairs.classes["class"][:2] == ("accordion", "airplane")


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text", "metadata (npy) that cannot be read: EOF: reading magic string"),
        (npy(np.zeros(3))[:-1], "EOF: reading array data, expected 24 bytes got 23"),
        (npy(np.zeros(3)).replace(b"(3,), ", b"(9**9)"), "metadata (npy) that cannot be read: "),
        (npy(np.zeros(3)).replace(b"(3,), }      ", b"(3000000,), }"), "EOF: reading array data"),
        (npy(np.array([0, 1, 0.5])), "number 1 is 0.5, which is not an integer"),
        (npy(np.array([0, 1, -2])), "metadata [0, -2]; each number should be 0 to 999,999"),
        (npy(np.array([10**12, 1, 2])), "each number should be 0 to 999,999"),
        (npy(np.array([0])), "it has 1 numbers; should have 3 at least"),
    ],
)
def test_broken_metadata_is_named(
    evaluation_folder: Path, webdataset_folder: Folder, content: bytes, message: str
) -> None:
    samples = [{"png": encoded(0), "cls": 0, "npy": content}]
    webdataset_folder(evaluation_folder / "wds_dollar_street_test", samples, classes=CLASSES)
    with pytest.raises(UserError, match=rf"0\.tar: sample 's0000000' has .*{re.escape(message)}"):
        evaluation.load_evaluation_set("dollar_street", 24)


def test_an_unused_field_of_the_metadata_may_be_anything(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    samples = [{"png": encoded(0), "cls": 0, "npy": np.array([3, -0.5, 2])}]
    webdataset_folder(evaluation_folder / "wds_dollar_street_test", samples, classes=CLASSES)
    labels = evaluation.load_evaluation_set("dollar_street", 24).labels
    assert (labels["income"].tolist(), labels["region"].tolist()) == ([3], [2])


def test_broken_files_are_named(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    broken = [*classified(2), {"png": b"no picture", "cls": 0}]
    home = webdataset_folder(evaluation_folder / "wds_pets", broken, classes=CLASSES)
    with pytest.raises(UserError, match=r"test: image 's0000002' cannot be read: .*; get it again"):
        pixels(evaluation.load_evaluation_set("pets", 24))
    tar = home / "test" / "0.tar"
    tar.write_bytes(tar.read_bytes()[:700])
    evaluation._load.cache_clear()
    with pytest.raises(UserError, match=r"0\.tar: cannot be read: .*get it again"):
        evaluation.load_evaluation_set("pets", 24)


def test_what_is_missing_is_said_with_how_to_get_it(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    gone = evaluation.missing_evaluation_set("imagenet-a", "shift")
    assert gone is not None
    assert gone.what == "ImageNet-A (imagenet-a), shift"
    assert gone.looked == tuple(
        str(evaluation_folder / name) for name in ("wds_imagenet-a/test", "wds_imagenet-a_test/test")
    )
    assert "hf download clip-benchmark/wds_imagenet-a --repo-type dataset" in gone.get
    assert str(evaluation_folder / "wds_imagenet-a") in gone.get
    assert gone.bytes == 700_000_000
    with pytest.raises(UserError, match=r"ImageNet-A \(imagenet-a\) is missing; looked in .* Get it with: hf download"):
        evaluation.load_evaluation_set("imagenet-a", 24)
    home = webdataset_folder(evaluation_folder / "wds_imagenet-a", classified(), classes=CLASSES)
    assert evaluation.missing_evaluation_set("imagenet-a") is None
    (home / "test" / "nshards.txt").write_text("3\n")  # a download that was stopped
    partly = evaluation.missing_evaluation_set("imagenet-a")
    assert partly is not None
    assert partly.what.endswith("/test lacks 1.tar, 2.tar")
    with pytest.raises(UserError, match="'imagenet_a' is not an evaluation data set; did you mean 'imagenet-a'"):
        evaluation.load_evaluation_set("imagenet_a", 24)
    with pytest.raises(UserError, match=r"data set 'pets/val': 'val' should be one of test, train, validation"):
        evaluation.load_evaluation_set("pets/val", 24)


@pytest.mark.usefixtures("evaluation_folder")
def test_without_data_the_catalogue_says_what_there_will_be() -> None:
    assert evaluation.evaluation_set_counts("imagenet-r") == (30_000, 200)
    assert evaluation.evaluation_set_counts("cifar10/train") == (50_000, 10)
    assert sum(entry.datacomp for entry in evaluation_sets().values()) == 38


def test_captions_are_lines_of_a_txt_or_a_list_of_a_json(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    texts = [[f"a cat, number {n}", f"an animal {n}"] for n in range(4)]
    files = [{"txt": "\n".join(texts[0])}, {"json": json.dumps(texts[1])}, {"json": json.dumps({"captions": texts[2]})}]
    files.append({"txt": texts[3][0], "json": json.dumps({"captions": texts[3]})})  # as `bench data shard` writes them
    webdataset_folder(evaluation_folder / "wds_flickr30k", [{"jpg": encoded(n, "JPEG"), **files[n]} for n in range(4)])
    pairs = evaluation.load_evaluation_set("flickr30k", 24)
    assert [pairs.captions(row) for row in range(4)] == [tuple(some) for some in texts]
    assert pairs.classes == {}


def test_hierarcaps_is_packed_as_the_documentation_says(evaluation_folder: Path, tmp_path: Path) -> None:
    url = "http://images.cocodataset.org/val2014/COCO_val2014_000000000139.jpg"
    said = "animal => cat => black cat => a black cat, asleep on a chair"
    (tmp_path / "hierarcaps_test.csv").write_text(f'id,captions,image_url\n139,"{said}",{url}\n')
    (tmp_path / "COCO_val2014_000000000139.jpg").write_bytes(encoded(0, "JPEG"))
    page = (Path(__file__).parents[2] / "docs" / "evaluation_sets.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    call_bench("data", "shard", tmp_path / "pairs.csv", evaluation_folder / "wds_hierarcaps" / "test")
    pairs = data.load_dataset("hierarcaps", 24)
    assert levels(pairs) == [("animal", "cat", "black cat", "a black cat, asleep on a chair")]


def test_groups_come_from_the_metadata(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    regions = [0, 2, 2, 1]
    samples = [{"png": encoded(n), "cls": n % 3, "npy": np.array([7, 1, regions[n]], np.int64)} for n in range(4)]
    webdataset_folder(evaluation_folder / "wds_dollar_street_test", samples, classes=CLASSES, templates=TEMPLATES)
    pairs = evaluation.load_evaluation_set("dollar_street", 24)
    assert set(pairs.labels) == {"class", "income", "region"}
    assert pairs.labels["region"].tolist() == regions
    assert pairs.labels["income"].tolist() == [7] * 4
    assert pairs.classes["region"] == ("region 0", "region 1", "region 2")
    del samples[2]["npy"]
    webdataset_folder(evaluation_folder / "wds_dollar_street_test", samples, classes=CLASSES, templates=TEMPLATES)
    evaluation._load.cache_clear()
    with pytest.raises(UserError, match=r"sample 's0000002' has no metadata \(npy\) of income, region"):
        evaluation.load_evaluation_set("dollar_street", 24)


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
    pairs = evaluation.load_evaluation_set("winogavil", 24)
    assert pairs.keys == ("fox", "moon", "tree", "wolf")
    first, second = pairs.puzzles
    assert (first.cue, first.candidates, first.right) == ("animal", (0, 3, 2), (True, True, False))
    assert (second.cue, second.candidates, second.right) == ("night", (2, 1), (False, True))
    np.testing.assert_array_equal(
        pairs.images(np.array([1]))[0],
        np.asarray(picture(3).resize((32, 24), Image.Resampling.BICUBIC).crop((4, 0, 28, 24))),
    )
