"""Importers of features, each on small true examples of its layout; files that do not belong together are refused."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.data.features import FeaturePairs, verify_feature_set
from bench.data.features.imports import save
from bench.data.features.tables import ImportRequest, read_import
from bench.data.noise.imported import import_ncr
from bench.errors import UserError

PAGE = Path(__file__).parents[2] / "docs" / "feature_sets.md"
N = 6
CAPTIONS = [f"caption {row}" for row in range(N)]


def numbers(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def imported(request: ImportRequest, out: Path, **options: Any) -> FeaturePairs:
    save(out, read_import(request), "made/pairs", **options)
    verify_feature_set(out)
    return FeaturePairs(out)


def refused(request: ImportRequest, out: Path) -> str:
    with pytest.raises(UserError) as error:
        save(out, read_import(request), "made/pairs")
    assert not out.exists()
    assert len(error.value.lines) == 1
    return str(error.value)


# SCAN, NCR and Noise of Web


def test_the_lines_of_the_docs_make_sets_of_scan_s_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """f30k_precomp as SCAN's page publishes it: five captions an image, the images' regions by a detector."""
    (lines,) = re.findall(r"^```python\n(import pathlib.*?)^```", PAGE.read_text(), re.S | re.M)
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "f30k_precomp").mkdir()
    for split in ("train", "test"):
        np.save(folder / f"{split}_ims.npy", numbers(N, 3, 4))
        texts = [f"{CAPTIONS[row]} in words {number}" for row in range(N) for number in range(5)]
        (folder / f"{split}_caps.txt").write_text("".join(f"{text}\n" for text in texts))
    exec(compile(lines, "docs/feature_sets.md", "exec"), {})
    pairs = imported(ImportRequest(tmp_path / "train.parquet", images="train.npy"), tmp_path / "out")
    assert np.allclose(pairs.images(np.arange(N)), np.load(folder / "train_ims.npy").mean(1), atol=1e-6)
    assert list(pairs.keys) == [f"{row:08d}" for row in range(N)]
    assert pairs.captions(2) == tuple(f"caption 2 in words {number}" for number in range(5))
    assert pairs.texts is None  # texts are text: a text tower is trained from its tokens


def test_a_set_with_a_row_for_each_caption_takes_index_files_of_ncr(tmp_path: Path) -> None:
    rows = pa.table({"key": [f"{row:04d}" for row in range(5 * N)], "caption": [f"text {row}" for row in range(5 * N)]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    np.save(tmp_path / "image.npy", np.repeat(numbers(N, 4), 5, axis=0))
    pairs = imported(ImportRequest(tmp_path / "rows.parquet", images=str(tmp_path / "image.npy")), tmp_path / "out")
    index = np.arange(5 * N) // 5
    index[[3, 22]] = index[[22, 3]]
    np.save(tmp_path / "index.npy", index)
    manifest = import_ncr(tmp_path / "index.npy", pairs)
    assert manifest.rows.tolist() == [3, 22]
    assert manifest.donors.tolist() == [22, 3]


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
    pairs = imported(ImportRequest(tmp_path / "emb"), tmp_path / "out")
    assert len(pairs) == 7
    assert pairs.keys[0] == "k000000988"
    assert pairs.captions(0) == ("1 2",)
    assert (
        pairs.images(np.array([0, 6])) == np.stack([numbers(3, 4, seed=10)[2], numbers(4, 4)[0]]).astype("f2")
    ).all()
    assert pairs.texts is not None
    assert (pairs.texts.array[pairs.texts.rows(["0 3"])] == numbers(4, 4, seed=1)[3].astype(np.float16)).all()


def test_clip_retrieval_without_metadata_of_img2dataset_is_keyed_by_the_sample(tmp_path: Path) -> None:
    clip_part(tmp_path / "emb", 0, 4, keys=False)
    assert imported(ImportRequest(tmp_path / "emb"), tmp_path / "out").keys[0] == "000000997"


def test_clip_retrieval_with_a_part_or_rows_missing_is_refused_by_name(tmp_path: Path) -> None:
    folder, out = tmp_path / "emb", tmp_path / "out"
    clip_part(folder, 0, 4)
    clip_part(folder, 1, 4, image=False)
    assert "metadata_01.parquet, but no part 1 of img_emb" in refused(ImportRequest(folder), out)
    np.save(folder / "img_emb" / "img_emb_01.npy", numbers(3, 4).astype(np.float16))
    line = refused(ImportRequest(folder), out)
    assert "img_emb_01.npy: has 3 rows, metadata_01.parquet has 4" in line
    np.save(folder / "img_emb" / "img_emb_01.npy", numbers(4, 5).astype(np.float16))
    assert "img_emb_01.npy: holds float16 of [5] a row" in refused(ImportRequest(folder), out)
    assert "holds no metadata" in refused(ImportRequest(tmp_path), out)
    shutil.rmtree(folder / "img_emb")
    assert "holds no img_emb/img_emb_*.npy" in refused(ImportRequest(folder), out)


# a table with arrays beside it


def test_a_table_with_arrays_beside_it(tmp_path: Path) -> None:
    keys = ["d", "b", "a", "e", "c", "f"]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": keys, "text": [["x " + key, "y"] for key in keys]}), path)
    np.save(tmp_path / "image.npy", numbers(N, 2, 4))  # two views
    texts = numbers(2 * N, 3, seed=1)
    texts[1::2] = texts[1]  # equal captions have equal features
    np.save(tmp_path / "text.npy", texts)
    request = ImportRequest(
        path,
        images=str(tmp_path / "image.npy"),
        texts=str(tmp_path / "text.npy"),
        key="id",
        caption="text",
    )
    pairs = imported(request, tmp_path / "out")
    assert list(pairs.keys) == sorted(keys)
    assert pairs.about.image.views == 2
    assert (pairs.images(np.array([0])) == numbers(N, 2, 4)[2, 0]).all()
    assert pairs.texts is not None
    assert len(pairs.texts) == N + 1
    assert (pairs.texts.array[pairs.texts.rows(["x e", "y"])] == texts[[6, 1]]).all()


def test_whole_numbers_are_keys_and_float64_is_stored_as_float32(tmp_path: Path) -> None:
    path, image = tmp_path / "rows.parquet", numbers(N, 4)
    pq.write_table(pa.table({"key": list(range(N)), "caption": CAPTIONS}), path)
    np.save(tmp_path / "image.npy", image.astype(np.float64))
    pairs = imported(ImportRequest(path, images=str(tmp_path / "image.npy")), tmp_path / "out")
    assert pairs.images(np.arange(N)).dtype == np.float32
    assert (pairs.images(np.arange(N)) == image).all()
    assert pairs.keys[3] == "3"


def test_a_shifted_text_array_shows_by_equal_captions(tmp_path: Path) -> None:
    path, texts = tmp_path / "rows.parquet", numbers(N, 8)
    texts[4] = texts[1] * np.float32(1.0001)  # rounding of another batch
    columns = {"key": list("abcdef"), "caption": ["one", "same", "two", "three", "same", "four"]}
    pq.write_table(pa.table(columns), path)
    np.save(tmp_path / "text.npy", texts)
    np.save(tmp_path / "image.npy", numbers(N, 4))
    request = ImportRequest(path, images=str(tmp_path / "image.npy"), texts=str(tmp_path / "text.npy"))
    assert imported(request, tmp_path / "whole").texts is not None
    np.save(tmp_path / "text.npy", np.roll(texts, 1, axis=0))
    line = refused(request, tmp_path / "out")
    assert "text.npy: rows 1 and 4 belong to the same caption 'same', but their features have cosine" in line


def write_rows(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table({"key": list("abcdef"), "caption": CAPTIONS, **columns}), path)
    return path


def test_tables_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    rows, out, image = write_rows(tmp_path / "rows.parquet"), tmp_path / "out", tmp_path / "image.npy"
    given = ImportRequest(rows, images=str(image))
    assert "image.npy: cannot be read as an array: No such file" in refused(given, out)
    np.save(image, numbers(N - 1, 4))
    assert "image.npy: has 5 rows for 6 keys; the numbers must be equal" in refused(given, out)
    np.save(image, numbers(N, 4).astype(np.int32))
    assert "image.npy: holds int32 [6, 4]; features are floats" in refused(given, out)
    np.save(image, np.full((N, 4), math.inf, np.float32))
    assert "image.npy: row 0: a feature is NaN or infinite" in refused(given, out)
    assert "rows.parquet: has no image features; name their file with --images" in refused(ImportRequest(rows), out)
    assert "has no column keys; name one with --key; did you mean 'key'?" in refused(
        ImportRequest(rows, key="keys"), out
    )
    np.save(image, numbers(N, 4))
    write_rows(rows, key=list("abcdea"))
    assert "key 'a' is a duplicate" in refused(given, out)
    write_rows(rows, caption=[None, *CAPTIONS[1:]])
    assert "caption: row 0 is null" in refused(given, out)
    rows.write_bytes(b"PAR1")
    assert "rows.parquet: cannot be read as Parquet" in refused(given, out)
