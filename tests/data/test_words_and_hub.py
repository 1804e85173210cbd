"""Class names and prompts of clip-benchmark, and Arrow files of the hub's cache."""

from pathlib import Path

import pyarrow as pa
import pytest

from bench.catalogue.evaluation_sets import EvaluationSet, evaluation_sets
from bench.data.evaluation import words
from bench.data.evaluation.hub import HubCache
from bench.data.evaluation.layouts import Found
from bench.errors import UserError


def own(name: str, **fields) -> EvaluationSet:
    return EvaluationSet(name, name, 1, **fields)


@pytest.mark.parametrize("name", [name for name, entry in evaluation_sets().items() if entry.classes])
def test_prompts_have_one_place_for_the_class(name):
    prompts = words.published_templates(evaluation_sets()[name])
    assert prompts
    assert all("{}" in prompt and "{c}" not in prompt for prompt in prompts)


def test_names_are_as_many_as_classes():
    counted = {
        name: (len(words.class_names(e)), e.classes) for name, e in evaluation_sets().items() if words.class_names(e)
    }
    assert len(counted) > 15
    assert {name: counts for name, counts in counted.items() if counts[0] < counts[1]} == {}


def test_words_come_under_the_entrys_key_else_its_name():
    assert words.class_names(own("any", words="imagenet1k")) == words.class_names(own("imagenet1k"))
    assert len(words.class_names(own("imagenet1k"))) == 1000
    assert words.class_names(own("nobodys")) == ()
    assert words.published_templates(own("nobodys")) == words.published_templates(own("imagenet1k"))
    assert words.published_templates(own("cifar10")) != words.published_templates(own("imagenet1k"))


def test_braces_are_replaced_wherever_they_stand():
    assert words.single_braces(["a {c}", "{c}, the {c}", "no class"]) == ("a {}", "{}, the {}", "no class")


def test_without_clip_benchmark_its_words_are_missed(monkeypatch):
    words._read.cache_clear()
    monkeypatch.setattr(words, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="pip install clip-benchmark"):
        words.class_names(own("imagenet1k"))


def hub(folder: Path, columns: dict[str, list[object]]) -> HubCache:
    table = pa.table(columns)
    path = folder / "x-test.arrow"
    with pa.ipc.new_stream(str(path), table.schema) as out:
        out.write_table(table)
    return HubCache(Found(own("x", kind="association"), "test", path))


def test_images_lie_in_the_file_or_beside_it(tmp_path, tars):
    (tmp_path / "beside.png").write_bytes(tars.encoded(1, "PNG"))
    images = [
        {"bytes": tars.encoded(0, "PNG"), "path": None},
        {"bytes": None, "path": str(tmp_path / "beside.png")},
        {"bytes": None, "path": str(tmp_path / "gone.png")},
    ]
    columns = {"candidates": [["a", "b", "c"]], "candidate_images": [images], "cue": ["x"], "associations": [["a"]]}
    source = hub(tmp_path, columns)
    rows = source.scan()
    assert source.files == [tmp_path / "x-test.arrow"]
    assert source.lines("classnames.txt") == ()
    for number in (0, 1):
        assert source.data(rows.place(number)) == tars.encoded(number, "PNG")
    with pytest.raises(UserError, match=r"its image .*gone\.png cannot be read: No such file.*; get it again"):
        source.data(rows.place(2))


def test_other_files_and_columns_are_named(tmp_path):
    source = hub(tmp_path, {"image": [1]})
    with pytest.raises(UserError, match=r'cannot be read: .Field "candidates" does not exist in schema.; get it again'):
        source.scan()
    (tmp_path / "x-test.arrow").write_bytes(b"rubbish that is no Arrow stream")
    with pytest.raises(UserError, match=r"x-test\.arrow: cannot be read: .*; get it again"):
        HubCache(source.found).scan()


def test_a_candidate_is_read_where_it_stands_first(tmp_path, tars):
    images = [[{"bytes": tars.encoded(n, "PNG"), "path": None} for n in row] for row in ((0, 1), (2, 3))]
    columns = {"candidates": [["b", "a"], ["a", "c"]], "candidate_images": images, "cue": ["x", "y"]}
    source = hub(tmp_path, columns | {"associations": [["a"], ["a", "c"]]})
    rows = source.scan()
    assert rows.keys == ("a", "b", "c")
    assert rows.captions == (("a",), ("b",), ("c",))
    assert {name: values.tolist() for name, values in rows.places.items()} == {"number": [0, 0, 1], "slot": [1, 0, 1]}
    assert [puzzle.candidates for puzzle in source.puzzles(rows)] == [(1, 0), (0, 2)]
    assert [puzzle.right for puzzle in source.puzzles(rows)] == [(False, True), (True, True)]
