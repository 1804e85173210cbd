"""Makes a data set of CC3M's shape from drawings that Debian packages carry, to run the bench on at a small scale.

A developer's tool. It writes webdataset shards as img2dataset leaves them, with captions as noisy as alt texts are
(titles, file names, keywords), and evaluation sets as DataComp's download script leaves them:

    apt install openclipart-png openclipart-svg papirus-icon-theme breeze-icon-theme oxygen-icon-theme \
        tuxpaint-stamps-default && pip install resvg-py
    python tools/build_drawings.py data

    data/drawings/00000.tar ... 00039.tar         training pairs: key.jpg, key.txt, key.json
    data/evaluation/wds_drawings/{train,test}     openclipart's folders as classes, none of the test images in training
    data/evaluation/wds_drawings_captions/test    the same test images, up to five captions each
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from PIL import Image

SIZE = 256  #: pixels of the longer side, as img2dataset resizes with keep_ratio, unless --size says otherwise
QUALITY = 95
HELD_OUT_SHARE = 0.1  #: of openclipart's drawings
MAX_PIXELS = 50_000_000  #: pixels of a picture
MIN_CLASS = 60  #: drawings; smaller folders make no class

_SYSTEM = Path("/usr/share")
CLIPART, STAMPS = _SYSTEM / "openclipart", _SYSTEM / "tuxpaint" / "stamps"
THEMES = (
    _SYSTEM / "icons" / "Papirus" / "64x64",
    _SYSTEM / "icons" / "Papirus" / "48x48",
    _SYSTEM / "icons" / "Papirus" / "16x16",
    _SYSTEM / "icons" / "breeze",
    _SYSTEM / "icons" / "oxygen" / "base" / "256x256",
)


@dataclass(frozen=True)
class Drawing:
    """One picture file and its texts, the noisiest as people leave them."""

    path: Path
    captions: tuple[str, ...]
    label: str = ""  #: openclipart's folder

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


Beside = Callable[[Drawing, str], dict[str, bytes]]  #: a drawing and its key -> files beside the picture, by extension


def name_words(name: str) -> str:
    """ "grass_hopper_02" -> "grass hopper 02"."""
    return re.sub(r"[\s_.-]+", " ", name).strip()


def clipart() -> Iterator[Drawing]:
    """Openclipart: title and keywords out of the SVG, the picture from the PNG beside it."""
    for path in sorted((CLIPART / "png").rglob("*.png")):
        inner = path.relative_to(CLIPART / "png")
        source = (CLIPART / "svg" / inner).with_suffix(".svg")
        text = source.read_text("utf-8", "replace") if source.is_file() else ""
        found = re.search(r"<dc:title>([^<]+)</dc:title>", text)
        title = name_words(found[1]) if found else name_words(path.stem)
        keywords = [name_words(one) for one in re.findall(r"<rdf:li>([^<]+)</rdf:li>", text) if name_words(one)]
        texts = [title, name_words(path.stem), ", ".join(keywords), f"{title}, {name_words(inner.parts[0])}", *keywords]
        yield Drawing(path, tuple(dict.fromkeys(one for one in texts if one))[:5], inner.parts[0])


def stamps() -> Iterator[Drawing]:
    """Tux Paint's stamps: drawings and photographs with an English sentence."""
    for path in sorted(file for kind in ("*.png", "*.svg") for file in STAMPS.rglob(kind)):
        text = path.with_suffix(".txt")
        first = text.read_text("utf-8", "replace").splitlines()[:1] if text.is_file() else []
        if first and first[0].strip():
            yield Drawing(path, (first[0].strip(),))


def icons() -> Iterator[Drawing]:
    """Icon themes: the file's name and its folder."""
    for theme in THEMES:
        for path in sorted(file for kind in ("*.svg", "*.png") for file in theme.rglob(kind) if not file.is_symlink()):
            yield Drawing(path, (f"{name_words(path.stem)} {name_words(path.parent.name)} icon",))


def distinct_drawings(drawings: Iterable[Drawing]) -> list[Drawing]:
    """Each picture once, under its first texts."""
    first: dict[str, Drawing] = {}
    for drawing in drawings:
        first.setdefault(drawing.digest, drawing)
    return list(first.values())


def jpeg(path: Path, side: int) -> bytes | None:
    """The picture on white, its longer side `side` px; None where it cannot be drawn or shows nothing."""
    try:
        opened = Image.open(io.BytesIO(_svg(path, side) if path.suffix == ".svg" else path.read_bytes()))
        if opened.width * opened.height > MAX_PIXELS:
            return None
        picture = opened.convert("RGBA")
    except (OSError, ValueError):
        return None
    scale = side / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    page = Image.new("RGB", size, "white")
    drawn = picture.resize(size, Image.Resampling.LANCZOS)
    page.paste(drawn, mask=drawn.getchannel("A"))
    if page.convert("L").getextrema() == (255, 255):
        return None
    file = io.BytesIO()
    page.save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def _svg(path: Path, side: int) -> bytes:
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_path=str(path), width=side))


def write_tar(path: Path, drawings: Sequence[Drawing], side: int, key: str, beside: Beside) -> int:
    """Write drawings and what `beside` says of a drawing and its key, by extension; how many can be drawn."""
    count = 0
    with tarfile.open(path, "w") as archive:
        for place, drawing in enumerate(drawings):
            if picture := jpeg(drawing.path, side):
                name = key.format(place)
                for extension, content in {"jpg": picture, **beside(drawing, name)}.items():
                    add(archive, f"{name}.{extension}", content)
                count += 1
    return count


def write_shard(path: Path, number: int, drawings: Sequence[Drawing], side: int) -> int:
    """One training shard; how many pairs it holds. Keys are img2dataset's: five digits of shard, four of sample."""

    def beside(drawing: Drawing, key: str) -> dict[str, bytes]:
        caption = drawing.captions[0]
        about = {"key": key, "caption": caption, "url": drawing.path.as_uri(), "status": "success"}
        return {"txt": caption.encode(), "json": json.dumps(about).encode()}

    return write_tar(path, drawings, side, f"{number:05d}{{:04d}}", beside)


def write_split(folder: Path, drawings: Sequence[Drawing], side: int, beside: Beside) -> None:
    """A split for evaluation: s0000000.jpg with what is beside it."""
    folder.mkdir(parents=True)
    write_tar(folder / "0.tar", drawings, side, "s{:07d}", beside)
    (folder / "nshards.txt").write_text("1")


def captions(drawing: Drawing, _key: str) -> dict[str, bytes]:
    """The captions of a drawing, a line each."""
    return {"txt": "\n".join(drawing.captions).encode()}


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """A member without times or owners, so that the same pictures give the same bytes."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def held_out(drawing: Drawing) -> bool:
    """Return whether a drawing of openclipart is kept for evaluation, by its hash."""
    return int(drawing.digest[:8], 16) < HELD_OUT_SHARE * 2**32


def main() -> None:
    """Read the packages, hold out the test images, write the shards."""
    Image.MAX_IMAGE_PIXELS = None  # `jpeg` leaves out what is too large
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="the data folder; its drawings/ and evaluation/ must not exist")
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--size", type=int, default=SIZE, help="pixels of the longer side")
    options = parser.parse_args()
    drawings = list(distinct_drawings([*clipart(), *stamps(), *icons()]))
    counts = Counter(drawing.label for drawing in drawings)
    classes = sorted({label for label, count in counts.items() if count >= MIN_CLASS} - {"", "unsorted"})
    test = [drawing for drawing in drawings if drawing.label in classes and held_out(drawing)]
    kept_back = {drawing.path for drawing in test}
    training = [drawing for drawing in drawings if drawing.path not in kept_back]
    labelled = [drawing for drawing in training if drawing.label in classes]

    folder = options.out / "drawings"
    folder.mkdir(parents=True)
    training.sort(key=lambda drawing: drawing.digest)  # shards of a crawl are in no order of content either
    parts = [training[number :: options.shards] for number in range(options.shards)]
    with ProcessPoolExecutor() as pool:
        paths = [folder / f"{number:05d}.tar" for number in range(options.shards)]
        written = list(pool.map(write_shard, paths, range(options.shards), parts, [options.size] * options.shards))
    home = options.out / "evaluation" / "wds_drawings"

    def of_class(drawing: Drawing, _key: str) -> dict[str, bytes]:
        return {"cls": str(classes.index(drawing.label)).encode()}

    write_split(home / "train", labelled, options.size, of_class)
    write_split(home / "test", test, options.size, of_class)
    (home / "classnames.txt").write_text("".join(f"{name_words(label)}\n" for label in classes))
    templates = ("a drawing of {c}.", "clip art of {c}.", "{c}")
    (home / "zeroshot_classification_templates.txt").write_text("".join(f"{one}\n" for one in templates))
    (home / "dataset_type.txt").write_text("classification")
    home = options.out / "evaluation" / "wds_drawings_captions"
    write_split(home / "test", test, options.size, captions)
    (home / "dataset_type.txt").write_text("retrieval")
    print(
        f"{sum(written):,} training pairs in {len(written)} shards; {len(test):,} test images of {len(classes)} classes"
    )


if __name__ == "__main__":
    main()
