"""Where shards are looked for: patterns, folders, lists, URLs; the cache of remote ones; comparing indices."""

import io
import os
import shlex
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

from bench import data_folder as folders_of_data
from bench.data import training
from bench.data.shards import cache, index_path, missing
from bench.data.shards.compare import compare
from bench.data.shards.index import Index
from bench.data.shards.indexing import build, default_out
from bench.data.shards.sources import braces, expand, named
from bench.errors import UserError
from bench.suite.settings import DataSettings


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(folders_of_data.VARIABLE, str(tmp_path / "data"))
    return tmp_path / "data"


def test_braces():
    assert list(braces("a{08..11}.tar")) == ["a08.tar", "a09.tar", "a10.tar", "a11.tar"]
    assert list(braces("{x,y}/{0..1}")) == ["x/0", "x/1", "y/0", "y/1"]
    assert list(braces("s3://b/{000..001}.tar")) == ["s3://b/000.tar", "s3://b/001.tar"]
    many = "stands for more than 200,000 names; name fewer shards"
    for bad, said in (
        ("a{1", "do not match"),
        ("a{5..1}", "runs backwards"),
        ("a{b}", "should be a range"),
        ("{0..999999999}.tar", many),
        ("{0..999}" * 100 + ".tar", many),
        ("{a,b}" * 40, many),
        ("{0..%s}" % ("9" * 5000), "should be a range"),
        ("{0..²}", "should be a range"),
        ("{a,{b,c}}", "lie in each other"),
    ):
        with pytest.raises(UserError, match=said):
            list(braces(bad))


def test_folders_patterns_and_lists(tmp_path, tars, monkeypatch):
    one, two = tars.write_set(tmp_path / "one", 3, 1), tars.write_set(tmp_path / "two", 2, 1)
    names = ["00000.tar", "00001.tar", "00002.tar"]
    for sources in ([f"{one}"], [f"{one}/{{00000..00002}}.tar"], [f"{one}/00002.tar", f"{one}/{{00000,00001}}.tar"]):
        shards = expand(sources)
        assert [(s.name, s.path, s.prefix) for s in shards] == [(name, str(one / name), "") for name in names]
    both = expand([str(two), f"file://{one}/00001.tar"])
    assert [(s.name, s.path, s.prefix) for s in both] == [
        ("0/00000.tar", str(two / "00000.tar"), "0/"),
        ("0/00001.tar", str(two / "00001.tar"), "0/"),
        ("1/00001.tar", str(one / "00001.tar"), "1/"),
    ]
    assert expand([f"{tmp_path}/{{two,one}}"])[0].path == str(two / "00000.tar")
    monkeypatch.chdir(tmp_path)
    assert expand(["one"])[0].path == str(one / "00000.tar")
    assert named(["cc3m"]) == (str(folders_of_data.root() / "cc3m"),)
    assert named(["one"]) == ("one",)


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
            expand([source])
    (tmp_path / "one" / os.fsdecode(b"\xff.tar")).write_bytes(b"")
    with pytest.raises(UserError, match=r"shards: '.*\\udcff\.tar': the path is not UTF-8; rename it"):
        expand([str(tmp_path / "one")])
    with pytest.raises(UserError, match=r"--out .*: is a folder; give the path of a file"):
        build(expand([f"{tmp_path}/one/00000.tar"]), tmp_path / "one", workers=1)


def test_equal_keys_of_several_folders_stay_apart(tmp_path, tars):
    one, two = (tars.write(tmp_path / name / "0.tar", tars.sample("key", i)).parent for i, name in enumerate("ab"))
    build(expand([str(one), str(two)]), tmp_path / "index.parquet", workers=1)
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
        ("nosuch://bucket/set", "nosuch"),
    ):
        with pytest.raises(UserError, match=said):
            expand([source])
    with pytest.raises(UserError, match="stands twice"):
        expand([str(folder), f"{folder}/00001.tar"])
    with pytest.raises(UserError, match=r"--out: say where the index of local:///x/0\.tar goes"):
        default_out(expand(["local:///x/0.tar"]))


def url(folder: Path) -> str:
    """fsspec's other name of local files: read through it like any remote store."""
    return f"local://{folder}"


def test_remote_shards_are_fetched_once(tmp_path, tars, data_folder):
    source = tars.write_set(tmp_path / "there", 3, 5)
    out = data_folder / "far" / "index.parquet"
    build(expand([url(source)]), out, workers=1)
    pairs = training(DataSettings(name="far", shards=url(source)))
    for path in source.glob("*.tar"):
        path.rename(path.with_suffix(".moved"))
    assert pairs.encoded(np.arange(15)) == [tars.encoded(i) for i in range(15)]
    assert len(list(cache.folder().glob("*.tar"))) == 3
    assert not list(cache.folder().glob("*.part"))
    plain = training(DataSettings(name="far", index=str(out)))
    assert plain.encoded(np.array([7])) == [tars.encoded(7)]


def test_a_remote_shard_that_was_replaced_is_indexed_anew(tmp_path, tars, data_folder):
    source, out = tars.write_set(tmp_path / "there", 1, 5), data_folder / "far" / "index.parquet"
    settings = DataSettings(name="far", shards=url(source))
    build(expand([url(source)]), out, workers=1)
    tars.write(source / "00000.tar", [member for i in range(40) for member in tars.sample(f"new{i:02}", i)])
    assert training(settings).encoded(np.array([3])) == [tars.encoded(3)], "the copy is still what was indexed"
    assert build(expand([url(source)]), out, workers=1).about.rows == 40
    pairs = training(settings)
    assert (pairs.keys[39], pairs.encoded(np.array([39]))) == ("new39", [tars.encoded(39)])
    [copy] = cache.folder().glob("*.tar")
    copy.unlink()
    tars.write_set(tmp_path / "there", 1, 5)
    with pytest.raises(UserError, match=r"00000\.tar: has \d+ bytes, \d+ when it was indexed; it was replaced, run"):
        unread(pairs).encoded(np.array([3]))


def unread(pairs):
    """The same pairs with no shard open."""
    return type(pairs)(pairs.settings, Index.read(pairs.index_path), pairs._paths)


class Interrupted(LocalFileSystem):
    """A store whose connection ends half-way, without an error."""

    protocol = "interrupted"

    def open(self, path, mode="rb", **options):
        data = Path(path).read_bytes()
        return io.BytesIO(data[: len(data) // 2])


def test_half_a_shard_is_never_kept(tmp_path, tars):
    import fsspec

    fsspec.register_implementation("interrupted", Interrupted, clobber=True)
    path = tars.write_set(tmp_path / "there", 1, 5) / "00000.tar"
    with pytest.raises(UserError, match=r"00000\.tar: \d+ of its \d+ bytes came; the same command fetches it again"):
        cache.fetched(f"interrupted://{path}", path.stat().st_size)
    assert [one.suffix for one in cache.folder().iterdir()] == [".lock"]


def test_an_index_of_a_pattern_of_folders_is_found_where_it_was_written(tmp_path, tars):
    for name in ("a", "b"):
        tars.write(tmp_path / "my set" / name / "00.tar", tars.sample(name, 0))
    pattern = str(tmp_path / "my set" / "{a,b}" / "{00..00}.tar")
    settings = DataSettings(name="mine", shards=pattern)
    [gone] = missing(settings)
    told = shlex.split(gone.get)
    assert told[:4] == ["bench", "data", "index", pattern]
    assert told[5] == str(default_out(expand([pattern]))) == str(index_path(settings))
    build(expand([pattern]), default_out(expand([pattern])), workers=1)
    assert list(training(settings).keys) == ["0/a", "1/b"]
    folders_of_data.use(tmp_path / "my set")
    [gone] = missing(DataSettings(name="other"))
    assert gone.get.endswith(f"then: bench data index '{tmp_path / 'my set' / 'other'}'")


def test_memory_stores_work_too(tars, tmp_path, data_folder):
    import fsspec

    path = tars.write(tmp_path / "0.tar", tars.sample("a", 4))
    store = fsspec.filesystem("memory")
    store.pipe("/set/0.tar", path.read_bytes())
    build(expand(["memory://set"]), data_folder / "m" / "index.parquet", workers=1)
    pairs = training(DataSettings(name="m", shards="memory://set"))
    assert pairs.encoded(np.array([0])) == [tars.encoded(4)]
    with pytest.raises(UserError, match=r"shards: memory://set/9\.tar: cannot be reached"):
        build(expand(["memory://set/9.tar"]), data_folder / "n.parquet", workers=1)


def test_a_failed_remote_index_leaves_nothing_or_says_what_it_kept(tmp_path, tars, data_folder, capsys):
    source, out = tars.write_set(tmp_path / "there", 3, 5), data_folder / "far" / "index.parquet"
    with pytest.raises(UserError, match=r"9\.tar: cannot be reached \([^\n]*$"):
        build(expand([f"{url(source)}/{{00000,9}}.tar"]), out, workers=1)
    assert list(out.parent.iterdir()) == []
    whole = (source / "00001.tar").rename(tmp_path / "whole.tar")
    (source / "00001.tar").mkdir()  # is there, and cannot be fetched
    with pytest.raises(UserError) as failed:
        build(expand([url(source)]), out, workers=1)
    kept = out.with_name("index.parquet.work")
    first, last = str(failed.value).splitlines()
    assert "00001.tar: cannot be fetched (IsADirectoryError" in first
    assert last == f"1 of 3 scanned shards are kept in {kept}; the same command goes on from there"
    (source / "00001.tar").rmdir()
    whole.rename(source / "00001.tar")
    assert build(expand([url(source)]), out, workers=1, progress=True).about.rows == 15
    assert capsys.readouterr().err.startswith("1 of 3 shards were scanned before")
    assert not kept.exists()


def age():
    """Make all cached shards a second older, so that their order does not hang on the clock of the file system."""
    for path in cache.folder().glob("*.tar"):
        seconds = path.stat().st_mtime - 1
        os.utime(path, (seconds, seconds))


def test_the_least_recently_used_shard_is_given_up(tmp_path, tars, monkeypatch):
    source = tars.write_set(tmp_path / "there", 4, 5)
    size = (source / "00000.tar").stat().st_size
    monkeypatch.setenv(cache.VARIABLE, str(2.5 * size / 1e9))
    for name in ("00000", "00001", "00000", "00002", "00003"):
        fetch(f"{url(source)}/{name}.tar")
        age()
    held = sorted(path.name.split("-")[1] for path in cache.folder().glob("*.tar"))
    assert held == ["00002.tar", "00003.tar"]
    fetch(f"{url(source)}/00002.tar")
    age()
    fetch(f"{url(source)}/00000.tar")
    held = sorted(path.name.split("-")[1] for path in cache.folder().glob("*.tar"))
    assert held == ["00000.tar", "00002.tar"]
    monkeypatch.setenv(cache.VARIABLE, "much")
    with pytest.raises(UserError, match="BENCH_CACHE_GB=much: should be a size in GB"):
        cache.capacity()


def test_processes_fetch_a_shard_once(tmp_path, tars):
    path = tars.write_set(tmp_path / "there", 1, 5) / "00000.tar"
    with get_context("fork").Pool(4) as pool:
        local = set(pool.map(fetch, [f"local://{path}"] * 8))
    assert len(local) == 1
    assert Path(local.pop()[0]).read_bytes() == path.read_bytes()


def fetch(url: str) -> tuple[str, int]:
    """The path, and the file that it is: another download would be another."""
    path = cache.fetched(url, cache.size(url))
    return str(path), os.stat(path).st_ino


def test_an_index_is_compared_with_a_published_one(tmp_path, tars):
    kept = [tars.sample(f"k{i}", i) for i in range(4)]
    other = [*kept[:1], tars.sample("k1", 1, "new words"), tars.sample("k2", 99), tars.sample("new", 7)]
    found = []
    for name, samples in (("published", kept), ("ours", other)):
        tars.write(tmp_path / name / "0.tar", [member for one in samples for member in one])
        found.append(build(expand([str(tmp_path / name)]), tmp_path / f"{name}.parquet", workers=1).out)
    same = compare(found[0], found[0])
    assert (same.equal, same.lines()) == (True, ["equal: 4 rows with the same keys, captions and images"])
    result = compare(found[1], found[0])
    assert not result.equal
    assert (result.missing, result.extra, result.captions, result.images) == (["k3"], ["new"], ["k1"], ["k2"])
    assert result.lines()[0] == "4 rows, 4 in the manifest"
    assert "  1 with other captions: k1" in result.lines()
    with pytest.raises(UserError, match=r"no\.parquet: not an index"):
        compare(found[0], tmp_path / "no.parquet")
