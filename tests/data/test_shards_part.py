"""The part of one scanned shard, the rows and faults in it."""

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data.shards import part as parts
from bench.data.shards.part import ScanJob, job_of, make_part, read_part
from bench.data.shards.scan import ScanFault, row_hash, scan_tar
from bench.data.shards.sources import Shard
from bench.errors import UserError


def job(folder: Path, **changes) -> ScanJob:
    given = {"place": 0, "name": "0.tar", "prefix": "", "each_caption": False} | changes
    shard = Shard(given["name"], str(folder / "0.tar"), given["prefix"])
    return job_of(given["place"], shard, folder, given["each_caption"])


def test_a_part_is_named_by_all_that_it_follows_from(tmp_path, tars, monkeypatch):
    path = tars.write(tmp_path / "0.tar", tars.sample("a", 0))
    os.utime(path, ns=(10**18, 10**18))
    jobs = [job(tmp_path), job(tmp_path, name="1/0.tar"), job(tmp_path, prefix="1/"), job(tmp_path, place=1)]
    jobs.append(job(tmp_path, each_caption=True))
    assert job(tmp_path) == jobs[0]
    assert [one.each_caption for one in jobs[-2:]] == [False, True]
    os.utime(path, ns=(10**18 + 1, 10**18 + 1))
    jobs.append(job(tmp_path))
    tars.write(path, [*tars.sample("a", 0), ("b.txt", bytes(20_000))])
    os.utime(path, ns=(10**18, 10**18))
    jobs.append(job(tmp_path))
    monkeypatch.setattr(parts, "RULES_VERSION", parts.RULES_VERSION + 1)
    jobs.append(job(tmp_path))
    assert len({one.part for one in jobs}) == len(jobs)
    path.unlink()
    with pytest.raises(UserError, match=r"shards: .*0\.tar: cannot be read: No such file"):
        job(tmp_path)


def test_a_part_holds_rows_and_faults(tmp_path, tars):
    path = tars.write(tmp_path / "0.tar", [*tars.sample("b", 0), ("a.jpg", b""), ("a.txt", b"x"), *tars.sample("c", 1)])
    one = job(tmp_path, prefix="7/")
    assert make_part(one) == 2
    assert [fault.reason for fault in read_part(one.part)[1]] == ["undecodable image"]
    with path.open("rb") as file:
        rows, faults = scan_tar(file, "0.tar", "7/")
    assert read_part(one.part)[1] == faults
    table = parts.pq.read_table(one.part)
    assert table["key"].to_pylist() == [row.key for row in rows] == ["7/b", "7/c"]
    assert table["digest"].to_pylist() == [row.digest for row in rows]
    assert table["hash"].to_pylist() == [row_hash(row.key, row.captions, row.digest) for row in rows]
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted(["0.tar", one.part.name])
    path.unlink()
    with pytest.raises(UserError, match=r"0\.tar: cannot be read"):
        make_part(one)


def test_keys_by_caption_sort_as_captions(tmp_path, tars):
    texts = [f"caption {i}" for i in range(11)]
    said = f'{{"captions": {texts}}}'.replace("'", '"').encode()
    tars.write(tmp_path / "0.tar", [("a.jpg", tars.encoded(0)), ("a.json", said)])
    one = job(tmp_path, each_caption=True)
    assert make_part(one) == 11
    table = parts.pq.read_table(one.part)
    keys = table["key"].to_pylist()
    assert keys == sorted(keys) == [f"a#{i:02}" for i in range(11)]
    assert table["captions"].to_pylist() == [[text] for text in texts]
    assert len(set(table["offset"].to_pylist())) == 1


short = st.text(st.sampled_from("ab\0"), max_size=3)


@settings(deadline=None)
@given(*[st.tuples(short, st.lists(short, max_size=3).map(tuple), st.binary(min_size=16, max_size=16))] * 2)
def test_rows_that_differ_have_other_hashes(one, other):
    """Text that moves from the key to a caption, or from one caption to the next, is another row."""
    assert (row_hash(*one) == row_hash(*other)) == (one == other)
    assert row_hash("a", ("b", ""), b"") != row_hash("a", ("", "b"), b"") != row_hash("ab", ("", ""), b"")


@pytest.mark.parametrize(
    ("members", "reason", "detail"),
    [
        ([("a.jpg", None), ("a.png", None), ("a.txt", b"x")], "several images", ".jpg and .png"),
        ([("a.txt", b"x")], "no image", "has captions only; images end in jpeg, jpg, png, webp"),
        ([("a.gif", b"x"), ("a.mp3", b"x")], "no image", "has gif, mp3; images end in jpeg, jpg, png, webp"),
        ([("a.jpg", b"")], "undecodable image", "the file is empty"),
        ([("../a.jpg", None), ("../a.txt", b"x")], "unsafe name", "member ../a.jpg lies outside its folder"),
        (
            [("a.jpg", None), ("a.json", b'{"captions": "x"}')],
            "json cannot be read",
            '"captions" should be a list of texts',
        ),
        ([("a.jpg", None), ("a.json", b'{"caption": 3}')], "json cannot be read", '"caption" should be a text'),
        ([("a.jpg", None), ("a.json", b'{"captions": [" "]}')], "empty caption", "the caption has no text"),
        (
            [("a.jpg", None), ("a.json", b'{"captions": ' + b"[" * 100_000)],
            "json cannot be read",
            "it is nested too deeply",
        ),
        (
            [("a.jpg", None), ("a.json", b'{"caption": ' * 100_000)],
            "json cannot be read",
            "it is nested too deeply",
        ),
        (
            [("a.jpg", None), ("a.txt", b"x" * (1 + (1 << 20)))],
            "too large",
            "member a.txt has 1,048,577 bytes, more than 1,048,576",
        ),
    ],
)
def test_a_fault_says_its_reason(tmp_path, tars, members, reason, detail):
    image = tars.encoded(0)
    path = tars.write(tmp_path / "0.tar", [(name, image if data is None else data) for name, data in members])
    with path.open("rb") as file:
        rows, (fault,) = scan_tar(file, "0.tar", "")
    assert rows == []
    assert (fault.shard, fault.reason, fault.detail, fault.samples) == ("0.tar", reason, detail, 1)


def test_a_name_that_no_file_can_have_is_a_fault(tmp_path, tars):
    members = [("n" * 5000 + ".jpg", tars.encoded(0)), ("n" * 120 + "X.jpg", tars.encoded(0)), *tars.sample("c", 1)]
    path = tars.write(tmp_path / "0.tar", members, tarfile.PAX_FORMAT)
    path.write_bytes(path.read_bytes().replace(b"X.jpg", b"\0.jpg"))  # in the extra header that holds a long name
    with path.open("rb") as file:
        rows, faults = scan_tar(file, "0.tar", "")
    assert [row.key for row in rows] == ["c"]
    assert {fault.reason for fault in faults} == {"unsafe name"}
    assert {fault.detail for fault in faults} == {"its name has a NUL character or more than 4,096 bytes"}


def test_a_second_file_of_the_same_kind_is_a_fault_beside_the_row(tmp_path, tars):
    path = tars.write(tmp_path / "0.tar", [*tars.sample("a", 0), ("a.jpg", tars.encoded(1))])
    with path.open("rb") as file:
        (row,), (fault,) = scan_tar(file, "0.tar", "p/")
    assert row.offset < fault.offset
    assert fault == ScanFault("0.tar", "p/a", fault.offset, "duplicate key", "a.jpg again; the first one is kept")


def test_digests_are_read_at_any_offset_of_an_array():
    values = [bytes([i]) * 16 for i in range(6)]
    column = parts.pa.array(values, parts.pa.binary(16))
    from bench.data.shards.index import fixed

    chunks = parts.pa.chunked_array([column.slice(1, 2), column.slice(0, 0), column.slice(4)], parts.pa.binary(16))
    np.testing.assert_array_equal(fixed(chunks)[:, 0], [1, 2, 4, 5])
    assert fixed(parts.pa.chunked_array([], parts.pa.binary(16))).shape == (0, 16)
