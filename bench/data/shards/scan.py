"""What one tar holds: samples that can be trained on, and faults with their reasons.

A sample is the members that share a name up to its first dot: key.jpg (.jpeg, .png, .webp), key.txt, key.json. Its
captions are the list "captions" of key.json; without it the text of key.txt; without that the text "caption" of
key.json, which img2dataset writes. Whatever else is there is passed over.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from dataclasses import dataclass, field
from typing import BinaryIO

from PIL import Image

from bench.data.photo import FORMATS
from bench.data.shards.tar import Broken, Member, members

RULES = 2  #: raised whenever the same tar gives other rows; parts that older rules made are scanned again
IMAGES = frozenset({"jpg", "jpeg", "png", "webp"})
MAX_PIXELS = 89_478_485  #: of an image; more is taken for a decompression bomb, as Pillow does


@dataclass(frozen=True)
class Fault:
    """Something the index leaves out, and why."""

    shard: str
    key: str
    offset: int
    reason: str  #: one of a few, to count by
    detail: str
    samples: int = 1  #: that are lost by it; of a broken tar an estimate


@dataclass(frozen=True)
class Row:
    """A sample that can be trained on."""

    key: str
    offset: int  #: of the image file in the tar, in bytes
    size: int
    captions: tuple[str, ...]
    digest: bytes  #: of the image file's bytes


@dataclass
class _Sample:
    offset: int
    image: tuple[str, int, int, bytes] | None = None  #: suffix, offset, size, digest
    text: str | None = None
    captions: tuple[str, ...] | None = None
    #: the .json's "caption", or reason and detail why it cannot be read; used where nothing else has a caption
    caption: str | tuple[str, str] | None = None
    json: bool = False  #: a .json was seen, with captions or without
    others: list[str] = field(default_factory=list)
    fault: tuple[str, str] | None = None


def digest(data: bytes) -> bytes:
    """16 bytes that stand for an image file's."""
    return hashlib.blake2b(data, digest_size=16).digest()


def row_hash(key: str, captions: tuple[str, ...], image: bytes) -> bytes:
    """16 bytes over all that a row is."""
    parts = (key.encode(), image, *(caption.encode() for caption in captions))
    return hashlib.blake2b(b"".join(len(p).to_bytes(8, "little") + p for p in parts), digest_size=16).digest()


def scan(file: BinaryIO, shard: str, prefix: str, full: bool) -> tuple[list[Row], list[Fault]]:
    """Rows and faults of a tar, in its order. `full` decodes every image, else its header alone.

    A tar that ends early or is damaged gives the samples before that and one fault.
    """
    samples: dict[str, _Sample] = {}
    faults: list[Fault] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd metadata, and of images larger than MAX_PIXELS, which we count
        try:
            for member in members(file, os.fstat(file.fileno()).st_size):
                _add(samples, faults, file, member, shard, prefix, full)
        except Broken as broken:
            faults.append(Fault(shard, "", 0, "broken tar", str(broken)))
    rows = []
    for key, sample in samples.items():
        found = _row(key, sample)
        if isinstance(found, Row):
            rows.append(found)
        else:
            faults.append(Fault(shard, key, sample.offset, *found))
    return rows, faults


def _add(
    samples: dict[str, _Sample],
    faults: list[Fault],
    file: BinaryIO,
    member: Member,
    shard: str,
    prefix: str,
    full: bool,
) -> None:
    """Take one member to the sample it belongs to."""
    try:
        name = member.name.decode().removeprefix("./")
    except UnicodeDecodeError:
        faults.append(Fault(shard, repr(member.name), member.offset, "unsafe name", "member name is not UTF-8"))
        return
    folder, slash, base = name.rpartition("/")
    stem, _, suffix = base.partition(".")
    suffix = suffix.lower()
    if not stem:
        return  # hidden files, as macOS' tar adds them
    key = prefix + folder + slash + stem
    sample = samples.setdefault(key, _Sample(member.offset))
    if name.startswith("/") or ".." in name.split("/"):
        sample.fault = ("unsafe name", f"member {name} leads out of its folder")
    elif member.kind != "file":
        sample.fault = ("not a file", f"member {name} is a {'link' if member.kind == 'link' else 'special file'}")
    elif suffix in IMAGES and sample.image is not None:
        if sample.image[0] == suffix:
            faults.append(Fault(shard, key, member.offset, "duplicate key", f"{name} again; the first one stands"))
        else:
            sample.fault = ("several images", f".{sample.image[0]} and .{suffix}")
    elif suffix in IMAGES:
        data = _read(file, member)
        sample.image = (suffix, member.offset, member.size, digest(data))
        sample.fault = sample.fault or _undecodable(data, full)
    elif suffix == "txt" and sample.text is None:
        _take_text(sample, _read(file, member))
    elif suffix == "json" and not sample.json:
        _take_json(sample, _read(file, member))
    else:
        sample.others.append(suffix)


def _read(file: BinaryIO, member: Member) -> bytes:
    file.seek(member.offset)
    return file.read(member.size)


def _take_text(sample: _Sample, data: bytes) -> None:
    try:
        sample.text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        sample.text = ""
        sample.fault = sample.fault or ("caption is not UTF-8", str(error))


def _take_json(sample: _Sample, data: bytes) -> None:
    sample.json = True
    if b'"captions"' not in data:
        sample.caption = _caption(data)
        return
    try:
        found = json.loads(data)["captions"]
    except (ValueError, KeyError, TypeError) as error:
        sample.fault = sample.fault or ("json cannot be read", str(error))
        return
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        sample.fault = sample.fault or ("json cannot be read", '"captions" should be a list of texts')
        return
    try:
        "".join(found).encode()
    except UnicodeEncodeError as error:  # JSON can name half of a pair of surrogates, which is no text
        sample.fault = sample.fault or ("caption is not UTF-8", str(error))
        return
    sample.captions = tuple(text for text in (one.strip() for one in found) if text)


def _caption(data: bytes) -> str | tuple[str, str] | None:
    """The text "caption" of a .json, or reason and detail why it cannot be read; None if it is missing or null."""
    if b'"caption"' not in data:
        return None
    try:
        found = json.loads(data)
        text = found.get("caption") if isinstance(found, dict) else None
        if text is not None and not isinstance(text, str):
            return "json cannot be read", '"caption" should be a text'
        (text or "").encode()
    except UnicodeEncodeError as error:  # half of a pair of surrogates
        return "caption is not UTF-8", str(error)
    except ValueError as error:
        return "json cannot be read", str(error)
    return None if text is None else text.strip()


def _row(key: str, sample: _Sample) -> Row | tuple[str, str]:
    """The row, or the reason and detail why there is none."""
    if sample.fault is not None:
        return sample.fault
    if sample.image is None:
        return (
            "no image",
            f"has {', '.join(sample.others) or 'captions only'}; images end in {', '.join(sorted(IMAGES))}",
        )
    captions = sample.captions
    if captions is None:
        text = sample.caption if sample.text is None else sample.text
        if text is None:
            return "no caption", 'neither a .txt, nor a .json with a list "captions" or a text "caption"'
        if not isinstance(text, str):
            return text
        captions = (text,)
    if not all(captions) or not captions:
        return "empty caption", "the caption has no text"
    _, offset, size, image = sample.image
    return Row(key, offset, size, captions, image)


def _undecodable(data: bytes, full: bool) -> tuple[str, str] | None:
    """Reason and detail where the file is no image that training can read."""
    if not data:
        return "undecodable image", "the file is empty"
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                return "too many pixels", f"{image.width} x {image.height}, more than {MAX_PIXELS}"
            if full:
                # A JPEG is read to its end at any scale; an eighth of the size saves most of the time.
                image.draft(None, (max(1, image.width // 8), max(1, image.height // 8)))
                image.load()
    except Image.DecompressionBombError as error:
        return "too many pixels", str(error)
    except Exception as error:  # Pillow raises many kinds on damaged files; each is a fault of the file
        return "undecodable image", f"{type(error).__name__}: {error}"
    return None
