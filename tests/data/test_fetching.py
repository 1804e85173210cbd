"""Shards and evaluation sets behind URLs and commands come whole, or are a fault in one line."""

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
from bench.data import evaluation, fetching
from bench.data.fetching import MAX_TRIES, fetch_evaluation, fetch_shards, names_shards
from bench.data.shards import load_shard_pairs as training
from bench.errors import UserError
from bench.suite.settings import DataSettings

from ..command import call_bench

Tars = Any


@dataclass
class Server:
    """A folder on a port of this machine."""

    url: str
    asked: list[str] = field(default_factory=list)  #: paths, in the order of their requests
    cut: set[str] = field(default_factory=set)  #: paths whose answers end half-way
    broken: set[str] = field(default_factory=set)  #: paths at which the server fails


class Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, server_of: Server, **options: Any) -> None:
        self.server_of = server_of
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        self.server_of.asked.append(self.path)
        if self.path in self.server_of.broken:
            self.send_error(500)
            return
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
    monkeypatch.setattr(fetching, "RETRY_SECONDS", 0.0)
    return tmp_path / "data"


@pytest.mark.parametrize("kind", ["web", "pipe", "file"])
def test_shards_behind_a_url_are_those_of_their_folder(
    tmp_path: Path, tars: Tars, server: Server, data: Path, kind: str
) -> None:
    there = tars.write_set(tmp_path / "there", 3, 4)
    pattern = "{00000..00002}.tar"
    source = {
        "web": f"{server.url}/{pattern}",
        "pipe": f"pipe:cat '{there}'/{pattern} | cat",
        "file": f"file://{there}/{pattern}",
    }[kind]
    assert call_bench("data", "get", "mine", source).endswith(
        f"{data / 'mine'}: 3 shards; then: bench data index mine\n"
    )
    tars_there = {path.name: path.read_bytes() for path in there.glob("*.tar")}
    assert {path.name: path.read_bytes() for path in (data / "mine").iterdir()} == tars_there
    call_bench("data", "index", "mine")
    assert training(DataSettings(name="mine")).encoded(np.arange(12)) == [tars.encoded(i) for i in range(12)]


def test_a_copy_of_shards_that_stopped_goes_on(tmp_path: Path, tars: Tars, server: Server, data: Path) -> None:
    tars.write_set(tmp_path / "there", 3, 4)
    source = f"{server.url}/{{00000..00002}}.tar?download=true"
    server.cut.add("/00001.tar?download=true")
    said: list[str] = []
    with pytest.raises(
        UserError,
        match=r"00001\.tar\S*: cannot be fetched \(ConnectionError: [\d,]+ bytes are missing at its end\); the",
    ):
        fetch_shards("mine", source, said.append)
    assert [path.name for path in (data / "mine").iterdir()] == ["00000.tar"]
    assert server.asked.count("/00001.tar?download=true") == MAX_TRIES
    assert len(said) == MAX_TRIES, "the first shard, and a line for each further try"
    assert said[1].endswith("bytes are missing at its end); it is tried again")
    server.cut.clear()
    server.asked.clear()
    assert fetch_shards("mine", source, lambda _: None) == data / "mine"
    assert server.asked == ["/00001.tar?download=true", "/00002.tar?download=true"]


@pytest.mark.parametrize("name", ["it's.tar", "[1-3]00.tar", "a b;x.tar"])
def test_a_web_address_is_one_address_whatever_signs_it_has(
    tmp_path: Path, tars: Tars, server: Server, data: Path, name: str
) -> None:
    """curl took [1-3]00.tar for three addresses, and joined the tars."""
    tars.write(tmp_path / "there" / name, tars.sample("a", 0))
    fetch_shards("mine", f"{server.url}/{name}", lambda _: None)
    assert len(server.asked) == 1
    (tar,) = (data / "mine").iterdir()
    assert tar.read_bytes() == (tmp_path / "there" / name).read_bytes()


def test_brackets_are_no_pattern_for_the_programs_that_gopen_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program := tmp_path / "curl").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked; exit 6\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(UserError, match=r"cannot be fetched \(the command ended with status 6\)"):
        fetch_shards("mine", "sftp://host/[1-3000].tar", lambda _: None)
    assert (tmp_path / "asked").read_text().split()[-1] == "sftp://host/%5B1-3000%5D.tar"


@pytest.mark.parametrize("kind", ["web", "pipe"])
def test_a_copy_is_bounded_while_it_runs(
    tmp_path: Path, server: Server, data: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MAX_TAR_BYTES", 10_000)
    monkeypatch.setattr(fetching, "PIECE_BYTES", 4096)
    (tmp_path / "there" / "0.tar").write_bytes(bytes(50_000))
    source = {"web": f"{server.url}/0.tar", "pipe": "pipe:cat /dev/zero; : 0.tar"}[kind]
    with pytest.raises(UserError, match=r"0\.tar: has more bytes than such a file can have, or than the disk has room"):
        fetch_shards("mine", source, lambda _: None)
    assert [*(data / "mine").iterdir()] == []


def test_a_host_or_a_server_that_fails_is_said_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr(fetching.time, "sleep", paused.append)
    said: list[str] = []
    with pytest.raises(UserError, match=r"0\.tar: cannot be fetched \(\w+: .*\); the same command continues"):
        fetch_shards("mine", "http://host.invalid/0.tar", said.append)
    assert (said, paused) == ([], [])
    server.broken.add("/0.tar")
    with pytest.raises(UserError, match=r"cannot be fetched \(500 Internal Server Error\); the same"):
        fetch_shards("mine", f"{server.url}/0.tar", said.append)
    assert len(server.asked) == MAX_TRIES
    assert len(said) == len(paused) == MAX_TRIES - 1
    assert all(line.endswith("cannot be fetched (500 Internal Server Error); it is tried again") for line in said)


def test_a_command_behind_file_is_never_run(tmp_path: Path) -> None:
    source = f"file://pipe:touch {tmp_path}/ran; cat 0.tar"
    with pytest.raises(UserError, match=r"cannot be fetched"):
        fetch_shards("mine", source, lambda _: None)
    settings = DataSettings(name="mine", shards=source, get="touch ran")
    with pytest.raises(
        UserError, match=r"do what data\.get of the suite says, if you trust whoever wrote it$"
    ) as error:
        training(settings)
    assert "bench data index" not in str(error.value)
    result = CliRunner().invoke(app, ["data", "index", source])
    assert "is not on this machine; first copy it: bench data get NAME URL" in str(result.exception)
    assert not (tmp_path / "ran").exists()


def test_the_shard_of_a_command_is_the_last_tar_that_it_names(tmp_path: Path, tars: Tars, data: Path) -> None:
    tar = tars.write(tmp_path / "a.tar", tars.sample("a", 0))
    for command, name in (
        (f"pipe:cat {tar}; : s3://b/a.tar/00001.tar -", "00001.tar"),
        (f"pipe:cat {tar} | tee '/{tmp_path}/x y/1.tar' | cat {tar}; : --url=2.tar.gz 3.tar", "3.tar"),
        (f"pipe:cat {tar}; : -so - --url=0.tar", "0.tar"),
    ):
        assert names_shards(command)
        fetch_shards("mine", command, lambda _: None)
        assert (data / "mine" / name).is_file()
    assert not names_shards("pipe:cat 0.tar.gz")
    assert not names_shards("pipe:cat a.tar/{}")
    for name, pattern, said in (
        ("mine", "pipe:cat {a,b}/0.tar", r"some of its 2 shards have the same name; copy each folder alone"),
        ("pets/train", "pipe:cat 0.tar", r"^pets/train: not a valid name of a training set"),
        ("..", "pipe:cat 0.tar", "not a valid name of a training set"),
    ):
        with pytest.raises(UserError, match=said):
            fetch_shards(name, pattern, lambda _: None)


def test_a_shard_that_does_not_come_whole_is_named(
    tmp_path: Path, tars: Tars, server: Server, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tars.write_set(tmp_path / "there", 1, 4)
    for source, said in (
        (f"{server.url}/9.tar", r"9\.tar: cannot be fetched \(404 File not found\); the same command continues"),
        (f"pipe:cat {there}/00000.tar; exit 3", r"cannot be fetched \(the command ended with status 3\); the same"),
        (f"pipe:head -c 3000 {there}/00000.tar", r"the tar ends without the end mark at byte \d+; the same"),
        ("nokind://x/0.tar", r"0\.tar: cannot be fetched \(ValueError: "),
    ):
        with pytest.raises(UserError, match=said):
            fetch_shards("mine", source, lambda _: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"00000\.tar: cannot be fetched \(FileNotFoundError: .*'gsutil'\)"):
        fetch_shards("mine", "gs://bucket/00000.tar", lambda _: None)
    assert [*(data / "mine").iterdir()] == []


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
    return evaluation.load_evaluation_set(dataset, 24)


@pytest.mark.parametrize("kind", ["web", "pipe", "file"])
def test_an_evaluation_set_behind_a_url_is_that_of_its_folder(
    tmp_path: Path, tars: Tars, server: Server, data: Path, webdataset_folder: Any, kind: str, monkeypatch: Any
) -> None:
    there = tmp_path / "there" / "wds_pets"
    webdataset_folder(there, classified(tars), shards=3, classes=("a", "b", "c"), templates=("the {c}",))
    source = {"web": f"{server.url}/wds_pets/", "pipe": f"pipe:cat {there}/{{}}", "file": f"file://{there}"}[kind]
    said = call_bench("data", "get", "pets", source)
    home = data / "evaluation" / "wds_vtab-pets"
    assert said.endswith(f"{home / 'test'}: 7 images of 3 classes\n")
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
    with pytest.raises(
        UserError, match=r"^http\S*/test/1\.tar: cannot be fetched \(.* bytes are missing at its end\); the"
    ):
        fetch_evaluation("mine", server.url, lambda _: None)
    home = data / "evaluation" / "wds_mine"
    assert sorted(path.name for path in home.rglob("*") if path.is_file()) == ["0.tar", "classnames.txt", "nshards.txt"]
    with pytest.raises(UserError, match=r"lacks 1\.tar, 2\.tar.* or bench data get mine URL"):
        loaded("mine")
    server.cut.clear()
    server.asked.clear()
    said: list[str] = []
    assert fetch_evaluation("mine", server.url, said.append) == home / "test"
    assert [path for path in server.asked if path.endswith(".tar")] == ["/test/1.tar", "/test/2.tar"]
    assert "zeroshot_classification_templates.txt: there is none (404 File not found)" in said
    assert len(loaded("mine")) == 7


def test_captions_and_other_splits_come_too(tmp_path: Path, tars: Tars, server: Server, webdataset_folder: Any) -> None:
    samples = [{"jpg": tars.encoded(number), "txt": f"one {number}\ntwo"} for number in range(4)]
    webdataset_folder(tmp_path / "there", samples, split="val")
    assert "4 images with captions" in call_bench("data", "get", "flickr30k/validation", server.url)
    assert loaded("flickr30k/validation").captions(3) == ("one 3", "two")


def test_what_cannot_be_fetched_is_one_line_and_leaves_nothing(
    tmp_path: Path, tars: Tars, server: Server, data: Path, webdataset_folder: Any
) -> None:
    there = tmp_path / "there"
    webdataset_folder(there, classified(tars), classes=("a", "b", "c"))
    for source, said in (
        (f"{server.url}/nowhere", "cannot be fetched (404 File not found); the URL should be that of"),
        (f"pipe:cat {there}/nowhere/{{}}", "cannot be fetched (the command ended with status 1)"),
        ("pipe:cat 0", "should have {} where the name of a file goes, such as test/0.tar"),
        (f"file://{there}/nowhere", "cannot be fetched (FileNotFoundError"),
        ("http://127.0.0.1:9", "cannot be fetched (ConnectionRefusedError"),
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
        fetch_evaluation("pets", server.url, lambda _: None)
    assert not data.exists()


def test_a_tar_whose_end_is_missing_is_never_kept(
    tmp_path: Path, tars: Tars, data: Path, webdataset_folder: Any
) -> None:
    there = tmp_path / "there"
    webdataset_folder(there, classified(tars), classes=("a", "b", "c"))
    command = f"pipe:head -c 3000 {there}/{{}}"
    with pytest.raises(UserError, match=r"test/0\.tar: the tar ends without the end mark at byte \d+; the same"):
        fetch_evaluation("pets", command, lambda _: None)
    assert not [*data.rglob("*.tar")]
