"""Damaged and forged data: each example changes one file and reads everything again.

The result is data (its faults counted) or a UserError; never another exception, a hang, or half a gigabyte of memory.
BENCH_HOSTILE_EXAMPLES says how many examples each set gets (default 12, a few seconds); by hand, thousands.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import random
import resource
import shutil
import stat
import struct
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import bench.catalogue.evaluation_sets as catalogue
from bench.data import evaluation, shards
from bench.data.noise.imported import import_ncr
from bench.data.pairs import MemoryPairs
from bench.data.shards import load_shard_pairs as training
from bench.data.shards.indexing import build_index
from bench.data.shards.sources import expand_sources
from bench.errors import UserError
from bench.planning import requirements
from bench.suite.settings import DataSettings
from bench.suite.suite import Suite, load_suite

from .alarm import Hang, ended_within

EXAMPLES = int(os.environ.get("BENCH_HOSTILE_EXAMPLES", "12"))
SECONDS = 600  #: after which an example hangs, on a busy machine too
CPU_SECONDS = 10.0  #: of one example; a refusal alone takes less than 2
MEGABYTES = 400  #: by which the process may grow over all examples of a set
NEW_LINE = "a\nb"  #: a name; whoever prints it escapes it
LONG_AGO = 10**18  #: the time of every original file, in ns


# What a world consists of: files by path, and how they are read.


def picture(seed: int, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (9, 8, 3), dtype=np.uint8)).save(file, form)
    return file.getvalue()


def tar_of(members: list[tuple[str, bytes]], form: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def arrow(table: pa.Table) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    return file.getvalue()


def samples(first: int, count: int = 3) -> list[tuple[str, bytes]]:
    """Members of a shard of training pairs, with each source of captions."""
    members = []
    for number in range(first, first + count):
        texts = [("txt", f"caption {number}"), ("json", json.dumps({"captions": [f"one {number}", "two"]}))]
        texts.append(("json", json.dumps({"caption": f"single {number}", "url": "https://example.org"})))
        suffix, text = texts[number % 3]
        members += [(f"{number:04d}.png", picture(number)), (f"{number:04d}.{suffix}", text.encode())]
    return members


def labelled(first: int, count: int = 3) -> list[tuple[str, bytes]]:
    """Members of a shard of an evaluation set with classes and metadata."""
    parts: list[tuple[str, bytes]] = []
    for number in range(first, first + count):
        data = {"cls": b"%d" % (number % 2), "npy": npy(np.array([number % 3, 7, 1])), "png": picture(number)}
        parts += [(f"s{number:07d}.{suffix}", content) for suffix, content in data.items()]
    return parts


def captioned(count: int = 3) -> list[tuple[str, bytes]]:
    texts = [("txt", b"a cat\nan animal"), ("json", b'["a dog", "another"]'), ("json", b'{"captions": ["a tree"]}')]
    parts: list[tuple[str, bytes]] = []
    for number, (suffix, text) in zip(range(count), texts, strict=True):
        parts += [(f"s{number:07d}.jpg", picture(number, "JPEG")), (f"s{number:07d}.{suffix}", text)]
    return parts


def shard_files() -> dict[str, bytes]:
    return {f"toy/{number}.tar": tar_of(samples(3 * number)) for number in range(2)}


def class_files() -> dict[str, bytes]:
    home = "evaluation/wds_dollar_street"
    return {
        f"{home}/test/0.tar": tar_of(labelled(0)),
        f"{home}/test/1.tar": tar_of(labelled(3), tarfile.PAX_FORMAT),
        f"{home}/test/nshards.txt": b"2\n",
        f"{home}/classnames.txt": b"cat\nsnow fox\n",
        f"{home}/zeroshot_classification_templates.txt": b"a photo of a {c}.\nthe {c}\n",
    }


def caption_files() -> dict[str, bytes]:
    return {
        "evaluation/wds_flickr30k/test/0.tar": tar_of(captioned()),
        "evaluation/wds_flickr30k/test/nshards.txt": b"1",
    }


def own_files() -> dict[str, bytes]:
    home = "evaluation/wds_mine"
    return {f"{home}/test/0.tar": tar_of(labelled(0)), f"{home}/classnames.txt": b"cat\ntree\n"}


def puzzle_files() -> dict[str, bytes]:
    images = [[{"bytes": picture(n), "path": None} for n in row] for row in ((0, 1, 2), (2, 3))]
    names = {"candidates": [["fox", "wolf", "tree"], ["tree", "moon"]], "associations": [["wolf"], ["moon"]]}
    table = arrow(pa.table({**names, "candidate_images": images, "cue": ["animal", "night"]}))
    return {"evaluation/hf_cache/nlphuji___winogavil/x-test.arrow": table}


def six() -> MemoryPairs:
    keys, texts = tuple(f"k{n}" for n in range(6)), tuple((f"caption {n}",) for n in range(6))
    return MemoryPairs("six/pairs", "", keys, texts, {}, {}, np.zeros((6, 2, 2, 3), np.uint8))


def noise_files() -> dict[str, bytes]:
    return {"noise.npy": npy(np.array([0, 2, 1, 3, 5, 4]))}


SUITE = """\
name: scored
data: {name: toy, size: 16}
noise: {kind: imported, rates: [0.6666], files: ["DATA/noise.npy"]}
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 4, augment: none}
evaluate:
  tasks: [zero_shot, retrieval, noise_detection]
  datasets: {zero_shot: [dollar_street, mine], retrieval: [flickr30k]}
methods: [clip]
"""


def read_shards(home: Path) -> object:
    folder = home / "toy"
    settings = DataSettings(name="toy", size=16)
    rows = None
    if shards.missing_shard_data(settings) == []:
        pairs = training(settings)
        rows = list(zip(pairs.keys, [pairs.captions(row) for row in range(len(pairs))], strict=True))
        attempt(lambda: pairs.images(np.arange(len(pairs))))
    report = build_index(expand_sources([str(folder)]), folder / "index.parquet", workers=1, limit=1.0)
    settings = settings.model_copy(update={"block": 3})  # as another process, which has not read the index before
    again = training(settings)
    assert len(again) == report.about.rows > 0
    attempt(lambda: again.images(np.arange(len(again))))
    return rows


def reader(name: str) -> Callable[[Path], object]:
    def read(_home: Path) -> object:
        attempt(lambda: evaluation.evaluation_set_counts(name))
        attempt(lambda: evaluation.missing_evaluation_set(name))
        evaluation.check_evaluation_set(name)
        pairs = evaluation.load_evaluation_set(name, 8)
        rows = [(key, pairs.captions(row)) for row, key in enumerate(pairs.keys)]
        labels = {group: values.tolist() for group, values in pairs.labels.items()}
        assert pairs.content_hash
        attempt(lambda: pairs.images(np.arange(len(pairs))))
        return rows, labels, pairs.puzzles

    return read


def read_noise(home: Path) -> object:
    made = import_ncr(home / "noise.npy", six(), 0.6666)
    return made.rows.tolist(), made.donors.tolist()


def read_suite(home: Path) -> object:
    (home / "scored.yaml").write_text(SUITE.replace("DATA", str(home)))
    suite: Suite = load_suite(home / "scored.yaml", check_methods=False)
    requirements.missing_inputs(suite)
    return None


def every_file() -> dict[str, bytes]:
    made = (shard_files, class_files, caption_files, own_files, noise_files)
    return {path: content for files in made for path, content in files().items()}


#: name -> files of the world, and how it is read
WORLDS: dict[str, tuple[Callable[[], dict[str, bytes]], Callable[[Path], object]]] = {
    "shards": (shard_files, read_shards),
    "classes": (class_files, reader("dollar_street")),
    "captions": (caption_files, reader("flickr30k")),
    "own": (own_files, reader("mine")),
    "puzzles": (puzzle_files, reader("winogavil")),
    "noise": (noise_files, read_noise),
    "suite": (every_file, read_suite),
}


# How a file changes.

Random = random.Random
Change = Callable[[Path, bytes, Random], None]


def rewritten(change: Callable[[bytes, Random], bytes]) -> Change:
    """Write other bytes; half of the time as if nothing had been written, so that a stored index seems to fit."""

    def write(path: Path, data: bytes, rng: Random) -> None:
        path.write_bytes(change(data, rng))
        if rng.random() < 0.5:
            os.utime(path, ns=(LONG_AGO, LONG_AGO))

    write.__name__ = change.__name__
    return write


def cut(data: bytes, rng: Random) -> bytes:
    return data[: rng.choice([rng.randrange(len(data) + 1), len(data) // 512 * 512 // 2, max(0, len(data) - 1)])]


def flipped(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice([1, 1, 1, 8, 200])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def longer(data: bytes, rng: Random) -> bytes:
    return data + rng.choice([b"\0", b"extra", data, rng.randbytes(2000)])


def inserted(data: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.choice([b"\n", b"\0", b"\xff", b"9" * 30, rng.randbytes(512)]) + data[place:]


NUMBERS = [b"-1", b"1.5", b"nan", b"999999999999", b"1e300", b"9" * 5000, b"1_0", "²".encode(), b"0x10", b" ", b"1\0"]


def other_number(data: bytes, rng: Random) -> bytes:
    for digit in rng.sample(range(10), 10):
        if (old := b"%d" % digit) in data:
            return data.replace(old, rng.choice(NUMBERS), 1)
    return rng.choice(NUMBERS)


def header_only(shape: tuple[object, ...], kind: object = "<i8", version: tuple[int, int] = (1, 0)) -> bytes:
    """A .npy file that claims a shape and holds 8 bytes."""
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-len(text) % 64) + b"\n"
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + size + text + bytes(8)


def zipped(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, array)
    return file.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""
    whole = bytearray(picture(0))
    whole[16:24] = struct.pack(">II", width, height)
    whole[29:33] = struct.pack(">I", __import__("zlib").crc32(bytes(whole[12:29])))
    return bytes(whole)


FOREIGN: list[bytes] = [
    b"",
    b"text\n",
    "naïve\ntree\n".encode("latin-1"),
    b"cat\n\n\ntree\n",
    b"a photo\nanother\n",
    b"[" * 200_000,
    b'{"captions": ' * 50_000,
    b'{"captions": [1, null, {}]}',
    b'{"captions": ["\\ud83d"]}',
    b'{"caption": ["a"]}',
    b"[[]]",
    b"7",
    b"null",
    b'"a single text"',
    picture(0),
    picture(0, "GIF"),
    bomb(30_000, 30_000),
    bomb(9_000, 9_900),
    bomb(2**31 - 1, 2**31 - 1),
    npy(np.arange(6)),
    npy(np.array([0, 2, 1, 3, 5, 4.5])),
    npy(np.array([0.0, np.nan, np.inf, 1e300, -1, 2])),
    npy(np.array([0, 2**63 + 5, 1, 3, 5, 4], np.uint64)),
    npy(np.zeros(6, [("a", "<i8"), ("b", "<f4")])),
    npy(np.array(["a", "b"])),
    npy(np.zeros((6, 0))),
    npy(np.array(5)),
    header_only((10**12,)),
    header_only((2**32, 2**32)),
    header_only((-1,)),
    header_only((10**4000, 3)),
    header_only((6,), "|O"),
    header_only((6,), [("a", "<i8")], (2, 0)),
    header_only((), "|V1000000000"),
    b"\x93NUMPY\x03\x00" + b"\xff" * 4,
    b"\x93NUMPY\x01\x00" + struct.pack("<H", 60_000) + b"(" * 60_000,
    zipped(np.arange(6)),
    b"\x80\x04cos\nsystem\n(S'touch /tmp/pwned'\ntR.",
    b"PAR1",
    b"PAR1" + b"\xff" * 8 + b"PAR1",
    b"ARROW1\0\0" + b"\xff" * 40,
    b"\xff\xff\xff\xff" * 20,
    bytes(10_240),
    tar_of([]),
]


def foreign(_data: bytes, rng: Random) -> bytes:
    return rng.choice(FOREIGN)


def forged_header(data: bytes, rng: Random) -> bytes:
    """A tar with another field in one header, and the checksum that fits it."""
    starts = [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"]
    if not starts:
        return flipped(data, rng)
    at, changed = rng.choice(starts), bytearray(data)
    sizes = [
        b"\xff" * 12,
        b"\xff" * 11 + b"\x00",
        b"\x80" + b"\xff" * 11,
        b"-0000001000\0",
        b"77777777777\0",
        b"+1_0\0",
    ]
    fields = [(124, size.ljust(12, b"\0")) for size in [*sizes, b"\x81" + bytes(11), b"         9 8"]]
    fields += [(156, kind) for kind in (b"L", b"K", b"x", b"g", b"1", b"2", b"3", b"5", b"6", b"S", b"\xff")]
    fields += [
        (0, name.ljust(100, b"\0")) for name in (b"../up.png", b"/etc/a.png", b"\xff.png", b"a/b/../c.cls", b"", b".")
    ]
    place, value = rng.choice(fields)
    changed[at + place : at + place + len(value)] = value
    changed[at + 148 : at + 156] = b" " * 8
    changed[at + 148 : at + 156] = b"%06o\0 " % sum(changed[at : at + 512])
    return bytes(changed)


def forged_member(data: bytes, rng: Random) -> bytes:
    """A tar with one member's bytes or name changed, or a member more, less or twice."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            members = [(info.name, tar.extractfile(info).read()) for info in tar if info.isfile()]  # type: ignore[union-attr]
    except tarfile.TarError:
        return flipped(data, rng)
    at = rng.randrange(len(members))
    name, content = members[at]
    changes = [cut, flipped, longer, inserted, other_number, foreign, foreign, foreign]
    names = [
        "../x.png",
        "/x.cls",
        "a\0b.png",
        "x" * 5000 + ".png",
        "a\nb.txt",
        ".",
        "s.cls.cls",
        "\x1b[31m.png",
        name.upper(),
    ]
    match rng.randrange(6):
        case 0:
            members[at] = (rng.choice(names), content)
        case 1:
            del members[at]
        case 2:
            members.insert(at, members[rng.randrange(len(members))])
        case _:
            members[at] = (name, rng.choice(changes)(content, rng))
    return tar_of(members, tarfile.PAX_FORMAT)


def other_table(table: pa.Table, rng: Random) -> pa.Table:
    """A table with a column less, of another type, with gaps, in another order or with other numbers."""
    at = rng.randrange(table.num_columns)
    name, column, n = table.column_names[at], table.column(at), len(table)
    values: list[object] = [None] * n, [-1] * n, [10**15] * n, ["text"] * n, [[None]] * n, [[]] * n, [b"x"] * n  # type: ignore[assignment]
    match rng.randrange(6):
        case 0:
            return table.drop_columns([name])
        case 1:
            return table.take(pa.array(rng.sample(range(n), n)))
        case 2:
            return table.slice(0, rng.randrange(n))
        case 3:
            metadata = {
                key: rng.choice([other_number, cut, foreign])(value, rng)
                for key, value in (table.schema.metadata or {}).items()
            }
            return table.replace_schema_metadata(metadata)
        case 4:
            new = pa.array(rng.choice(values))  # type: ignore[arg-type]
            return table.set_column(at, name, new)
        case _:
            lacking = pa.array([None, *column.to_pylist()[1:]], column.type)
            return table.set_column(at, name, lacking)


def forged_table(data: bytes, rng: Random) -> bytes:
    """An Arrow stream that is sound as a file, with another table in it."""
    return arrow(other_table(pa.ipc.open_stream(data).read_all(), rng))


def missing_file(path: Path, _data: bytes, _rng: Random) -> None:
    path.unlink()


def extra_file(path: Path, data: bytes, rng: Random) -> None:
    name = rng.choice([path.stem + "9" + path.suffix, "x" * 240 + path.suffix, "extra", NEW_LINE + path.suffix])
    change = rng.choice([foreign, flipped])
    (path.parent / name).write_bytes(change(data, rng))


def linked(path: Path, _data: bytes, rng: Random) -> None:
    path.unlink()
    path.symlink_to(rng.choice([path.name, "gone", "/etc/passwd", "..", "/dev/null", "/dev/zero"]))


def pipe(path: Path, _data: bytes, _rng: Random) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path, _data: bytes, _rng: Random) -> None:
    path.unlink()
    path.mkdir()


def closed(path: Path, _data: bytes, rng: Random) -> None:
    rng.choice([path, path, path.parent]).chmod(0)


def sparse(path: Path, _data: bytes, rng: Random) -> None:
    os.truncate(path, rng.choice([1 << 20, 1 << 33, 1 << 40]))


ANY: tuple[Change, ...] = (
    *map(rewritten, (cut, cut, flipped, flipped, flipped, longer, inserted, foreign, foreign)),
    *(missing_file, extra_file, linked, pipe, folder, closed, sparse),
)
FORMS: dict[str, tuple[Change, ...]] = {
    ".tar": tuple(map(rewritten, (forged_header, forged_header, forged_member, forged_member, forged_member))),
    ".arrow": tuple(map(rewritten, (forged_table, forged_table, forged_table, flipped))),
    ".txt": (rewritten(other_number),),
    ".csv": (rewritten(other_number),),
}


# Running an example.


@contextmanager
def as_a_plain_user() -> Iterator[None]:
    """Let modes of files bind root, too, by putting away its right to override them (capabilities 1 and 2 of Linux)."""
    if os.geteuid():
        yield
        return
    libc, header, data = (
        ctypes.CDLL(None, use_errno=True),
        struct.pack("Ii", 0x20080522, 0),
        ctypes.create_string_buffer(24),
    )
    assert libc.capget(header, data) == 0
    rights = data.raw
    fields = list(struct.unpack("6I", rights))
    fields[0] &= ~0b110
    assert libc.capset(header, struct.pack("6I", *fields)) == 0
    try:
        yield
    finally:
        assert libc.capset(header, rights) == 0


def attempt(read: Callable[[], object]) -> object:
    """Read something that may be refused; the refusal is one line."""
    try:
        return read()
    except UserError as error:
        refusal = error
    lines = str(refusal).replace(NEW_LINE, "").splitlines()
    assert str(refusal).strip(), "an empty refusal"
    listed = ".parquet: not written: " in lines[0] or "the same command continues from there" in lines[-1]
    assert len(lines) == 1 or listed, f"a refusal of several lines: {lines}"
    return refusal


@dataclass
class World:
    """A folder of data that can be put back to its first state."""

    home: Path
    read: Callable[[Path], object]
    files: dict[Path, bytes] = field(default_factory=dict)

    def restore(self) -> None:
        for folder, _, _ in os.walk(self.home):
            os.chmod(folder, 0o755)
        for item in (*self.home.rglob("*"),):
            if item.is_dir() and not item.is_symlink():
                item.chmod(0o755)
        shutil.rmtree(self.home)
        for path, content in self.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for path in sorted(self.home.rglob("*"), reverse=True):
            os.utime(path, ns=(LONG_AGO, LONG_AGO))
        for cached in (evaluation._load, shards._load, catalogue._own):
            cached.cache_clear()

    def keep(self) -> None:
        """Take what was made on reading, such as a kept index, into the first state."""
        self.files |= {path: path.read_bytes() for path in self.home.rglob("*") if stat.S_ISREG(path.lstat().st_mode)}

    def example(self, number: int) -> str:
        """Change one file and read; return what was changed. Raises what is no UserError."""
        rng = Random(number)
        path = rng.choice(sorted(path for path in self.files if path.suffix != ".yaml"))
        choices = (*ANY, *FORMS.get(path.suffix, ()) * 4)
        change = rng.choice(choices)
        change(path, self.files[path], rng)
        return f"{path.relative_to(self.home)}, {change.__name__}"


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    files, read = WORLDS[request.param]
    home = tmp_path / "data"
    monkeypatch.setenv("BENCH_DATA", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = World(home, read, {home / name: content for name, content in files().items()})
    home.mkdir()
    made.restore()
    if request.param in ("suite", "shards"):
        build_index(expand_sources([str(home / "toy")]), home / "toy" / "index.parquet", workers=1)
    read(home)
    made.keep()
    made.restore()
    return made


@pytest.mark.promise("damaged or forged data is read, counted as a fault or refused, in bounded time and memory")
@pytest.mark.filterwarnings("ignore")  # Pillow warns about odd metadata where the project does not
@pytest.mark.parametrize("world", WORLDS, indirect=True)
def test_changed_data_is_read_or_refused(world: World) -> None:
    expected = world.read(world.home)
    failures, refused, largest = [], 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slowest = 0.0
    for number in range(EXAMPLES):
        world.restore()
        change, began = world.example(number), time.process_time()
        try:
            with ended_within(SECONDS), as_a_plain_user():
                result = attempt(lambda: world.read(world.home))
        except (Exception, Hang) as error:
            failures.append(f"example {number}: {change}: {type(error).__name__}: {error}")
            continue
        refused += isinstance(result, UserError)
        seconds = time.process_time() - began
        slowest = max(slowest, seconds)
        if seconds > CPU_SECONDS:
            failures.append(f"example {number}: {change}: {seconds:.1f} s of a processor")
        kept = "evaluation/index" in change  # an index that lies is made again
        damaged = kept or ("index" in change and "forged" not in change and "extra" not in change)
        if damaged and not isinstance(result, UserError) and result not in (None, expected):
            failures.append(f"example {number}: {change}: a damaged index was believed")
    world.restore()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - largest) / 1024
    print(f"{EXAMPLES} examples, {refused} refused, slowest {slowest:.2f} s, {grown:.0f} MB more")
    assert failures == []
    assert grown < MEGABYTES
