"""Members of a tar against `tarfile`, and damage of every kind."""

import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data.shards.tar import BLOCK, Broken, Member, members

names = st.text(st.sampled_from("ab./-é"), min_size=1, max_size=130).filter(lambda name: name.strip("/"))
files = st.lists(st.tuples(names, st.binary(max_size=1100)), max_size=5)
forms = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


def archive(entries, form=tarfile.PAX_FORMAT) -> bytes:
    """A tar of files (name, data), or of other members as TarInfo."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            tar.addfile(info, io.BytesIO(entry[1]))
    return buffer.getvalue()


def read(data: bytes) -> list[Member]:
    return list(members(io.BytesIO(data), len(data)))


def header(name: bytes = b"x", size: bytes = b"00000000000\0", kind: bytes = b"0", mend: bool = True) -> bytes:
    """A header with any size field, its checksum right or not."""
    block = bytearray(BLOCK)
    block[:100] = name.ljust(100, b"\0")
    block[124:136], block[156:157] = size, kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % (sum(block) + (not mend))
    return bytes(block)


END = bytes(2 * BLOCK)


@settings(deadline=None, max_examples=100)
@given(files, forms)
def test_names_and_data_are_those_of_tarfile(entries, form):
    try:
        data = archive(entries, form)
    except ValueError:
        return  # a name that does not fit ustar
    expected = []
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for info in tar:
            expected.append((info.name.rstrip("/"), info.offset_data, info.size))
    found = read(data)
    assert [(m.name.decode().rstrip("/"), m.offset, m.size) for m in found] == expected
    assert [data[m.offset : m.offset + m.size] for m in found] == [content for _, content in entries]
    assert {m.kind for m in found} <= {"file"}


@settings(deadline=None, max_examples=60)
@given(files.filter(bool), st.data())
def test_a_changed_byte_of_a_header_is_found(entries, data):
    """A header without its checksum is told from the zeros of the end."""
    whole = bytearray(archive(entries, tarfile.GNU_FORMAT))
    starts = [member.offset - BLOCK for member in read(bytes(whole))]
    at = data.draw(st.sampled_from(starts)) + data.draw(st.integers(0, 147))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Broken, match="has no valid header at byte"):
        read(bytes(whole))


@settings(deadline=None, max_examples=60)
@given(files.filter(bool), st.data())
def test_a_cut_tar_gives_what_lies_before_the_cut(entries, data):
    whole = archive(entries, tarfile.GNU_FORMAT)
    all_members = read(whole)
    last = all_members[-1]
    keep = data.draw(st.integers(0, last.offset + last.size - 1 if last.size else last.offset - 1))
    seen: list[Member] = []
    with pytest.raises(Broken):
        seen.extend(members(io.BytesIO(whole[:keep]), keep))
    assert seen == [member for member in all_members if member.offset + member.size <= keep]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (tarfile.SYMTYPE, "link"),
        (tarfile.LNKTYPE, "link"),
        (tarfile.FIFOTYPE, "special"),
        (tarfile.CHRTYPE, "special"),
        (tarfile.CONTTYPE, "file"),
        (tarfile.AREGTYPE, "file"),
    ],
)
def test_kinds_of_members(kind, expected):
    info = tarfile.TarInfo("odd")
    info.type, info.linkname = kind, "elsewhere"
    found = read(archive([("a", b"1"), info, ("b", b"2")], tarfile.GNU_FORMAT))
    assert [(m.name, m.kind) for m in found] == [(b"a", "file"), (b"odd", expected), (b"b", "file")]


def test_folders_are_left_out_and_their_long_names_end_with_them():
    folder = tarfile.TarInfo("f" * 120)
    folder.type = tarfile.DIRTYPE
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert [m.name for m in read(archive([folder, ("a", b"1")], form))] == [b"a"]


def test_sizes_may_be_binary_and_empty_and_of_pax():
    assert [m.size for m in read(header(size=b"\x80" + bytes(8) + (700).to_bytes(3, "big")) + bytes(1024) + END)] == [
        700
    ]
    assert [m.size for m in read(header(size=b" " * 12) + END)] == [0]
    info = tarfile.TarInfo("a")
    info.size, info.pax_headers = 5, {"size": "5", "comment": "é"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(b"12345"))
    assert [m.size for m in read(buffer.getvalue())] == [5]


@pytest.mark.parametrize("records", [b"x", b"0 a=b\n", b"-3 a=b\n", b"a=b\n"])
def test_broken_attributes_are_found(records):
    data = header(size=b"%011o\0" % len(records), kind=b"x") + records.ljust(BLOCK, b"\0") + header() + END
    with pytest.raises(Broken, match=f"has invalid attributes at byte {BLOCK}"):
        read(data)


def test_attributes_of_a_member_are_not_the_nexts():
    record = b"17 path=otherway\n"
    extra = header(size=b"%011o\0" % len(record), kind=b"x") + record.ljust(BLOCK, b"\0")
    assert [m.name for m in read(extra + header() + header(b"y") + END)] == [b"otherway", b"y"]
    shared = header(size=b"%011o\0" % len(record), kind=b"g") + record.ljust(BLOCK, b"\0")
    assert [m.name for m in read(shared + header() + END)] == [b"x"]


def test_a_sparse_file_is_no_file():
    record = b"22 GNU.sparse.major=1\n"
    extra = header(size=b"%011o\0" % len(record), kind=b"x") + record.ljust(BLOCK, b"\0")
    assert [m.kind for m in read(extra + header() + END)] == ["special"]


@pytest.mark.parametrize(
    "size",
    [
        b"\xff" * 12,  # -1 as GNU writes negative binary numbers
        b"\xff" * 10 + b"\xfe\x00",  # -512: back to this header, for ever
        b"-0000001000\0",
        b"+0000001000\0",
        b"0000000_000\0",
        b"\x81" + bytes(11),
        b"00000000009\0",
    ],
)
def test_no_size_leads_back(size):
    with pytest.raises(Broken, match="has no valid header at byte 0"):
        read(header(size=size) + END)


def test_a_size_of_attributes_leads_forward_too():
    for record in (b"13 size=-512\n", b"12 size=1_0\n", b"11 size= 1\n"):
        extra = header(size=b"%011o\0" % len(record), kind=b"x") + record.ljust(BLOCK, b"\0")
        with pytest.raises(Broken, match="has no valid header at byte 1024"):
            read(extra + header() + END)


@pytest.mark.parametrize("kind", [b"L", b"x"])
def test_a_header_that_claims_a_long_name_is_not_read(kind):
    """The file is as large as the header says, and mostly a hole: reading it would fill the memory."""

    class Hole(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size is not None
            assert size <= BLOCK
            return super().read(size)

    with pytest.raises(Broken, match="has a name or attributes of 4,294,967,296 bytes at byte 0"):
        list(members(Hole(header(size=b"\x80" + (1 << 32).to_bytes(11, "big"), kind=kind)), 1 << 34))


def test_damage_says_where():
    with pytest.raises(Broken, match="ends without the end mark at byte 512"):
        read(header())
    with pytest.raises(Broken, match="is cut off inside a member at byte 0"):
        read(header(size=b"00000001000\0"))
    with pytest.raises(Broken, match="has no valid header at byte 0"):
        read(header(mend=False) + END)
