"""The index of shards: what it holds, what it leaves out and says so, how it goes on after a kill."""

import csv
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import bench
from bench.data.shards.index import Index
from bench.data.shards.indexing import build_index
from bench.data.shards.sources import Shard, expand_sources
from bench.errors import UserError
from bench.tars import Broken, tar_members

from ..conftest import children


def made(folder, limit=1.0, **options):
    return build_index(expand_sources([str(folder)]), folder / "index.parquet", limit=limit, workers=1, **options)


def reasons(report) -> dict[str, str]:
    """Key -> reason of what was left out."""
    with open(report.faults, newline="") as file:
        return {line["key"]: line["reason"] for line in csv.DictReader(file)}


def test_rows_are_what_the_tars_hold(tmp_path, tars):
    report = made(tars.write_set(tmp_path, shards=3, rows=5))
    index = Index.read(report.out)
    assert list(index.keys) == [f"{shard:05d}{i:04d}" for shard in range(3) for i in range(5)]
    assert index.captions.to_pylist() == [[f"caption of {key}"] for key in index.keys]
    assert index.ints("shard").tolist() == [0] * 5 + [1] * 5 + [2] * 5
    data = (tmp_path / "00001.tar").read_bytes()
    start, size = int(index.ints("offset")[7]), int(index.ints("size")[7])
    assert data[start : start + size] == tars.encoded(12 - 5)
    assert report.about.ids == hashlib.sha256("".join(f"{key}\n" for key in index.keys).encode()).hexdigest()
    assert [(e.name, e.path, e.rows) for e in report.about.shards] == [
        (f"0000{i}.tar", f"0000{i}.tar", 5) for i in range(3)
    ]
    assert report.about.shards[1].bytes == len(data)
    assert reasons(report) == {}
    assert not list(tmp_path.glob("*.work"))


def test_members_that_gnu_tar_writes(tmp_path):
    """Folders with ./ before every name, as `tar cf x.tar .` gives them."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("text")
    (tmp_path / "in" / ("l" * 120 + ".txt")).write_text("long")
    subprocess.run(["tar", "cf", tmp_path / "t.tar", "-C", tmp_path / "in", "."], check=True)
    with open(tmp_path / "t.tar", "rb") as file:
        found = sorted(m.name for m in tar_members(file, (tmp_path / "t.tar").stat().st_size))
    assert found == ["./a.txt", "./" + "l" * 120 + ".txt"]


@pytest.mark.parametrize("keep", [100, 512 * 3 + 5, 512 * 7])
def test_a_cut_tar_is_broken(tmp_path, tars, keep):
    path = tars.write(tmp_path / "t.tar", [("a.jpg", bytes(700)), ("b.jpg", bytes(700)), ("c.jpg", bytes(700))])
    path.write_bytes(path.read_bytes()[:keep])
    with open(path, "rb") as file, pytest.raises(Broken):
        list(tar_members(file, keep))


def grey(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def faulty(tars) -> list[tuple[str, bytes]]:
    """One sample of each fault, with its key for its reason."""
    image, gif = tars.encoded(1), tars.encoded(1, "GIF")
    latin = "naïve".encode("latin-1")
    samples = {
        "cut image": [("jpg", tars.encoded(1, size=100)[:-2000])],
        "zero-byte image": [("jpg", b"")],
        "text as image": [("jpg", b"<html>404</html>")],
        "a gif called jpg": [("jpg", gif)],
        "a bomb": [("png", grey(10_000, 9_000))],
        "wrong extension": [("gif", gif)],
        "two images": [("jpg", image), ("png", tars.encoded(1, "PNG"))],
    }
    captions = {"empty": b" \n", "latin": latin}
    found = [(f"{key}.{suffix}", data) for key, all in samples.items() for suffix, data in [*all, ("txt", b"text")]]
    found += [
        (f"{key}.{suffix}", data) for key, text in captions.items() for suffix, data in (("jpg", image), ("txt", text))
    ]
    found += [("silent.jpg", image), ("json.jpg", image), ("json.json", b'{"captions": "one"}')]
    found += [("half.jpg", image), ("half.json", b'{"captions": ["whole", "half \\ud83d"]}')]
    found += [("../up.jpg", image), ("../up.txt", b"text"), ("/etc/root.jpg", image), ("/etc/root.txt", b"text")]
    return found


REASONS = {
    "cut image": "undecodable image",
    "zero-byte image": "undecodable image",
    "text as image": "undecodable image",
    "a gif called jpg": "undecodable image",
    "a bomb": "too many pixels",
    "wrong extension": "no image",
    "two images": "several images",
    "empty": "empty caption",
    "latin": "caption is not UTF-8",
    "silent": "no caption",
    "json": "json cannot be read",
    "half": "caption is not UTF-8",
    "../up": "unsafe name",
    "/etc/root": "unsafe name",
    "link": "not a file",
    "b'\\xff.jpg'": "unsafe name",
    "000000001": "duplicate key",
    "000010002": "duplicate key",
}


@pytest.fixture
def broken_set(tmp_path, tars) -> Path:
    """Two good shards, one with every fault, and one that repeats a sample of the second."""
    tars.write_set(tmp_path, shards=2)
    members = [*faulty(tars), *tars.sample("000000001", 77), *tars.sample("fine", 78)]
    with tarfile.open(tmp_path / "00002.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    data = (tmp_path / "00002.tar").read_bytes()
    strange = tarfile.TarInfo("?.jpg").tobuf().replace(b"?", b"\xff", 1)
    total = sum(strange[:148]) + sum(strange[156:]) + 8 * 32
    strange = strange[:148] + b"%06o\0 " % total + strange[156:]
    (tmp_path / "00002.tar").write_bytes(strange + data)
    tars.write(tmp_path / "00003.tar", tars.sample("000010002", 12))
    return tmp_path


def test_every_fault_is_counted_with_its_reason_and_left_out(broken_set):
    report = made(broken_set)
    assert reasons(report) == REASONS
    assert report.about.faults == dict(Counter(REASONS.values()))
    index = Index.read(report.out)
    assert set(index.keys) == {f"{s:05d}{i:04d}" for s in range(2) for i in range(10)} | {"fine"}
    assert index.ints("shard")[list(index.keys).index("000000001")] == 0, "the first of equal keys stands"
    assert any("18 samples" in line for line in report.lines())


def test_a_caption_that_only_the_json_has_is_taken(tmp_path, tars):
    """A list "captions" comes first, then the .txt, then the json's "caption", as img2dataset writes it."""
    image = tars.encoded(1)
    jsons = {
        "a only": b'{"caption": " a dog \\u00e9 ", "url": "x"}',
        "b list": b'{"caption": "unused", "captions": ["one", "two"]}',
        "c null": b'{"caption": null}',
        "d number": b'{"caption": 7}',
        "e cut": b'{"caption": "a do',
        "f half": b'{"caption": "half \\ud83d"}',
        "g blank": b'{"caption": "  "}',
        "h other": b'{"url": "caption"}',
        "i nested": b'{"about": {"caption": "inside"}}',
    }
    members = [m for key, data in jsons.items() for m in ((f"{key}.jpg", image), (f"{key}.json", data))]
    for order in (("json", "txt"), ("txt", "json")):  # a .txt stands before the json's caption, broken or not
        for key, data in (("x text", b'{"caption": "unused"}'), ("y text", b'{"caption": 7}')):
            parts = {"json": data, "txt": b"the text"}
            members += [(f"{key} {order[0]}.{suffix}", parts[suffix]) for suffix in order]
            members.append((f"{key} {order[0]}.jpg", image))
    tars.write(tmp_path / "0.tar", members)
    report = made(tmp_path)
    index = Index.read(report.out)
    texts = {f"{key} text {first}": ["the text"] for key in "xy" for first in ("json", "txt")}
    expected = {"a only": ["a dog é"], "b list": ["one", "two"], **texts}
    assert dict(zip(index.keys, index.captions.to_pylist(), strict=True)) == expected
    assert reasons(report) == {
        "c null": "no caption",
        "d number": "json cannot be read",
        "e cut": "json cannot be read",
        "f half": "caption is not UTF-8",
        "g blank": "empty caption",
        "h other": "no caption",
        "i nested": "no caption",
    }
    with open(report.faults, newline="") as file:
        told = {line["key"]: line["detail"] for line in csv.DictReader(file)}
    assert told["d number"] == '"caption" should be a text'
    assert told["h other"] == 'neither a .txt, nor a .json with a list "captions" or a text "caption"'


def test_lines_of_a_text_are_captions_but_not_beside_a_json_of_img2dataset(tmp_path, tars):
    """A caption a line is how clip-benchmark's sets, which people train on too, hold several."""
    image = tars.encoded(1)
    members = [("a.jpg", image), ("a.txt", b"\xef\xbb\xbfone\r\n\n two \nthree"), ("b.jpg", image), ("b.txt", b"of\n2")]
    tars.write(tmp_path / "0.tar", [*members, ("b.json", b'{"caption": "of\\n2"}')])
    index = Index.read(made(tmp_path).out)
    assert index.captions.to_pylist() == [["one", "two", "three"], ["of\n2"]]
    each = Index.read(made(tmp_path, each_caption=True).out)
    assert dict(zip(each.keys, each.captions.to_pylist(), strict=True)) == {
        "a#0": ["one"],
        "a#1": ["two"],
        "a#2": ["three"],
        "b#0": ["of\n2"],
    }


def test_over_the_limit_there_is_no_index(broken_set):
    with pytest.raises(UserError, match=r"18 of 39 samples are faulty, more than --limit 0\.4") as error:
        made(broken_set, limit=0.4)
    assert "00002.tar cut image: OSError: " in str(error.value)
    assert not (broken_set / "index.parquet").exists()
    assert (broken_set / "index.faults.csv").exists()
    assert made(broken_set, limit=0.47).about.rows == 21, "what was scanned serves again"


def test_a_broken_tar_counts_for_what_it_lacks(tmp_path, tars):
    tars.write_set(tmp_path, shards=3, rows=10)
    cut = tmp_path / "00001.tar"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    report = made(tmp_path)
    rows = report.about.shards[1].rows
    assert 2 <= rows <= 6
    assert report.about.faults["broken tar"] == 10 - rows
    with pytest.raises(UserError, match=r"broken tar, such as 00001\.tar : ends without the end mark at byte"):
        made(tmp_path, limit=0.05)


def test_a_tar_of_rubbish_and_a_set_of_nothing(tmp_path, tars):
    (tmp_path / "00000.tar").write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(UserError, match="there is no sample to train on"):
        made(tmp_path)
    tars.write_set(tmp_path / "more", 1)
    (tmp_path / "more" / "00001.tar").write_bytes(b"")
    assert made(tmp_path / "more").about.faults == {"broken tar": 10}


def test_large_pictures_and_other_formats_are_fine(tmp_path, tars):
    buffer = io.BytesIO()
    Image.new("RGB", (10_000, 5_000)).save(buffer, "JPEG")
    images = {"huge": buffer.getvalue(), "png": tars.encoded(0, "PNG"), "webp": tars.encoded(0, "WEBP")}
    members = [(f"{key}.{suffix}", data) for key, data in images.items() for suffix in ("jpg",)]
    members += [(f"{key}.txt", key.encode()) for key in images]
    members += [("._hidden.jpg", b"macOS"), ("UPPER.JPEG", tars.encoded(3)), ("UPPER.TXT", b"upper")]
    tars.write(tmp_path / "00000.tar", members)
    report = made(tmp_path)
    assert (list(Index.read(report.out).keys), report.about.faults) == (["UPPER", "huge", "png", "webp"], {})


def test_captions_of_json_and_rows_by_caption(tmp_path, tars):
    image = tars.encoded(0)
    five = b'{"captions": ["one", " two ", "", "three"]}'
    tars.write(
        tmp_path / "0.tar", [("a.jpg", image), ("a.txt", b"\xef\xbb\xbf single\n"), ("b.jpg", image), ("b.json", five)]
    )
    assert Index.read(made(tmp_path).out).captions.to_pylist() == [["single"], ["one", "two", "three"]]
    index = Index.read(made(tmp_path, each_caption=True).out)
    assert list(index.keys) == ["a#0", "b#0", "b#1", "b#2"]
    assert index.captions.to_pylist() == [["single"], ["one"], ["two"], ["three"]]
    assert len(set(index.ints("offset")[1:].tolist())) == 1


def test_of_a_key_that_occurs_twice_the_first_stands(tmp_path, tars):
    captions = [f'{{"captions": ["{word}"]}}'.encode() for word in ("first", "second")]
    twice = [tars.sample("a", 0, "text")[::2], tars.sample("a", 1, "other")[::2]]
    plain = [[("b.json", b'{"caption": "-"}'), *tars.sample("b", 2, "text")[::2]], [("b.json", captions[1])]]
    whole = [[*one, ("a.json", json)] for one, json in zip(twice, captions, strict=True)]
    tars.write(tmp_path / "0.tar", [member for sample in [*whole, *plain] for member in sample])
    report = made(tmp_path)
    assert Index.read(report.out).captions.to_pylist() == [["first"], ["text"]]
    assert report.about.faults == {"duplicate key": 1}


def test_several_processes_give_the_same_file(tmp_path, tars):
    tars.write_set(tmp_path, shards=5)
    shards = expand_sources([str(tmp_path)])
    one, two = (build_index(shards, tmp_path / f"{n}.parquet", workers=n) for n in (1, 2))
    assert one.out.read_bytes() == two.out.read_bytes()


CODE = """
import sys, time
from bench.data.shards import part
from bench.data.shards.indexing import build_index
from bench.data.shards.sources import expand_sources
slow = part.scan_tar
def scan(file, shard, *rest):
    if shard > "00002.tar":
        time.sleep(1e6)  # until it is killed
    return slow(file, shard, *rest)
part.scan_tar = scan
build_index(expand_sources([sys.argv[1]]), __import__("pathlib").Path(sys.argv[1]) / "index.parquet", workers=1)
"""


def test_a_killed_index_goes_on(tmp_path, tars, capfd):
    tars.write_set(tmp_path, shards=5)
    work = tmp_path / "index.parquet.work"
    process = subprocess.Popen([sys.executable, "-c", CODE, tmp_path], cwd=Path(bench.__file__).parents[1])
    try:
        deadline = time.monotonic() + 1200
        while len(list(work.glob("00000[012]-*.parquet"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(UserError, match="another process makes this index"):
            made(tmp_path)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    parts = {path.name: path.stat().st_mtime_ns for path in work.glob("*.parquet")}
    assert len(parts) == 3
    shards = expand_sources([str(tmp_path)])
    tars.write(tmp_path / "00001.tar", tars.sample("new", 5))  # changed since: not taken from before
    os.utime(tmp_path / "00001.tar", ns=(1, 1))
    report = build_index(shards, tmp_path / "index.parquet", workers=1, progress=True)
    assert "2 of 5 shards were scanned before" in capfd.readouterr().err
    assert report.about.rows == 41
    clean = build_index(shards, tmp_path / "again.parquet", workers=1)
    assert clean.out.read_bytes() == report.out.read_bytes()


def test_a_damaged_part_is_scanned_again(tmp_path, tars, capfd):
    tars.write_set(tmp_path, shards=3)
    (tmp_path / "00001.tar").rename(tmp_path / "away")
    (tmp_path / "00001.tar").mkdir()
    shards = [Shard(f"{n:05d}.tar", str(tmp_path / f"{n:05d}.tar")) for n in (0, 2, 1)]
    with pytest.raises(UserError, match="2 of 3 scanned shards are kept"):
        build_index(shards, tmp_path / "index.parquet", workers=1)
    (tmp_path / "00001.tar").rmdir()
    (tmp_path / "away").rename(tmp_path / "00001.tar")
    first, second = sorted((tmp_path / "index.parquet.work").glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-20])
    data = bytearray(second.read_bytes())
    data[100] ^= 1  # in a page: its checksum tells
    second.write_bytes(data)
    report = build_index(shards, tmp_path / "index.parquet", workers=1, progress=True)
    assert "were scanned before" not in capfd.readouterr().err
    assert report.about.rows == 30


def stored_again(change):
    """Write an index as a sound Parquet file with another table in it."""

    def write(path: Path) -> None:
        pq.write_table(change(pq.read_table(path)), path)

    return write


def with_about(**changes):
    def change(table):
        about = json.loads(table.schema.metadata[b"index"]) | changes
        return table.replace_schema_metadata({"index": json.dumps(about)})

    return change


def with_column(name, values):
    def change(table):
        return table.set_column(table.column_names.index(name), name, values(table[name]))

    return change


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    keys = pq.read_metadata(path).row_group(0).column(1)
    data[keys.data_page_offset + keys.total_compressed_size // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "not an index of shards"),
        (lambda path: path.write_bytes(b""), "not an index of shards"),
        (flip, "cannot be read (it is damaged: "),
        (stored_again(with_about(version=2)), "is of version 2, this is 1"),
        (stored_again(with_about(rows="many")), "not an index of shards"),
        (stored_again(lambda table: table.drop_columns(["digest"])), "it has no column digest"),
        *(
            (stored_again(change), "its rows are not those that were indexed")
            for change in (
                lambda table: table.slice(1),
                lambda table: table.take(pa.array(range(9, -1, -1))),
                with_column("hash", lambda old: pa.array([bytes(16)] * 10, old.type)),
                with_column("shard", lambda _: pa.array([0] * 9 + [1], pa.int32())),
            )
        ),
    ],
)
def test_a_damaged_index_is_named_in_one_line(tmp_path, tars, damage, message):
    tars.write_set(tmp_path, shards=1)
    path = made(tmp_path).out
    damage(path)
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        Index.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "bench data index" in str(caught.value)
    assert "\n" not in str(caught.value)


STUCK = """
import sys
from pathlib import Path
from bench.data.shards import part
from bench.data.shards.indexing import build_index
from bench.data.shards.sources import Shard
folder = Path(sys.argv[1])
part.scan_tar = lambda *_: (folder / "pipe").read_bytes()
if __name__ == "__main__":
    build_index([Shard(path.name, str(path)) for path in folder.glob("*.tar")], folder / "index.parquet", workers=2)
"""


def blocked(pid: int) -> bool:
    """Whether a process waits for somebody to write to a pipe that it opens."""
    return (
        "fifo" in Path(f"/proc/{pid}/wchan").read_text() or "wait_for_partner" in Path(f"/proc/{pid}/wchan").read_text()
    )


def test_workers_end_with_a_killed_command(tmp_path):
    """Scanning reads a named pipe that nobody writes to: workers wait in it."""
    for name in ("0.tar", "1.tar", "2.tar"):
        (tmp_path / name).write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "main.py").write_text(STUCK)
    environment = {**os.environ, "PYTHONPATH": str(Path(bench.__file__).parents[1])}
    process = subprocess.Popen([sys.executable, tmp_path / "main.py", tmp_path], env=environment)
    started: list[int] = []
    deadline = time.monotonic() + 1200
    while sum(map(blocked, started)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
        started = children(process.pid)
    assert sum(map(blocked, started)) == 2
    process.kill()
    process.wait()
    while any(map(alive, started)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, started))


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
