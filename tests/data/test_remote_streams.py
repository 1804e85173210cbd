"""Shards and evaluation sets behind web addresses and commands: the data of a local folder, faults in one line."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.data import evaluation, training
from bench.data.evaluation.fetching import fetch
from bench.data.shards import cache, missing
from bench.data.shards.indexing import build
from bench.data.shards.sources import expand, place
from bench.data.shards.streams import VARIABLE, download
from bench.errors import UserError
from bench.suite.settings import DataSettings

Tars = Any


@dataclass
class Server:
    """A folder on a port of this machine."""

    url: str
    asked: list[str] = field(default_factory=list)  #: paths, in the order of their requests
    cut: set[str] = field(default_factory=set)  #: paths whose answers end half-way


class Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, server_of: Server, **options: Any) -> None:
        self.server_of = server_of
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        self.server_of.asked.append(self.path)
        if self.path not in self.server_of.cut:
            super().do_GET()
            return
        data = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2])

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "there").mkdir()
    of = Server("")
    handler = partial(Handler, directory=str(tmp_path / "there"), server_of=of)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        of.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield of
        http.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(VARIABLE, "1")
    return tmp_path / "data"


def test_shards_behind_web_addresses_and_commands_are_the_local_ones(
    tmp_path: Path, tars: Tars, server: Server, data: Path
) -> None:
    there = tars.write_set(tmp_path / "there", 3, 4)
    local = build(expand([str(there)]), tmp_path / "local.parquet", workers=1).about
    sources = {"web": f"{server.url}/{{00000..00002}}.tar", "pipe": f"pipe:cat '{there}'/{{00000..00002}}.tar | cat"}
    for name, source in sources.items():
        about = build(expand([source]), data / name / "index.parquet", workers=1).about
        assert (about.content_hash, about.ids, about.rows) == (local.content_hash, local.ids, 12)
        assert [(one.name, one.bytes, one.rows) for one in about.shards] == [
            (one.name, one.bytes, one.rows) for one in local.shards
        ]
    asked = len(server.asked)
    shutil.rmtree(cache.folder())
    for settings in (
        DataSettings(name="web", shards=sources["web"]),
        DataSettings(name="pipe", shards=sources["pipe"]),
        DataSettings(name="other", index=str(data / "pipe" / "index.parquet")),
    ):
        assert missing(settings) == []
        pairs = training(settings)
        assert pairs.content_hash == local.content_hash
        assert pairs.encoded(np.arange(12)) == [tars.encoded(i) for i in range(12)]
    assert len(server.asked) == asked + 3, "each shard comes once more, and then lies in the cache"


def test_a_quote_in_a_web_address_ends_no_word_of_a_shell(tmp_path: Path, server: Server) -> None:
    (tmp_path / "there" / "it's.tar").write_bytes(b"all of it")
    assert download(f"{server.url}/it's.tar", tmp_path / "copy") == len(b"all of it")
    assert server.asked == ["/it%27s.tar"]


def test_a_command_is_run_only_if_it_was_typed_or_allowed(
    tmp_path: Path, tars: Tars, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, mark = tars.write_set(tmp_path / "there", 1, 3), tmp_path / "mark"
    command = f"pipe:touch {mark}; cat {there}/00000.tar"
    result = CliRunner().invoke(app, ["data", "index", command, "--out", str(data / "mine" / "index.parquet")])
    assert result.exit_code == 0, result.output
    mark.unlink()
    shutil.rmtree(cache.folder())
    monkeypatch.delenv(VARIABLE)
    said = r"^shards: pipe:touch [^\n]* is a command of the shell; if you trust its author, set BENCH_PIPES=1$"
    for settings in ({"shards": command}, {"index": str(data / "mine" / "index.parquet")}):
        with pytest.raises(UserError, match=said):
            training(DataSettings(name="mine", **settings))
    with pytest.raises(UserError, match=said):
        cache.fetched(command, 7)
    assert not mark.exists()
    monkeypatch.setenv(VARIABLE, "1")
    assert training(DataSettings(name="mine", shards=command)).encoded(np.array([1])) == [tars.encoded(1)]
    assert mark.exists()


def test_the_shard_of_a_command_is_the_last_tar_that_it_names() -> None:
    for command, folder, name in (
        ("pipe:cat /a/0.tar", "pipe:cat /a//", "0.tar"),
        ("pipe:aws s3 cp s3://b/a.tar/00001.tar -", "pipe:aws s3 cp s3://b/a.tar// -", "00001.tar"),
        ("pipe:cat 'x y/1.tar' | tee /tmp/log", "pipe:cat 'x y//' | tee /tmp/log", "1.tar"),
        ("pipe:curl -so - --url=0.tar", "pipe:curl -so - --url=/", "0.tar"),
    ):
        assert place(command) == (folder, name)
    with pytest.raises(UserError, match=r"should name the tar that it prints, such as pipe:cat 00000\.tar"):
        expand(["pipe:cat 0.tar.gz"])
    two = expand(["pipe:cat a/{0..1}.tar", "pipe:cat b/0.tar"])
    assert [(one.name, one.prefix) for one in two] == [("0/0.tar", "0/"), ("0/1.tar", "0/"), ("1/0.tar", "1/")]
    with pytest.raises(UserError, match=r"stands twice"):
        expand(["pipe:cat a/{0,0}.tar"])


def test_a_remote_shard_that_does_not_come_whole_is_named(
    tmp_path: Path, tars: Tars, server: Server, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, out = tars.write_set(tmp_path / "there", 1, 4), data / "m" / "index.parquet"
    server.cut.add("/00000.tar")
    for source, said in (
        (f"{server.url}/00000.tar", r"00000\.tar: cannot be fetched \(curl ended with status 18\)$"),
        (f"{server.url}/9.tar", r"9\.tar: cannot be fetched \(curl ended with status 22\)$"),
        (f"pipe:cat {there}/00000.tar; exit 3", r"cannot be fetched \(the command ended with status 3\)$"),
        (f"{server.url}/", "cannot be listed; give a pattern that ends in .tar"),
        (f"pipe:head -c 3000 {there}/00000.tar", "broken tar"),
    ):
        with pytest.raises(UserError, match=said):
            build(expand([source]), out, workers=1)
        assert not out.exists()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"00000\.tar: cannot be fetched \(FileNotFoundError: .*'curl'\)$"):
        build(expand([f"{server.url}/00000.tar"]), data / "n" / "index.parquet", workers=1)
    assert not [*cache.folder().glob("*.part")]


def test_a_shard_that_was_replaced_behind_its_address_is_said(
    tmp_path: Path, tars: Tars, server: Server, data: Path
) -> None:
    there, source = tars.write_set(tmp_path / "there", 1, 4), f"{server.url}/00000.tar"
    build(expand([source]), data / "m" / "index.parquet", workers=1)
    tars.write(there / "00000.tar", [member for i in range(9) for member in tars.sample(f"n{i}", i)])
    shutil.rmtree(cache.folder())
    pairs = training(DataSettings(name="m", shards=source))
    with pytest.raises(
        UserError, match=r"of its \d+ bytes came; .* it was replaced: then run `bench data index` again"
    ):
        pairs.encoded(np.array([0]))
    assert build(expand([source]), data / "m" / "index.parquet", workers=1).about.rows == 9
    assert training(DataSettings(name="m", shards=source)).encoded(np.array([8])) == [tars.encoded(8)]


def classified(tars: Tars) -> list[dict[str, object]]:
    return [{"png": tars.encoded(number, "PNG"), "cls": number % 3} for number in range(7)]


def same(one: evaluation.EvaluationPairs, other: evaluation.EvaluationPairs) -> None:
    assert (one.keys, one.templates, one.content_hash) == (other.keys, other.templates, other.content_hash)
    assert [one.captions(row) for row in range(len(one))] == [other.captions(row) for row in range(len(other))]
    assert one.labels.keys() == other.labels.keys()
    assert all(np.array_equal(one.labels[name], other.labels[name]) for name in one.labels)
    assert np.array_equal(one.images(np.arange(len(one))), other.images(np.arange(len(other))))


def loaded(dataset: str) -> evaluation.EvaluationPairs:
    evaluation._load.cache_clear()
    return evaluation.load(dataset, 24)


@pytest.mark.parametrize("kind", ["web", "pipe", "file"])
def test_an_evaluation_set_behind_a_url_is_that_of_its_folder(
    tmp_path: Path, tars: Tars, server: Server, data: Path, webdataset_folder: Any, kind: str, monkeypatch: Any
) -> None:
    there = tmp_path / "there" / "wds_pets"
    webdataset_folder(there, classified(tars), shards=3, classes=("a", "b", "c"), templates=("the {c}",))
    source = {"web": f"{server.url}/wds_pets/", "pipe": f"pipe:cat {there}/{{}}", "file": f"file://{there}"}[kind]
    result = CliRunner().invoke(app, ["data", "get", "pets", source])
    assert result.exit_code == 0, result.output
    home = data / "evaluation" / "wds_vtab-pets"
    assert result.output.endswith(f"{home / 'test'}: 7 images of 3 classes\n")
    assert sorted(path.name for path in home.rglob("*") if path.is_file()) == sorted(
        path.name for path in there.rglob("*") if path.is_file()
    )
    fetched = loaded("pets")
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "local"))
    shutil.copytree(there, tmp_path / "local" / "evaluation" / "wds_pets")
    same(fetched, loaded("pets"))


def test_a_copy_that_stopped_goes_on(
    tmp_path: Path, tars: Tars, server: Server, data: Path, webdataset_folder: Any
) -> None:
    webdataset_folder(tmp_path / "there", classified(tars), shards=3, classes=("a", "b", "c"))
    server.cut.add("/test/1.tar")
    with pytest.raises(UserError, match=r"^http\S*/test/1\.tar: cannot be fetched \(curl ended with status 18\); the"):
        fetch("mine", server.url, lambda _: None)
    home = data / "evaluation" / "wds_mine"
    assert sorted(path.name for path in home.rglob("*") if path.is_file()) == ["0.tar", "classnames.txt", "nshards.txt"]
    with pytest.raises(UserError, match=r"lacks 1\.tar, 2\.tar.* or bench data get mine URL"):
        loaded("mine")
    server.cut.clear()
    server.asked.clear()
    said: list[str] = []
    assert fetch("mine", server.url, said.append) == home / "test"
    assert [path for path in server.asked if path.endswith(".tar")] == ["/test/1.tar", "/test/2.tar"]
    assert "zeroshot_classification_templates.txt: there is none (curl ended with status 22)" in said
    assert len(loaded("mine")) == 7


def test_captions_and_other_splits_come_too(tmp_path: Path, tars: Tars, server: Server, webdataset_folder: Any) -> None:
    samples = [{"jpg": tars.encoded(number), "txt": f"one {number}\ntwo"} for number in range(4)]
    webdataset_folder(tmp_path / "there", samples, split="val")
    result = CliRunner().invoke(app, ["data", "get", "flickr30k/validation", server.url])
    assert result.exit_code == 0, result.output
    assert "4 images with captions" in result.output
    assert loaded("flickr30k/validation").captions(3) == ("one 3", "two")


def test_what_cannot_be_fetched_is_one_line_and_leaves_nothing(
    tmp_path: Path, tars: Tars, server: Server, data: Path, webdataset_folder: Any
) -> None:
    there = tmp_path / "there"
    webdataset_folder(there, classified(tars), classes=("a", "b", "c"))
    for source, said in (
        (f"{server.url}/nowhere", "cannot be fetched (curl ended with status 22); the URL should be that of"),
        (f"pipe:cat {there}/nowhere/{{}}", "cannot be fetched (the command ended with status 1)"),
        ("pipe:cat 0.tar", "should have {} where the name of a file goes, such as test/0.tar"),
        (f"file://{there}/nowhere", "cannot be fetched (FileNotFoundError"),
        ("http://127.0.0.1:9", "cannot be fetched (curl ended with status 7)"),
        ("nokind://x", "nokind://x"),
    ):
        result = CliRunner().invoke(app, ["data", "get", "pets", source])
        lines = str(result.exception).splitlines()
        assert isinstance(result.exception, UserError), result.output
        assert len(lines) == 1
        assert said in lines[0]
        assert not data.exists()
    (there / "test" / "nshards.txt").write_text("many\n")
    with pytest.raises(UserError, match=r"nshards\.txt: should hold the number of shards, 1 to 100,000, not 'many'"):
        fetch("pets", server.url, lambda _: None)
    assert not data.exists()


def test_a_tar_whose_end_is_missing_is_never_kept(
    tmp_path: Path, tars: Tars, data: Path, webdataset_folder: Any
) -> None:
    there = tmp_path / "there"
    webdataset_folder(there, classified(tars), classes=("a", "b", "c"))
    command = f"pipe:head -c 3000 {there}/{{}}"
    with pytest.raises(UserError, match=r"test/0\.tar: the tar ends without the end mark at byte \d+; the same"):
        fetch("pets", command, lambda _: None)
    assert not [*data.rglob("*.tar")]
