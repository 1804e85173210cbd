"""Where shards are looked for: patterns, folders, lists."""

import os
import shlex
from pathlib import Path

import numpy as np
import pytest

from bench import data_folder as folders_of_data
from bench.data.shards import index_path, missing_shard_data
from bench.data.shards import load_shard_pairs as training
from bench.data.shards.indexing import build_index
from bench.data.shards.sources import expand_braces, expand_sources, resolve_set_name
from bench.errors import UserError
from bench.suite.settings import DataSettings


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(folders_of_data.DATA_VARIABLE, str(tmp_path / "data"))
    return tmp_path / "data"


def test_braces():
    assert expand_braces("a{08..11}.tar") == ["a08.tar", "a09.tar", "a10.tar", "a11.tar"]
    assert expand_braces("{x,y}/{0..1}") == ["x/0", "x/1", "y/0", "y/1"]
    assert expand_braces(r"{a,{b,c}}\{0..1}") == [rf"{one}\{two}" for one in "abc" for two in "01"]
    many = "expands to more than 200,000 names; name fewer shards"
    for bad, said in (
        ("a{1", "do not match"),
        ("{" * 5000 + "}" * 5000, "nested too deeply"),
        ("{0..999999999}.tar", many),
        ("{0..999}" * 100 + ".tar", many),
        ("{a,b}" * 40, many),
        ("{-999999999..0}.tar", many),
        ("{0..%s}" % ("9" * 5000), many),
    ):
        with pytest.raises(UserError, match=said):
            expand_braces(bad)


def test_folders_patterns_and_lists(tmp_path, tars, monkeypatch):
    one, two = tars.write_set(tmp_path / "one", 3, 1), tars.write_set(tmp_path / "two", 2, 1)
    names = ["00000.tar", "00001.tar", "00002.tar"]
    for sources in ([f"{one}"], [f"{one}/{{00000..00002}}.tar"], [f"{one}/00002.tar", f"{one}/{{00000,00001}}.tar"]):
        shards = expand_sources(sources)
        assert [(s.name, s.path, s.prefix) for s in shards] == [(name, str(one / name), "") for name in names]
    both = expand_sources([str(two), f"{one}/00001.tar"])
    assert [(s.name, s.path, s.prefix) for s in both] == [
        ("0/00000.tar", str(two / "00000.tar"), "0/"),
        ("0/00001.tar", str(two / "00001.tar"), "0/"),
        ("1/00001.tar", str(one / "00001.tar"), "1/"),
    ]
    assert expand_sources([f"{tmp_path}/{{two,one}}"])[0].path == str(two / "00000.tar")
    monkeypatch.chdir(tmp_path)
    assert expand_sources(["one"])[0].path == str(one / "00000.tar")
    assert resolve_set_name(["cc3m"]) == (str(folders_of_data.data_root() / "cc3m"),)
    assert resolve_set_name(["one"]) == ("one",)


def test_a_source_that_is_no_folder_of_files_is_named(tmp_path, tars):
    tars.write_set(tmp_path / "one", 1, 1)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder" / "0.tar").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe.tar")
    for source, said in (
        (str(tmp_path / "loop"), "no such folder"),
        (str(tmp_path / ("x" * 300)), "no such folder"),
        ("nul\0", "no such folder"),
        (str(tmp_path / "folder"), r"holds no \.tar files"),
        (str(tmp_path / "pipe.tar"), "1 of 1 are not there"),
        (f"{tmp_path}/{'x' * 300}.tar", "1 of 1 are not there"),
    ):
        with pytest.raises(UserError, match=said):
            expand_sources([source])
    (tmp_path / "one" / os.fsdecode(b"\xff.tar")).write_bytes(b"")
    with pytest.raises(UserError, match=r"shards: '.*\\udcff\.tar': the path is not UTF-8; rename it"):
        expand_sources([str(tmp_path / "one")])
    with pytest.raises(UserError, match=r"--out .*: is a folder; give the path of a file"):
        build_index(expand_sources([f"{tmp_path}/one/00000.tar"]), tmp_path / "one", workers=1)


def test_equal_keys_of_several_folders_stay_apart(tmp_path, tars):
    one, two = (tars.write(tmp_path / name / "0.tar", tars.sample("key", i)).parent for i, name in enumerate("ab"))
    build_index(expand_sources([str(one), str(two)]), tmp_path / "index.parquet", workers=1)
    pairs = training(DataSettings(name="both", shards=(str(one), str(two)), index=str(tmp_path / "index.parquet")))
    assert list(pairs.keys) == ["0/key", "1/key"]
    assert pairs.encoded(np.arange(2)) == [tars.encoded(0), tars.encoded(1)]


def test_wrong_sources_are_named(tmp_path, tars):
    folder = tars.write_set(tmp_path / "s", 2, 1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "a.tar.gz").write_bytes(b"")
    for source, said in (
        (str(tmp_path / "nowhere"), "no such folder"),
        (str(tmp_path / "empty"), r"holds no \.tar files$"),
        (str(tmp_path / "packed"), r"\.tar\.gz cannot be read at an offset"),
        (f"{folder}/{{00000..00004}}.tar", r"3 of 5 are not there, the first is .*00002\.tar"),
        ("s3://bucket/{0..1}.tar", r"s3://\S*\.tar: is not on this machine; first copy it: bench data get NAME URL"),
        ("pipe:cat 0.tar", "is not on this machine"),
    ):
        with pytest.raises(UserError, match=said):
            expand_sources([source])
    with pytest.raises(UserError, match="appears twice"):
        expand_sources([str(folder), f"{folder}/00001.tar"])


def test_an_index_of_a_pattern_of_folders_is_found_where_it_was_written(tmp_path, tars):
    for name in ("a", "b"):
        tars.write(tmp_path / "my set" / name / "00.tar", tars.sample(name, 0))
    pattern = str(tmp_path / "my set" / "{a,b}" / "{00..00}.tar")
    settings = DataSettings(name="mine", shards=pattern)
    [gone] = missing_shard_data(settings)
    told = shlex.split(gone.get)
    assert told[:4] == ["bench", "data", "index", pattern]
    assert build_index(expand_sources([pattern]), workers=1).out == index_path(settings) == Path(told[5])
    assert list(training(settings).keys) == ["0/a", "1/b"]
    folders_of_data.use_data_folder(tmp_path / "my set")
    [gone] = missing_shard_data(DataSettings(name="other"))
    other = tmp_path / "my set" / "other"
    assert gone.get.endswith(f"then: bench data index '{other}' --out '{other / 'index.parquet'}'")


def test_shards_that_are_not_there_are_put_where_the_suite_reads_them(tmp_path):
    folders_of_data.use_data_folder(tmp_path)
    lists = tmp_path / "cc3m"
    [gone] = missing_shard_data(DataSettings(name="both", shards=("{data}/cc3m", "/own/{0..9}.tar")))
    assert gone.looked == (str(lists), "/own/{0..9}.tar", str(lists / "index.parquet"))
    assert f"--output_folder {lists} " in gone.get
    assert gone.get.endswith(f" in /own; then: bench data index {lists} '/own/{{0..9}}.tar' --out {gone.looked[2]}")
    assert gone.bytes == 90 * 10**9, "of the list whose size is known"
    [remote] = missing_shard_data(DataSettings(name="cc3m", shards="https://example.org/{0..9}.tar"))
    assert remote.get.endswith("first copy it: bench data get NAME URL")
