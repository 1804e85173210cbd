"""Reads one tar: the samples that can be trained on, and faults with their reasons.

A sample is the members that share a name up to its first dot: key.jpg (.jpeg, .png, .webp), key.txt, key.json. Its
captions are the list "captions" of key.json; without it the text of key.txt; without that the text "caption" of
key.json, which img2dataset writes. Other members are ignored.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import warnings
from dataclasses import dataclass, field
from typing import BinaryIO

from PIL import Image

from bench.data.photo import FORMATS, too_many_scans
from bench.data.shards.tar import Broken, Member, members
from bench.reading import JSON_BYTES, TEXT_BYTES, parsed

RULES = 3  #: increase it if the same tar gives other rows; parts of an older number are then scanned again
IMAGES = frozenset({"jpg", "jpeg", "png", "webp"})
MAX_PIXELS = 89_478_485  #: of an image; more is taken for a decompression bomb, as Pillow does
IMAGE_BYTES = 1 << 27  #: of an image file
NAME_BYTES = 4096  #: of a member's name; no longer path can be opened


@dataclass(frozen=True)
class Fault:
    """Something that the index leaves out, and why."""

    shard: str
    key: str
    offset: int  #: in the tar, in bytes
    reason: str  #: one of a few; faults are counted by it
    detail: str
    samples: int = 1  #: number of lost samples; for a broken tar an estimate


@dataclass(frozen=True)
class Row:
    """A sample that can be trained on."""

    key: str
    offset: int  #: of the image file in the tar, in bytes
    size: int
    captions: tuple[str, ...]
    digest: bytes  #: `digest` of the image file's bytes


@dataclass(frozen=True)
class Defect:
    """Why a sample or its caption cannot be used."""

    reason: str  #: as in `Fault`
    detail: str


@dataclass
class _Sample:
    offset: int
    image: tuple[str, int, int, bytes] | None = None  #: suffix, offset, size, digest
    text: str | None = None
    captions: tuple[str, ...] | None = None
    #: "caption" of the .json, or why it cannot be read; used only if neither `captions` nor `text` is set
    caption: str | Defect | None = None
    json: bool = False  #: whether a .json was seen, with captions or without
    others: list[str] = field(default_factory=list)  #: suffixes of members that are not used
    defect: Defect | None = None


def digest(data: bytes) -> bytes:
    """Return BLAKE2b of an image file's bytes, 16 bytes."""
    return hashlib.blake2b(data, digest_size=16).digest()


def row_hash(key: str, captions: tuple[str, ...], image: bytes) -> bytes:
    """Return BLAKE2b of a row, 16 bytes: its key, its image's digest and its captions, each after its length."""
    parts = (key.encode(), image, *(caption.encode() for caption in captions))
    return hashlib.blake2b(b"".join(len(p).to_bytes(8, "little") + p for p in parts), digest_size=16).digest()


def scan(file: BinaryIO, shard: str, prefix: str, full: bool) -> tuple[list[Row], list[Fault]]:
    """Return the rows and the faults of a tar, in its order; keys begin with `prefix`.

    If `full`, every image is decoded, otherwise only its header. A tar that is cut off or damaged gives the samples
    before the damage and one fault. Raises OSError if the file cannot be read.
    """
    scanner = _Scanner(file, shard, prefix, full)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd metadata, and about large images, which MAX_PIXELS limits
        try:
            for member in members(file, os.fstat(file.fileno()).st_size):
                scanner.add(member)
        except Broken as broken:
            scanner.faults.append(Fault(shard, "", 0, "broken tar", str(broken)))
    rows, faults = [], scanner.faults
    for key, sample in scanner.samples.items():
        row = _row(key, sample)
        if isinstance(row, Row):
            rows.append(row)
        else:
            faults.append(Fault(shard, key, sample.offset, row.reason, row.detail))
    return rows, faults


@dataclass(frozen=True)
class _Scanner:
    """Groups the members of one tar into samples."""

    file: BinaryIO
    shard: str
    prefix: str
    full: bool
    samples: dict[str, _Sample] = field(default_factory=dict)  #: by key
    faults: list[Fault] = field(default_factory=list)

    def add(self, member: Member) -> None:
        """Add one member to the sample that its name belongs to."""
        try:
            name = member.name.decode().removeprefix("./")
        except UnicodeDecodeError:
            fault = Fault(self.shard, repr(member.name), member.offset, "unsafe name", "member name is not UTF-8")
            self.faults.append(fault)
            return
        folder, slash, base = name.rpartition("/")
        stem, _, suffix = base.partition(".")
        suffix = suffix.lower()
        if not stem:
            return  # hidden files, as macOS' tar adds them
        if "\0" in name or len(member.name) > NAME_BYTES:
            detail = f"its name has a NUL character or more than {NAME_BYTES:,} bytes"
            self.faults.append(Fault(self.shard, ascii(name[:100]), member.offset, "unsafe name", detail))
            return
        key = self.prefix + folder + slash + stem
        sample = self.samples.setdefault(key, _Sample(member.offset))
        if name.startswith("/") or ".." in name.split("/"):
            sample.defect = Defect("unsafe name", f"member {name} leads out of its folder")
        elif member.kind == "file" and member.size > (most := _most(suffix)):
            sample.defect = Defect("too large", f"member {name} has {member.size:,} bytes, more than {most:,}")
        elif member.kind != "file":
            kind = "link" if member.kind == "link" else "special file"
            sample.defect = Defect("not a file", f"member {name} is a {kind}")
        elif suffix in IMAGES:
            self._add_image(sample, key, name, suffix, member)
        elif suffix == "txt" and sample.text is None:
            _take_text(sample, self._read(member))
        elif suffix == "json" and not sample.json:
            _take_json(sample, self._read(member))
        else:
            sample.others.append(suffix)

    def _add_image(self, sample: _Sample, key: str, name: str, suffix: str, member: Member) -> None:
        if sample.image is None:
            data = self._read(member)
            sample.image = (suffix, member.offset, member.size, digest(data))
            sample.defect = sample.defect or undecodable(data, self.full)
        elif sample.image[0] == suffix:
            detail = f"{name} again; the first one stands"
            self.faults.append(Fault(self.shard, key, member.offset, "duplicate key", detail))
        else:
            sample.defect = Defect("several images", f".{sample.image[0]} and .{suffix}")

    def _read(self, member: Member) -> bytes:
        self.file.seek(member.offset)
        return self.file.read(member.size)


def _most(suffix: str) -> int:
    """Return the bytes that a member of this kind may have; a kind that is not read may have any number."""
    if suffix in IMAGES:
        return IMAGE_BYTES
    return {"txt": TEXT_BYTES, "json": JSON_BYTES}.get(suffix, sys.maxsize)


def _take_text(sample: _Sample, data: bytes) -> None:
    try:
        sample.text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        sample.text = ""
        sample.defect = sample.defect or Defect("caption is not UTF-8", str(error))


def _take_json(sample: _Sample, data: bytes) -> None:
    sample.json = True
    if b'"captions"' not in data:
        sample.caption = _caption(data)
        return
    try:
        texts = parsed(data)["captions"]
    except (ValueError, KeyError, TypeError) as error:
        sample.defect = sample.defect or Defect("json cannot be read", str(error))
        return
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        sample.defect = sample.defect or Defect("json cannot be read", '"captions" should be a list of texts')
        return
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:  # JSON can escape a lone surrogate, which has no UTF-8
        sample.defect = sample.defect or Defect("caption is not UTF-8", str(error))
        return
    sample.captions = tuple(text for text in (one.strip() for one in texts) if text)


def _caption(data: bytes) -> str | Defect | None:
    """Return the text "caption" of a .json, or why it cannot be read; None if it is missing or null."""
    if b'"caption"' not in data:
        return None
    try:
        content = parsed(data)
        text = content.get("caption") if isinstance(content, dict) else None
        if text is not None and not isinstance(text, str):
            return Defect("json cannot be read", '"caption" should be a text')
        (text or "").encode()
    except UnicodeEncodeError as error:  # a lone surrogate
        return Defect("caption is not UTF-8", str(error))
    except ValueError as error:
        return Defect("json cannot be read", str(error))
    return None if text is None else text.strip()


def _row(key: str, sample: _Sample) -> Row | Defect:
    """Return the sample as a row, or why it cannot be one."""
    if sample.defect is not None:
        return sample.defect
    if sample.image is None:
        members_seen = ", ".join(sample.others) or "captions only"
        return Defect("no image", f"has {members_seen}; images end in {', '.join(sorted(IMAGES))}")
    captions = sample.captions
    if captions is None:
        text = sample.caption if sample.text is None else sample.text
        if text is None:
            detail = 'neither a .txt, nor a .json with a list "captions" or a text "caption"'
            return Defect("no caption", detail)
        if not isinstance(text, str):
            return text
        captions = (text,)
    if not all(captions) or not captions:
        return Defect("empty caption", "the caption has no text")
    _, offset, size, image = sample.image
    return Row(key, offset, size, captions, image)


def undecodable(data: bytes, full: bool) -> Defect | None:
    """Return why training cannot read this image file; None if it can. If not `full`, only its header is read."""
    if not data:
        return Defect("undecodable image", "the file is empty")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                return Defect("too many pixels", f"{image.width} x {image.height}, more than {MAX_PIXELS}")
            if excess := too_many_scans(data, image):
                return Defect("too many scans", excess)
            if full:
                # A JPEG is read to its end at any scale; an eighth of the size saves most of the time.
                image.draft(None, (max(1, image.width // 8), max(1, image.height // 8)))
                image.load()
    except Image.DecompressionBombError as error:
        return Defect("too many pixels", str(error))
    except Exception as error:  # Pillow raises many kinds on damaged files; each is a fault of the file
        return Defect("undecodable image", f"{type(error).__name__}: {error}")
    return None
