"""Files appear whole or not at all, whatever a writer does or wherever it is killed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.cli import app
from bench.cli.text import write_file
from bench.errors import UserError
from bench.store import Damaged, files, process
from bench.store.reading import read_json

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """The folder of a claim."""
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


@settings(deadline=None, max_examples=12)
@given(JSON)
def test_json_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.mktemp("json") / "deep" / "value.json"
    files.write_json(path, value)
    assert read_json(path) == value
    assert path.read_bytes() == files.dump(value)
    assert path.read_bytes().endswith(b"\n")


def test_keys_keep_their_order_and_letters_stay_letters() -> None:
    text = files.dump({"b": "café", "a": 1}).decode()
    assert text.index('"b"') < text.index('"a"')
    assert "café" in text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [{"deep": float("-inf")}]])
def test_what_is_no_number_is_refused_and_the_old_file_stays(tmp_path: Path, value: object) -> None:
    path = tmp_path / "value.json"
    files.write_json(path, 1)
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(path, value)
    assert read_json(path) == 1
    assert names(tmp_path) == ["value.json"]


def test_a_file_that_is_not_there_is_none_and_a_broken_one_an_error(tmp_path: Path) -> None:
    assert read_json(tmp_path / "none.json") is None
    (tmp_path / "half.json").write_text('{"a": ')
    with pytest.raises(Damaged, match=r"half\.json: cannot be read: it is not JSON"):
        read_json(tmp_path / "half.json")


@pytest.mark.parametrize("durable", [True, False])
def test_a_writer_that_fails_half_way_leaves_the_old_bytes_and_nothing_else(tmp_path: Path, durable: bool) -> None:
    target = tmp_path / "weights"
    files.write_bytes(target, b"old", durable)

    def broken(path: Path) -> None:
        assert path.parent == target.parent, "beside the target, so that a rename is one step"
        assert path.name.startswith(files.TEMPORARY)
        path.write_bytes(b"new, but only ha")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write_path(target, broken, durable)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["weights"]


def test_a_scratch_folder_is_removed_too(tmp_path: Path) -> None:
    with files.scratch(tmp_path / "below" / "thing") as path:
        (path / "inner").mkdir(parents=True)
        (path / "inner" / "file").write_text("x")
    assert names(tmp_path / "below") == []


def test_two_scratches_of_one_target_never_meet(tmp_path: Path) -> None:
    with files.scratch(tmp_path / "a") as one, files.scratch(tmp_path / "a") as other:
        assert one != other


def test_a_folder_is_published_once(tmp_path: Path, inside: Path) -> None:
    target = tmp_path / "evaluations" / "key"
    assert files.publish_folder(target, {"a": b"1", "b": b"2"}, inside)
    assert not files.publish_folder(target, {"a": b"other"}, inside)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {"a": b"1", "b": b"2"}
    assert names(target.parent) == ["key"]


@pytest.mark.parametrize("attempt", range(40))  # a race that one attempt of four loses
def test_of_many_publishers_at_once_exactly_one_is_told_that_it_was_first(
    tmp_path: Path, inside: Path, attempt: int
) -> None:
    target, told = tmp_path / f"below {attempt}" / "key", []
    gate = threading.Barrier(8)

    def publish(number: int) -> None:
        gate.wait()
        told.append((files.publish_folder(target, {"who": str(number).encode()}, inside), number))

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (first,) = [number for was_first, number in told if was_first]
    assert (target / "who").read_text() == str(first)
    assert names(target.parent) == ["key"]
    assert names(tmp_path) == [target.parent.name, "own"]
    assert names(inside) == []


def test_an_empty_folder_that_another_process_has_just_made_stays(
    tmp_path: Path, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that the other one is about to put there are looked up in the folder itself, not by its name."""
    folder = tmp_path / "made"
    folder.mkdir()
    before = folder.stat().st_ino
    monkeypatch.setattr(files, "_has_folder", lambda path, _: path != folder)  # it was not there at the last look
    files.make_folder(folder, inside)
    assert folder.stat().st_ino == before
    assert names(inside) == []


def test_removing_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    files.remove(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    for name in ("file", "folder"):
        files.remove(tmp_path / name)
    assert names(tmp_path) == []


def test_what_a_killed_process_of_this_machine_left_goes_with_the_next_write(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [
        tmp_path / f"{files.TEMPORARY}x.json-{process.machine_mark()}-{pid}-0123abcd" for pid in (dead.pid, os.getpid())
    ]
    left.append(tmp_path / f"{files.TEMPORARY}x.json-00000000-{dead.pid}-0123abcd")  # of another machine
    for path in left:
        path.write_text("half")
    files.write_json(tmp_path / "other.json", 1)
    assert names(tmp_path) == sorted([*(path.name for path in left[1:]), "other.json"])


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_mode_follows_the_umask_whatever_the_writer_makes(tmp_path: Path, inside: Path, umask: int) -> None:
    def private(path: Path) -> None:
        path.unlink()
        path.touch(mode=0o600)
        path.write_text("as safetensors does")

    before = os.umask(umask)
    try:
        files.write_path(tmp_path / "private", private)
        files.write_bytes(tmp_path / "plain", b"x")
        files.publish_folder(tmp_path / "folder", {"inner": b"x"}, inside)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {0o666 & ~umask}


@pytest.mark.parametrize(
    "command", ["check clip --report", "noise show smoke --html", "noise audit 0 --csv", "inspect state 0 zeta --html"]
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(command: str, tmp_path: Path) -> None:
    """Also a link to a device, which must not be replaced."""
    option = command.split()[-1]
    for number, target in enumerate((Path("/dev/null"), tmp_path)):
        link = tmp_path / f"link{number}"
        link.symlink_to(target)
        result = CliRunner().invoke(app, [*command.split(), str(link)])
        said = f"{option} {link}: cannot be written: it is a folder, a pipe or a device; name a file"
        assert (str(result.exception), result.output) == (said, "")
    result = CliRunner().invoke(app, [*command.split(), str(tmp_path / "new" / "file")])
    assert str(result.exception).endswith(f"cannot be written: there is no folder {tmp_path / 'new'}")
    assert not (tmp_path / "new").exists()
    assert Path("/dev/null").is_char_device()


def test_a_device_is_never_replaced(tmp_path: Path) -> None:
    """The superuser may rename over a device; a link to one in a store is replaced, as any damaged file."""
    null, link = Path("/dev/null"), tmp_path / "link"
    if not os.geteuid():  # a device of this test's own, in case it is replaced
        null = tmp_path / "null"
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with pytest.raises(UserError, match=rf"^{null}: is a device, not a file; name another path$"):
        files.write_bytes(null, b"x")
    (tmp_path / "real").write_bytes(b"")
    link.symlink_to(tmp_path / "real")
    write_file(link, "x")
    assert link.is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"
    link.unlink()
    link.symlink_to(null)
    files.write_bytes(link, b"x")
    assert link.read_bytes() == b"x"
    assert null.is_char_device()
