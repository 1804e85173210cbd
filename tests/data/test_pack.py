"""What people have becomes shards: each form, packed, indexed and read, gives its keys, image bytes and captions."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bench.data.pack.packing import pack_shards
from bench.data.pack.writing import PackOptions, key_of
from bench.data.shards import indexing
from bench.data.shards.index import Index
from bench.data.shards.sources import expand_sources
from bench.errors import UserError
from bench.store import files

CAPTIONS = (("a red square", "red, very red"), ("ein grünes Quadrat",), ("blue", "a blue one", "the last"))
Content = dict[str, tuple[bytes, tuple[str, ...]]]  #: key -> image bytes and captions
pytest.importorskip("webdataset")


def picture(number: int, form: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (80 * number, 40, 200 - 60 * number)).save(file, form)
    return file.getvalue()


def images_in(folder: Path) -> list[Path]:
    """Three images: PNG, JPEG and WebP; the last has the suffix of another format."""
    paths = [folder / name for name in ("one.png", "two.v2.jpg", "sub/three.jpg")]
    for number, (path, form) in enumerate(zip(paths, ("PNG", "JPEG", "WEBP"), strict=True)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number, form))
    return paths


def names(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in images_in(folder)]


def a_table(folder: Path) -> Path:
    rows = [f"{name}\t{text}" for name, own in zip(names(folder), CAPTIONS, strict=True) for text in own]
    (folder / "pairs.csv").write_text("\n".join(["filepath\ttitle", *rows]))
    return folder / "pairs.csv"


def a_coco(folder: Path) -> Path:
    images = [{"id": 7 + number, "file_name": name} for number, name in enumerate(names(folder))]
    texts = [{"image_id": 7 + number, "caption": text} for number, own in enumerate(CAPTIONS) for text in own]
    (folder / "captions.json").write_text(json.dumps({"images": images, "annotations": texts}))
    return folder / "captions.json"


def a_karpathy(folder: Path) -> Path:
    images: list[dict[str, object]] = [{"filename": "none.jpg", "split": "test", "sentences": [{"raw": "not packed"}]}]
    for name, own in zip(names(folder), CAPTIONS, strict=True):
        inner, _, file = name.rpartition("/")
        entry = {"filepath": inner, "filename": file, "split": "train"}
        images.append({**entry, "sentences": [{"raw": text} for text in own]})
    (folder / "dataset_coco.json").write_text(json.dumps({"images": images}))
    return folder / "dataset_coco.json"


def a_parquet(folder: Path) -> Path:
    column = [{"bytes": path.read_bytes(), "path": None} for path in images_in(folder)]
    keys = ["one", "two.v2", "sub/three"]
    table = pa.table({"image": column, "caption": [list(own) for own in CAPTIONS], "id": keys})
    pq.write_table(table, folder / "train.parquet", row_group_size=2)
    return folder / "train.parquet"


def a_folder(folder: Path) -> Path:
    for path, own in zip(images_in(folder), CAPTIONS, strict=True):
        path.with_suffix(".txt").write_text("\n".join(own) + "\n")
    return folder


FORM: dict[str, tuple[Callable[[Path], Path], PackOptions]] = {
    "table": (a_table, PackOptions()),
    "coco": (a_coco, PackOptions()),
    "karpathy": (a_karpathy, PackOptions(splits=("train",))),
    "parquet": (a_parquet, PackOptions(key_column="id")),
    "folder": (a_folder, PackOptions()),
}


def read(out: Path) -> Content:
    """Index shards, and read what the index says from the tars."""
    shards = expand_sources([str(out)])
    report = indexing.build_index(shards, out / "index.parquet", workers=1, limit=0.0)
    assert "omitted: 0 samples" in "".join(report.lines())
    return {
        row["key"]: (
            Path(shards[row["shard"]].path).read_bytes()[row["offset"] : row["offset"] + row["size"]],
            tuple(row["captions"]),
        )
        for row in Index.read(out / "index.parquet").table.to_pylist()
    }


@pytest.mark.parametrize("form", FORM)
def test_packed_indexed_and_read_it_is_what_it_was(form: str, tmp_path: Path) -> None:
    make, options = FORM[form]
    source = make(tmp_path / "input")
    (line,) = pack_shards(source, tmp_path / "out", options, per_shard=2, workers=1)
    assert line == f"{tmp_path / 'out'}: 3 pairs in 2 shards; omitted none"
    own = {key_of(name): text for name, text in zip(names(tmp_path / "input"), CAPTIONS, strict=True)}
    assert list(own) == ["one", "two_v2", "sub/three"]
    keys = [f"{number:09d}" for number in range(3)] if form == "table" else list(own)
    contents = [path.read_bytes() for path in images_in(tmp_path / "input")]
    assert read(tmp_path / "out") == dict(zip(keys, zip(contents, CAPTIONS, strict=True), strict=True))


def written(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*sorted(out.glob("*.tar")), out / "faults.csv"]}


class Killed(BaseException):
    """Ends a pack as a kill would."""


def test_stopped_at_a_shard_it_goes_on_to_the_bytes_of_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, write, made = a_coco(tmp_path / "input"), files.write_json, list[str]()
    pack_shards(source, tmp_path / "whole", PackOptions(), per_shard=1, workers=2)

    def dies(path: Path, value: object) -> None:
        if path.name == "00001.json":
            raise Killed
        made.append(path.name)
        write(path, value)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_json", dies)
        with pytest.raises(Killed):
            pack_shards(source, tmp_path / "out", PackOptions(), per_shard=1, workers=1)
    assert made == ["input.json", "00000.json"]
    first = (tmp_path / "out" / "00000.tar").stat().st_ino
    pack_shards(source, tmp_path / "out", PackOptions(), per_shard=1, workers=1)
    assert written(tmp_path / "out") == written(tmp_path / "whole")
    assert (tmp_path / "out" / "00000.tar").stat().st_ino == first, "a whole shard was made again"


def test_faults_are_listed_and_counted_and_stop_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "input"
    good, broken, no_image = images_in(folder)
    broken.write_bytes(broken.read_bytes()[:40])
    no_image.write_text("no image")
    rows = [(good.name, "good", "a"), ("gone.jpg", "lost", "b"), (broken.name, "cut", "c"), (good.name, " ", "d")]
    rows += [(good.name, "more", "x.y"), (good.name, "again", "x_y"), ("sub/three.jpg", "text", "/e")]
    rows += [("sub/three.jpg", "other", "a"), ("sub/three.jpg", "text", "f")]
    with (folder / "pairs.tsv").open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([("image", "text", "id"), *rows])
    options = PackOptions(None, "image", "text", "id")
    (line,) = pack_shards(folder / "pairs.tsv", tmp_path / "out", options, workers=1)
    with (tmp_path / "out" / "faults.csv").open() as file:
        faults = [(row["key"], row["reason"]) for row in csv.DictReader(file)]
    assert sorted(faults[:2]) == [("'/e'", "unsafe name"), ("a", "duplicate key")]
    assert faults[2:] == [
        ("b", "missing file"),
        ("c", "undecodable image"),
        ("d", "empty caption"),
        ("f", "undecodable image"),
    ]
    assert "2 pairs in 1 shards; omitted 6 (" in line
    assert "2 undecodable image" in line
    captions = {key: texts for key, (_, texts) in read(tmp_path / "out").items()}
    assert captions == {"a": ("good",), "x_y": ("more", "again")}


def test_a_text_that_is_endless_or_a_pipe_costs_its_own_pair(tmp_path: Path) -> None:
    source = a_folder(tmp_path / "input")
    os.truncate(source / "one.txt", 1 << 40)
    (source / "two.v2.txt").unlink()
    os.mkfifo(source / "two.v2.txt")
    (line,) = pack_shards(source, tmp_path / "out", PackOptions(), workers=1)
    assert line.startswith(f"{tmp_path / 'out'}: 1 pairs in 1 shards; omitted 2 (2 no caption)")


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        (
            "a.csv",
            ["filepath,title", "one.png,ok", "one.png,a dog, running"],
            "a.csv:3: has more fields than there are",
        ),
        (
            "a.tsv",
            ["filepath\ttitle", 'one.png\t"Best" dog', "one.png\tb"],
            "a.tsv:2: '\t' expected after",
        ),
        ("a.tsv", ["filepath\ttitle", 'one.png\t"Best dog', "one.png\tb"], "a.tsv:3: unexpected end of data; put a"),
    ],
)
def test_a_table_whose_captions_would_be_cut_or_joined_is_refused(
    tmp_path: Path, name: str, lines: list[str], message: str
) -> None:
    images_in(tmp_path)
    (tmp_path / name).write_text("\n".join(lines))
    with pytest.raises(UserError, match=re.escape(message)):
        pack_shards(tmp_path / name, tmp_path / "out", PackOptions(), workers=1)


@pytest.mark.parametrize("form", ["table", "coco", "parquet", "folder"])
def test_what_has_no_splits_has_none_to_choose(form: str, tmp_path: Path) -> None:
    source = FORM[form][0](tmp_path / "input")
    with pytest.raises(UserError, match=r"--split test: .* has no splits; only Karpathy's JSON has"):
        pack_shards(source, tmp_path / "out", PackOptions(splits=("test",)), workers=1)


@pytest.mark.parametrize("form", ["coco", "karpathy", "parquet"])
def test_a_caption_of_null_is_none_and_another_type_is_refused(form: str, tmp_path: Path) -> None:
    make, options = FORM[form]
    for other, message in ((None, ""), ({"raw": "a man"}, r"a caption is \{'raw': 'a man'\}; it should be a text")):
        source = make(tmp_path / "input")
        if form == "parquet":
            table = pq.read_table(source)
            captions = pa.array([[["kept"], [other], ["kept"]], [other] * 3][other is not None])
            pq.write_table(table.set_column(table.schema.get_field_index("caption"), "caption", captions), source)
        else:
            source.write_text(source.read_text().replace('"ein gr\\u00fcnes Quadrat"', json.dumps(other)))
        if message:
            with pytest.raises(UserError, match=message):
                pack_shards(source, tmp_path / "refused", options, workers=1)
        else:
            (line,) = pack_shards(source, tmp_path / "out", options, workers=1)
            assert "2 pairs in 1 shards; omitted 1 (1 empty caption), " in line


def test_a_caption_of_two_lines_stays_one(tmp_path: Path) -> None:
    images_in(tmp_path)
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("filepath", "title"), ("one.png", "one line\nsecond line")])
    pack_shards(tmp_path / "pairs.csv", tmp_path / "out", PackOptions(), workers=1)
    assert [texts for _, texts in read(tmp_path / "out").values()] == [("one line\nsecond line",)]


def test_a_jpeg_of_two_pictures_is_a_jpeg(tmp_path: Path) -> None:
    """Cameras write a preview or a depth map beside the picture (MPO)."""
    pictures = [Image.open(io.BytesIO(picture(number, "PNG"))) for number in (0, 1)]
    pictures[0].save(tmp_path / "one.jpg", "MPO", save_all=True, append_images=pictures[1:])
    (tmp_path / "one.txt").write_text("two pictures")
    pack_shards(tmp_path, tmp_path / "out", PackOptions(), workers=1)
    assert read(tmp_path / "out") == {"one": ((tmp_path / "one.jpg").read_bytes(), ("two pictures",))}


def test_parquet_beside_images_is_not_their_list(tmp_path: Path) -> None:
    """img2dataset writes metadata so, with `--output_format files`."""
    source = a_folder(tmp_path / "input")
    pq.write_table(pa.table({"url": ["x"]}), source / "00000.parquet")
    (line,) = pack_shards(source, tmp_path / "out", PackOptions(), workers=1)
    assert line == f"{tmp_path / 'out'}: 3 pairs in 1 shards; omitted none"


def test_bad_input_is_refused_by_name(tmp_path: Path) -> None:
    source, out = a_table(tmp_path / "input"), tmp_path / "out"
    with pytest.raises(UserError, match="has no column 'titel'; did you mean 'title'"):
        pack_shards(source, out, PackOptions(caption_column="titel"), workers=1)
    (tmp_path / "pairs.txt").write_text("one.png a")
    with pytest.raises(UserError, match=r"pairs\.txt: should be a \.csv, \.tsv, \.json or \.parquet, or a folder"):
        pack_shards(tmp_path / "pairs.txt", out, PackOptions())
    (tmp_path / "cut.json").write_text('{"images": [')
    with pytest.raises(UserError, match=r"cut.json: cannot be read: "):
        pack_shards(tmp_path / "cut.json", out, PackOptions())
    for content in ("[" * 10**5, '{"images": [3]}', "3", '{"images": {}}', "{"):
        (tmp_path / "cut.json").write_text(content)
        with pytest.raises(UserError, match=r"cut\.json: (cannot be read: |holds no pairs)"):
            pack_shards(tmp_path / "cut.json", out, PackOptions())
    (tmp_path / "long.csv").write_text("filepath,title\n" + "x" * 200_000)
    with pytest.raises(UserError, match=r"long\.csv:2: field larger than field limit"):
        pack_shards(tmp_path / "long.csv", out, PackOptions())
    os.truncate(tmp_path / "long.csv", 1 << 31)  # a hole, which takes no disk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"long\.csv:2: field larger than field limit"):
        pack_shards(tmp_path / "long.csv", out, PackOptions())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # in KiB
    os.truncate(tmp_path / "long.csv", 1 << 40)
    os.mkfifo(tmp_path / "pipe.json")
    for name, words in (("long.csv", "more than"), ("pipe.json", "FIFO")):
        with pytest.raises(UserError, match=rf"{name}: cannot be read.*{words}"):
            pack_shards(tmp_path / name, out, PackOptions())
    with pytest.raises(UserError, match="no such file or folder"):
        pack_shards(tmp_path / "nothing.csv", out, PackOptions())
    with pytest.raises(UserError, match=r"--split trian: .*did you mean 'train'"):
        pack_shards(a_karpathy(tmp_path / "input"), out, PackOptions(splits=("trian",)))
    assert not out.exists()
    pack_shards(source, out, PackOptions(), workers=1)
    with pytest.raises(UserError, match="holds shards of another input"):
        pack_shards(source, out, PackOptions(), per_shard=1, workers=1)
    with pytest.raises(UserError, match=r"none of 3 pairs can be packed; .*faults\.csv says why"):
        pack_shards(source, tmp_path / "none", PackOptions(images=str(tmp_path)), workers=1)
