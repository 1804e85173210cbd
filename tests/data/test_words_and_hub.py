"""Class names and prompts of clip-benchmark, and Arrow files of the hub's cache."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from bench.catalogue.evaluation_sets import Entry, entries
from bench.data.evaluation import words
from bench.data.evaluation.hub import HubCache
from bench.data.evaluation.layouts import Found
from bench.errors import UserError


def own(name: str, **fields) -> Entry:
    return Entry(name, name, 1, **fields)


@pytest.mark.parametrize("name", [name for name, entry in entries().items() if entry.classes])
def test_prompts_have_one_place_for_the_class(name):
    prompts = words.templates(entries()[name])
    assert prompts
    assert all("{}" in prompt and "{c}" not in prompt for prompt in prompts)


def test_names_are_as_many_as_classes():
    counted = {name: (len(words.class_names(e)), e.classes) for name, e in entries().items() if words.class_names(e)}
    assert len(counted) > 15
    assert {name: counts for name, counts in counted.items() if counts[0] < counts[1]} == {}


def test_words_come_under_the_entrys_key_else_its_name():
    assert words.class_names(own("any", words="imagenet1k")) == words.class_names(own("imagenet1k"))
    assert len(words.class_names(own("imagenet1k"))) == 1000
    assert words.class_names(own("nobodys")) == ()
    assert words.templates(own("nobodys")) == words.templates(own("imagenet1k"))
    assert words.templates(own("cifar10")) != words.templates(own("imagenet1k"))


def test_braces_are_replaced_wherever_they_stand():
    assert words.braces(["a {c}", "{c}, the {c}", "no class"]) == ("a {}", "{}, the {}", "no class")


def test_without_clip_benchmark_its_words_are_missed(monkeypatch):
    words._read.cache_clear()
    monkeypatch.setattr(words, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="pip install clip-benchmark"):
        words.class_names(own("imagenet1k"))


def hub(folder: Path, columns: dict[str, list[object]], kind: str = "retrieval") -> HubCache:
    table = pa.table(columns)
    path = folder / "x-test.arrow"
    with pa.ipc.new_stream(str(path), table.schema) as out:
        out.write_table(table)
    return HubCache(Found(own("x", kind=kind), "test", "hub", path))


def test_images_lie_in_the_file_or_beside_it(tmp_path, tars):
    (tmp_path / "beside.png").write_bytes(tars.encoded(1, "PNG"))
    images = [
        {"bytes": tars.encoded(0, "PNG"), "path": None},
        {"bytes": None, "path": str(tmp_path / "beside.png")},
        {"bytes": b"rubbish", "path": None},
        {"bytes": None, "path": str(tmp_path / "gone.png")},
    ]
    source = hub(tmp_path, {"image": images, "caption": [["a", "b"], ["c"], ["d"], ["e"]]})
    rows = source.scan()
    assert rows.keys == ("s0000000", "s0000001", "s0000002", "s0000003")
    assert rows.captions == (("a", "b"), ("c",), ("d",), ("e",))
    assert source.files == [tmp_path / "x-test.arrow"]
    for number in (0, 1):
        image = source.image(rows.row(number))
        expected = tars.encoded(number, "PNG")
        assert source.digest({"number": number}) == hashlib.sha256(expected).hexdigest()
        np.testing.assert_array_equal(np.asarray(image), np.asarray(Image.open(io.BytesIO(expected))))
    with pytest.raises(UserError, match=r"x-test\.arrow: image .*'number': 2.* cannot be read"):
        source.image(rows.row(2))
    with pytest.raises(UserError, match=r"its image .*gone\.png cannot be read: No such file.*; get it again"):
        source.digest({"number": 3})


def test_a_single_caption_is_a_text(tmp_path):
    source = hub(tmp_path, {"image": [{"bytes": b"", "path": None}] * 2, "caption": ["one", "two"]})
    assert source.scan().captions == (("one",), ("two",))
    assert source.puzzles(source.scan()) == ()
    assert source.lines("classnames.txt") == ()


def test_other_files_and_columns_are_named(tmp_path):
    source = hub(tmp_path, {"image": [{"bytes": b"", "path": None}]})
    with pytest.raises(UserError, match=r"x-test\.arrow: has no column caption$"):
        source.scan()
    with pytest.raises(UserError, match=r"has no column candidates, candidate_images, cue, associations$"):
        hub(tmp_path, {"image": [1]}, "association").scan()
    (tmp_path / "x-test.arrow").write_bytes(b"rubbish that is no Arrow stream")
    with pytest.raises(UserError, match=r"x-test\.arrow: cannot be read: .*; get it again"):
        HubCache(source.found).scan()


def test_a_candidate_is_read_where_it_stands_first(tmp_path, tars):
    images = [[{"bytes": tars.encoded(n, "PNG"), "path": None} for n in row] for row in ((0, 1), (2, 3))]
    columns = {"candidates": [["b", "a"], ["a", "c"]], "candidate_images": images, "cue": ["x", "y"]}
    source = hub(tmp_path, columns | {"associations": [["a"], ["a", "c"]]}, "association")
    rows = source.scan()
    assert rows.keys == ("a", "b", "c")
    assert rows.captions == (("a",), ("b",), ("c",))
    assert {name: values.tolist() for name, values in rows.places.items()} == {"number": [0, 0, 1], "slot": [1, 0, 1]}
    assert [puzzle.candidates for puzzle in source.puzzles(rows)] == [(1, 0), (0, 2)]
    assert [puzzle.right for puzzle in source.puzzles(rows)] == [(False, True), (True, True)]
