"""Reads one tar: the samples that can be trained on, and faults with their reasons.

A sample is the members that share a name up to its first dot: key.jpg (.jpeg, .png, .webp), key.txt, key.json. Its
captions are those that `sample_captions` finds. Other members are ignored.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from dataclasses import dataclass, field
from tarfile import TarInfo
from typing import Any, BinaryIO

from PIL import Image

from bench.data.photo import FORMATS, too_many_scans
from bench.reading import JSON_BYTES, TEXT_BYTES, parse_json
from bench.tars import Broken, tar_members

RULES_VERSION = 4  #: increase it if the same tar gives other rows; parts of an older number are then scanned again
IMAGES = frozenset({"jpg", "jpeg", "png", "webp"})
MAX_PIXELS = 89_478_485  #: of an image; more is taken for a decompression bomb, as Pillow does
MAX_IMAGE_BYTES = 1 << 27  #: of an image file
MAX_NAME_BYTES = 4096  #: of a member's name; no longer path can be opened


@dataclass(frozen=True)
class ScanFault:
    """Something that the index leaves out, and why."""

    shard: str
    key: str
    offset: int  #: in the tar, in bytes
    reason: str  #: one of a few; faults are counted by it
    detail: str
    samples: int = 1  #: number of lost samples; for a broken tar an estimate


@dataclass(frozen=True)
class ScannedRow:
    """A sample that can be trained on."""

    key: str
    offset: int  #: of the image file in the tar, in bytes
    size: int
    captions: tuple[str, ...]
    digest: bytes  #: `image_digest` of the image file's bytes


class Unusable(Exception):
    """A sample, or a file of it, cannot be used: a reason as in `ScanFault`, and a detail."""


@dataclass
class _OpenSample:
    offset: int
    image: tuple[str, int, int, bytes] | None = None  #: suffix, offset, size, digest
    texts: dict[str, bytes] = field(default_factory=dict)  #: the first "txt" and the first "json"
    others: list[str] = field(default_factory=list)  #: suffixes of members that are not used
    unusable: Unusable | None = None


def image_digest(data: bytes) -> bytes:
    """Return BLAKE2b of an image file's bytes, 16 bytes."""
    return hashlib.blake2b(data, digest_size=16).digest()


def row_hash(key: str, captions: tuple[str, ...], image: bytes) -> bytes:
    """Return BLAKE2b of a row, 16 bytes: its key, its image's digest and its captions, each after its length."""
    parts = (key.encode(), image, *(caption.encode() for caption in captions))
    return hashlib.blake2b(b"".join(len(p).to_bytes(8, "little") + p for p in parts), digest_size=16).digest()


def scan_tar(file: BinaryIO, shard: str, prefix: str) -> tuple[list[ScannedRow], list[ScanFault]]:
    """Return the rows and the faults of a tar, in its order; keys begin with `prefix`. Every image is decoded.

    A tar that is cut off or damaged gives the samples before the damage and one fault. Raises OSError if the file
    cannot be read.
    """
    scanner = _Scanner(file, shard, prefix)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd metadata, and about large images, which MAX_PIXELS limits
        try:
            for member in tar_members(file, os.fstat(file.fileno()).st_size):
                scanner.add(member)
        except Broken as broken:
            scanner.faults.append(ScanFault(shard, "", 0, "broken tar", str(broken)))
    rows, faults = [], scanner.faults
    for key, sample in scanner.samples.items():
        try:
            rows.append(_row(key, sample))
        except Unusable as error:
            faults.append(ScanFault(shard, key, sample.offset, *error.args))
    return rows, faults


@dataclass(frozen=True)
class _Scanner:
    """Groups the members of one tar into samples."""

    file: BinaryIO
    shard: str
    prefix: str
    samples: dict[str, _OpenSample] = field(default_factory=dict)  #: by key
    faults: list[ScanFault] = field(default_factory=list)

    def add(self, member: TarInfo) -> None:
        """Add one member to the sample that its name belongs to."""
        name, written = member.name.removeprefix("./"), member.name.encode(errors="surrogateescape")
        try:
            written.decode()
        except UnicodeDecodeError:
            fault = ScanFault(self.shard, repr(written), member.offset_data, "unsafe name", "member name is not UTF-8")
            self.faults.append(fault)
            return
        folder, slash, base = name.rpartition("/")
        stem, _, suffix = base.partition(".")
        if not stem:
            return  # hidden files, as macOS' tar adds them
        if "\0" in name or len(written) > MAX_NAME_BYTES:
            detail = f"its name has a NUL character or more than {MAX_NAME_BYTES:,} bytes"
            self.faults.append(ScanFault(self.shard, ascii(name[:100]), member.offset_data, "unsafe name", detail))
            return
        key = self.prefix + folder + slash + stem
        sample = self.samples.setdefault(key, _OpenSample(member.offset_data))
        try:
            self._add(sample, key, name, suffix.lower(), member)
        except Unusable as error:
            sample.unusable = sample.unusable or error

    def _add(self, sample: _OpenSample, key: str, name: str, suffix: str, member: TarInfo) -> None:
        if name.startswith("/") or ".." in name.split("/"):
            raise Unusable("unsafe name", f"member {name} lies outside its folder")
        if not member.isreg() or member.issparse():
            kind = "link" if member.issym() or member.islnk() else "special file"
            raise Unusable("not a file", f"member {name} is a {kind}")
        most = MAX_IMAGE_BYTES if suffix in IMAGES else {"txt": TEXT_BYTES, "json": JSON_BYTES}.get(suffix)
        if most is None or suffix in sample.texts:
            sample.others.append(suffix)
            return
        if member.size > most:
            raise Unusable("too large", f"member {name} has {member.size:,} bytes, more than {most:,}")
        if suffix in IMAGES and sample.image is not None:
            if sample.image[0] != suffix:
                raise Unusable("several images", f".{sample.image[0]} and .{suffix}")
            detail = f"{name} again; the first one is kept"
            self.faults.append(ScanFault(self.shard, key, member.offset_data, "duplicate key", detail))
            return
        self.file.seek(member.offset_data)
        data = self.file.read(member.size)
        if suffix in IMAGES:
            sample.image = (suffix, member.offset_data, member.size, image_digest(data))
            refuse_undecodable_image(data)
        else:
            sample.texts[suffix] = data


def _row(key: str, sample: _OpenSample) -> ScannedRow:
    """Return the sample as a row. Raises Unusable if it cannot be one."""
    if sample.unusable is not None:
        raise sample.unusable
    if sample.image is None:
        members_seen = ", ".join(sample.others) or "captions only"
        raise Unusable("no image", f"has {members_seen}; images end in {', '.join(sorted(IMAGES))}")
    captions = sample_captions(sample.texts.get("txt"), sample.texts.get("json", b""))
    _, offset, size, image = sample.image
    return ScannedRow(key, offset, size, captions, image)


def sample_captions(txt: bytes | None, json: bytes) -> tuple[str, ...]:
    """Return the captions of a .txt and a .json, without white space around them. Raises Unusable if there are none.

    They are the list that the .json has as "captions". Without it they are the lines of the .txt, as clip-benchmark
    writes them; but beside a "caption" of the .json, which img2dataset writes, the whole text is one caption. Without
    a .txt they are this "caption", or the .json itself if it is a list.
    """
    try:
        texts = _listed(json) if json and (txt is None or b'"captions"' in json) else None
        if texts is None and txt is not None:
            text = txt.decode("utf-8-sig")
            texts = [text] if b'"caption"' in json else text.split("\n")
        "".join(texts or ()).encode()  # JSON can escape a lone surrogate, which has no UTF-8
    except UnicodeError as error:
        raise Unusable("caption is not UTF-8", str(error)) from error
    if texts is None:
        raise Unusable("no caption", 'neither a .txt, nor a .json with a list "captions" or a text "caption"')
    if captions := tuple(filter(None, map(str.strip, texts))):
        return captions
    raise Unusable("empty caption", "the caption has no text")


def _listed(json: bytes) -> list[str] | None:
    """Return the captions of a .json; None if it has none. Raises Unusable if it is malformed."""
    try:
        content = parse_json(json)
    except ValueError as error:
        raise Unusable("json cannot be read", str(error)) from error
    texts: Any = content if isinstance(content, list) else None
    if isinstance(content, dict):
        texts = content.get("captions")
        if "captions" not in content and (one := content.get("caption")) is not None:
            if not isinstance(one, str):
                raise Unusable("json cannot be read", '"caption" should be a text')
            texts = [one]
    if texts is not None and not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
        raise Unusable("json cannot be read", '"captions" should be a list of texts')
    return texts


def refuse_undecodable_image(data: bytes) -> None:
    """Raise Unusable if training cannot read this image file."""
    if not data:
        raise Unusable("undecodable image", "the file is empty")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Unusable("too many pixels", f"{image.width} x {image.height}, more than {MAX_PIXELS}")
            if excess := too_many_scans(data, image):
                raise Unusable("too many scans", excess)
            # A JPEG is read to its end at any scale; an eighth of the size saves most of the time.
            image.draft(None, (max(1, image.width // 8), max(1, image.height // 8)))
            image.load()
    except Unusable:
        raise
    except Image.DecompressionBombError as error:
        raise Unusable("too many pixels", str(error)) from error
    except Exception as error:  # Pillow raises many kinds on damaged files; each is a fault of the file
        raise Unusable("undecodable image", f"{type(error).__name__}: {error}") from error
