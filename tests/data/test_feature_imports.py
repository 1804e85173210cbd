"""Importers of features, each on small true examples of its layout; files that do not belong together are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from bench.data.features import FeaturePairs
from bench.data.features.imports import Request, read, save
from bench.data.features.verifying import verify
from bench.data.noise import import_ncr
from bench.errors import UserError

N = 6
CAPTIONS = [f"caption {row}" for row in range(N)]


def numbers(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def imported(form: str, request: Request, out: Path, **options: Any) -> FeaturePairs:
    save(out, read(form, request), "made/pairs", **options)
    verify(out)
    return FeaturePairs(out)


def refused(form: str, request: Request, out: Path) -> str:
    with pytest.raises(UserError) as error:
        save(out, read(form, request), "made/pairs")
    assert not out.exists()
    assert len(error.value.lines) == 1
    return str(error.value)


def lines(path: Path, texts: Sequence[str]) -> None:
    path.write_text("".join(f"{text}\n" for text in texts))


# SCAN, NCR and Noise of Web


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """f30k_precomp as SCAN's page publishes it: five captions an image, the images' regions by a detector."""
    folder = tmp_path / "f30k_precomp"
    folder.mkdir()
    np.save(folder / "train_ims.npy", numbers(N, 3, 4))
    lines(folder / "train_caps.txt", [f"{CAPTIONS[row]} in words {number}" for row in range(N) for number in range(5)])
    return folder


def test_scan_regions_are_pooled_to_their_mean_with_five_captions_each(scan: Path, tmp_path: Path) -> None:
    pairs = imported("scan", Request(scan), tmp_path / "out")
    regions = np.load(scan / "train_ims.npy")
    assert np.allclose(pairs.images(np.arange(N)), regions.mean(1), atol=1e-6)
    assert list(pairs.keys) == [f"{row:08d}" for row in range(N)]
    assert pairs.captions(2) == tuple(f"caption 2 in words {number}" for number in range(5))
    assert pairs.texts is None  # texts are text: a text tower is trained from its tokens
    assert pairs.about.image is not None
    assert pairs.about.image.transform == "mean over 3 regions"


def test_scan_of_one_caption_an_image_and_of_a_table_of_captions(scan: Path, tmp_path: Path) -> None:
    np.save(scan / "dev_ims.npy", numbers(N, 4))
    (scan / "dev_caps.tsv").write_text("".join(f"{row}\t{text}\n" for row, text in enumerate(CAPTIONS)))
    pairs = imported("scan", Request(scan, split="dev"), tmp_path / "out", dtype="float16")
    assert [pairs.captions(row) for row in range(N)] == [(text,) for text in CAPTIONS]
    assert (pairs.images(np.arange(N)) == np.load(scan / "dev_ims.npy").astype(np.float16)).all()


def test_scan_with_a_row_for_each_caption_takes_index_files_of_ncr(scan: Path, tmp_path: Path) -> None:
    pairs = imported("scan", Request(scan, each_caption=True), tmp_path / "out")
    assert len(pairs) == 5 * N
    assert pairs.captions(13) == ("caption 2 in words 3",)
    means = np.load(scan / "train_ims.npy").mean(1)
    assert np.allclose(pairs.images(np.arange(5 * N)), np.repeat(means, 5, axis=0), atol=1e-6)
    index = np.arange(5 * N) // 5
    index[[3, 22]] = index[[22, 3]]
    np.save(tmp_path / "index.npy", index)
    manifest = import_ncr(tmp_path / "index.npy", pairs)
    assert manifest.rows.tolist() == [3, 22]
    assert manifest.donors.tolist() == [22, 3]


def test_scan_with_captions_missing_is_refused_by_name(scan: Path, tmp_path: Path) -> None:
    lines(scan / "train_caps.txt", [f"text {number}" for number in range(5 * N - 1)])
    line = refused("scan", Request(scan), tmp_path / "out")
    assert "train_caps.txt: has 29 captions for the 6 images of train_ims.npy" in line
    (scan / "train_caps.txt").write_text("one\n\ntwo\n")
    assert "train_caps.txt: line 2 is blank" in refused("scan", Request(scan), tmp_path / "out")
    (scan / "train_ims.npy").write_bytes((scan / "train_ims.npy").read_bytes()[:-4])
    lines(scan / "train_caps.txt", CAPTIONS)
    assert "train_ims.npy: cannot be read as an array" in refused("scan", Request(scan), tmp_path / "out")
    assert "test_caps.txt: cannot be read" in refused("scan", Request(scan, split="test"), tmp_path / "out")


def test_noise_of_web_keeps_its_token_ids_as_text(tmp_path: Path) -> None:
    """h5100k_precomp: 36 objects of 768 numbers an image, and a line of token ids for each of three tokenizers."""
    folder = tmp_path / "h5100k_precomp"
    folder.mkdir()
    np.save(folder / "train_ims.npy", numbers(N, 36, 768))
    lines(folder / "train_caps_bert.txt", [f"12,{row},977" for row in range(N)])
    lines(folder / "train_ids.txt", [str(7 * row) for row in range(N)])
    pairs = imported("noise-of-web", Request(folder), tmp_path / "out")
    assert pairs.captions(4) == ("12,4,977",)
    assert pairs.images(np.array([1])).shape == (1, 768)
    assert "caps_jieba.txt" in refused("noise-of-web", Request(folder, tokenizer="jieba"), tmp_path / "no")
    assert "bert, bpe, jieba" in refused("noise-of-web", Request(folder, tokenizer="clip"), tmp_path / "no")
    lines(folder / "train_caps_bert.txt", ["12,7", "a web page", *["1"] * (N - 2)])
    assert "line 2, 'a web page', is no list of token ids" in refused("noise-of-web", Request(folder), tmp_path / "no")


# clip-retrieval


def clip_part(folder: Path, number: int, rows: int, *, image: bool = True, keys: bool = True) -> None:
    """A part as clip-retrieval's OutputSink writes it from img2dataset's webdataset."""
    first = 10 * number
    for kind in ("img_emb", "text_emb", "metadata"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    if image:
        np.save(folder / "img_emb" / f"img_emb_{number:02d}.npy", numbers(rows, 4, seed=first).astype(np.float16))
    np.save(folder / "text_emb" / f"text_emb_{number:02d}.npy", numbers(rows, 4, seed=first + 1).astype(np.float16))
    names = [f"{1000 - first - row:09d}" for row in range(rows)]  # not in the order of keys
    columns = {"image_path": names, "caption": [f"{number} {row}" for row in range(rows)]}
    table = pa.table({**columns, **({"key": [f"k{name}" for name in names]} if keys else {})})
    pq.write_table(table, folder / "metadata" / f"metadata_{number:02d}.parquet")


def test_clip_retrieval_parts_are_joined_and_sorted_by_img2dataset_keys(tmp_path: Path) -> None:
    clip_part(tmp_path / "emb", 0, 4)
    clip_part(tmp_path / "emb", 1, 3)
    pairs = imported("clip-retrieval", Request(tmp_path / "emb"), tmp_path / "out")
    assert len(pairs) == 7
    assert pairs.keys[0] == "k000000988"
    assert pairs.captions(0) == ("1 2",)
    assert (
        pairs.images(np.array([0, 6])) == np.stack([numbers(3, 4, seed=10)[2], numbers(4, 4)[0]]).astype("f2")
    ).all()
    assert pairs.texts is not None
    assert (pairs.texts.lookup(["0 3"]) == numbers(4, 4, seed=1)[3].astype(np.float16)).all()


def test_clip_retrieval_without_metadata_of_img2dataset_is_keyed_by_the_sample(tmp_path: Path) -> None:
    clip_part(tmp_path / "emb", 0, 4, keys=False)
    assert imported("clip-retrieval", Request(tmp_path / "emb"), tmp_path / "out").keys[0] == "000000997"


def test_clip_retrieval_with_a_part_or_rows_missing_is_refused_by_name(tmp_path: Path) -> None:
    folder, out = tmp_path / "emb", tmp_path / "out"
    clip_part(folder, 0, 4)
    clip_part(folder, 1, 4, image=False)
    assert "metadata_01.parquet, but no part 1 of img_emb" in refused("clip-retrieval", Request(folder), out)
    np.save(folder / "img_emb" / "img_emb_01.npy", numbers(3, 4).astype(np.float16))
    line = refused("clip-retrieval", Request(folder), out)
    assert "img_emb_01.npy: has 3 rows, metadata_01.parquet has 4" in line
    np.save(folder / "img_emb" / "img_emb_01.npy", numbers(4, 5).astype(np.float16))
    assert "img_emb_01.npy: holds float16 of [5] a row" in refused("clip-retrieval", Request(folder), out)
    assert "holds no metadata" in refused("clip-retrieval", Request(tmp_path / "none"), out)


# a table with arrays beside it


def test_a_table_with_arrays_beside_it(tmp_path: Path) -> None:
    keys = ["d", "b", "a", "e", "c", "f"]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": keys, "text": [["x " + key, "y"] for key in keys]}), path)
    np.save(tmp_path / "image.npy", numbers(N, 2, 4))  # two views
    texts = numbers(2 * N, 3, seed=1)
    texts[1::2] = texts[1]  # equal captions have equal features
    save_file({"image": numbers(N, 4), "text": texts}, tmp_path / "text.safetensors")
    request = Request(
        path,
        images=str(tmp_path / "image.npy"),
        texts=f"{tmp_path / 'text.safetensors'}:text",
        key="id",
        caption="text",
    )
    pairs = imported("table", request, tmp_path / "out")
    assert list(pairs.keys) == sorted(keys)
    assert pairs.about.image is not None
    assert pairs.about.image.views == 2
    assert (pairs.images(np.array([0])) == numbers(N, 2, 4)[2, 0]).all()
    assert pairs.texts is not None
    assert len(pairs.texts) == N + 1
    assert (pairs.texts.lookup(["x e", "y"]) == texts[[6, 1]]).all()


def test_a_table_with_columns_of_features_and_whole_numbers_as_keys(tmp_path: Path) -> None:
    path, image = tmp_path / "rows.parquet", numbers(N, 4)
    columns = {"key": list(range(N)), "caption": CAPTIONS, "image": list(image.astype(np.float64))}
    pq.write_table(pa.table(columns), path)
    pairs = imported("table", Request(path), tmp_path / "out")
    assert pairs.images(np.arange(N)).dtype == np.float32
    assert (pairs.images(np.arange(N)) == image).all()
    assert pairs.keys[3] == "3"


def test_a_shifted_text_array_shows_by_equal_captions(tmp_path: Path) -> None:
    path, texts = tmp_path / "rows.parquet", numbers(N, 8)
    texts[4] = texts[1] * np.float32(1.0001)  # rounding of another batch
    columns = {"key": list("abcdef"), "caption": ["one", "same", "two", "three", "same", "four"]}
    pq.write_table(pa.table(columns), path)
    np.save(tmp_path / "text.npy", texts)
    request = Request(path, texts=str(tmp_path / "text.npy"))
    assert imported("table", request, tmp_path / "whole").texts is not None
    np.save(tmp_path / "text.npy", np.roll(texts, 1, axis=0))
    line = refused("table", request, tmp_path / "out")
    assert "text.npy: rows 1 and 4 belong to the same caption 'same', but their features have cosine" in line


def write_rows(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table({"key": list("abcdef"), "caption": CAPTIONS, **columns}), path)
    return path


def test_tables_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    rows, out, image = write_rows(tmp_path / "rows.parquet"), tmp_path / "out", tmp_path / "image.npy"
    given = Request(rows, images=str(image))
    assert "image.npy: cannot be read as an array: No such file" in refused("table", given, out)
    np.save(image, numbers(N - 1, 4))
    assert "image.npy: has 5 rows for 6 keys; they must be equally many" in refused("table", given, out)
    np.save(image, numbers(N, 4).astype(np.int32))
    assert "image.npy: holds int32 [6, 4]; features are floats" in refused("table", given, out)
    np.save(image, np.full((N, 4), math.inf, np.float32))
    assert "image.npy: row 0: a feature is NaN or infinite" in refused("table", given, out)
    assert "has no features; name them with --images" in refused("table", Request(rows), out)
    assert "has no column keys; name one with --key; did you mean 'key'?" in refused(
        "table", Request(rows, key="keys"), out
    )
    write_rows(rows, key=list("abcdea"), image=list(numbers(N, 4)))
    assert "key 'a' stands twice" in refused("table", Request(rows), out)
    write_rows(rows, caption=[None, *CAPTIONS[1:]], image=list(numbers(N, 4)))
    assert "caption: row 0 is null" in refused("table", Request(rows), out)
    write_rows(rows, image=[[1.0]] * 5 + [[1.0, 2.0]])
    assert "image: rows have 2 different widths" in refused("table", Request(rows), out)
    rows.write_bytes(b"PAR1")
    assert "rows.parquet: cannot be read as Parquet" in refused("table", Request(rows), out)


def test_damaged_safetensors_are_refused_by_name(tmp_path: Path) -> None:
    rows, out, path = write_rows(tmp_path / "rows.parquet"), tmp_path / "out", tmp_path / "image.safetensors"
    given = Request(rows, images=str(path))
    save_file({"a": numbers(N, 4), "b": numbers(N, 4)}, path)
    assert "give one of its tensors as" in refused("table", given, out)
    header = json.dumps({"a": {"dtype": "BF16", "shape": [N, 4], "data_offsets": [0, 48]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(48))
    assert "tensor 'a' is of type BF16; save it as F16 or F32" in refused("table", given, out)
    header = header.replace(b"BF16", b"F32")
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(48))
    assert "tensor 'a' of shape [6, 4] does not fit its bytes" in refused("table", given, out)
    path.write_bytes(b"\xff" * 8)
    assert "it is no .safetensors file" in refused("table", given, out)


def test_an_unknown_format_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    assert "--format clip-retrival: is unknown; did you mean 'clip-retrieval'?" in refused(
        "clip-retrival", Request(tmp_path), tmp_path / "out"
    )
