"""Members of a tar, and damage of every kind."""

import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.tars import Broken, tar_members

names = st.text(st.sampled_from("ab./-é"), min_size=1, max_size=130).filter(lambda name: name.strip("/"))
files = st.lists(st.tuples(names, st.binary(max_size=1100)), max_size=5)
BLOCK = tarfile.BLOCKSIZE


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


def read(data: bytes) -> list[tarfile.TarInfo]:
    return list(tar_members(io.BytesIO(data), len(data)))


def header(name: bytes = b"x", size: bytes = b"00000000000\0", kind: bytes = b"0", mend: bool = True) -> bytes:
    """A header with any size field, its checksum right or not."""
    block = bytearray(BLOCK)
    block[:100] = name.ljust(100, b"\0")
    block[124:136], block[156:157] = size, kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % (sum(block) + (not mend))
    return bytes(block)


END = bytes(2 * BLOCK)


@settings(deadline=None, max_examples=60)
@given(files.filter(bool), st.data())
def test_a_changed_byte_of_a_header_is_found(entries, data):
    """A header without its checksum is told from the zeros of the end."""
    whole = bytearray(archive(entries, tarfile.GNU_FORMAT))
    starts = [member.offset_data - BLOCK for member in read(bytes(whole))]
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
    keep = data.draw(st.integers(0, last.offset_data + last.size - 1 if last.size else last.offset_data - 1))
    seen: list[tarfile.TarInfo] = []
    with pytest.raises(Broken):
        seen.extend(tar_members(io.BytesIO(whole[:keep]), keep))
    whole_members = [member for member in all_members if member.offset_data + member.size <= keep]
    assert [(m.name, m.offset_data) for m in seen] == [(m.name, m.offset_data) for m in whole_members]


def test_folders_are_left_out_and_their_long_names_end_with_them():
    folder = tarfile.TarInfo("f" * 120)
    folder.type = tarfile.DIRTYPE
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert [m.name for m in read(archive([folder, ("a", b"1")], form))] == ["a"]


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


@pytest.mark.parametrize("records", [b"0 a=b\n", b"9" * 5000 + b" a=b\n", b"20 hdrcharset=\xff\n"])
def test_broken_attributes_are_found(records):
    extra = header(size=b"%011o\0" % len(records), kind=b"x") + records + bytes(-len(records) % BLOCK)
    with pytest.raises(Broken, match="has no valid header at byte 0"):
        read(extra + header() + END)


def test_attributes_of_a_member_are_not_the_nexts():
    record = b"17 path=otherway\n"
    extra = header(size=b"%011o\0" % len(record), kind=b"x") + record.ljust(BLOCK, b"\0")
    assert [m.name for m in read(extra + header() + header(b"y") + END)] == ["otherway", "y"]


@pytest.mark.parametrize(
    "size",
    [
        b"\xff" * 12,  # -1 as GNU writes negative binary numbers
        b"\xff" * 10 + b"\xfe\x00",  # -512: back to this header, for ever
        b"-0000001000\0",
        b"\x81" + bytes(11),
        b"00000000009\0",
    ],
)
def test_no_size_leads_back(size):
    with pytest.raises(Broken, match="has no valid header at byte 0"):
        read(header(size=size) + END)


def test_a_size_of_attributes_leads_forward_too():
    record = b"13 size=-512\n"
    extra = header(size=b"%011o\0" % len(record), kind=b"x") + record.ljust(BLOCK, b"\0")
    with pytest.raises(Broken, match="has no valid header at byte 0"):
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
        list(tar_members(Hole(header(size=b"\x80" + (1 << 32).to_bytes(11, "big"), kind=kind)), 1 << 34))


def test_damage_says_where():
    with pytest.raises(Broken, match="ends without the end mark at byte 512"):
        read(header())
    with pytest.raises(Broken, match="is cut off inside a member at byte 0"):
        read(header(size=b"00000001000\0"))
    with pytest.raises(Broken, match="has no valid header at byte 0"):
        read(header(mend=False) + END)
