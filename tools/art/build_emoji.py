"""Build the emoji pack: render pinned icon sets to webdataset shards under bench/data/emoji/.

A developer's tool; users get the shards. It needs resvg-py (0.5.0 made the committed shards) and Pillow with WebP.

    python tools/art/build_emoji.py                      # fetches the pinned packages with `npm pack`
    python tools/art/build_emoji.py --tarballs FOLDER    # uses tarballs that lie in FOLDER

The same packages and tool versions give the same bytes. One shard holds one style, so that every file has one licence.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from emoji_art import ICON_SETS, Style, art_of
from emoji_texts import Concept, concepts_of
from PIL import Image

SIZE = 64
OUT = Path(__file__).parents[2] / "bench" / "data" / "emoji"
PACKAGES = {
    "emojibase-data": "17.0.0",
    "emojilib": "4.0.3",
    "openmoji": "17.0.0",
    "@lobehub/fluent-emoji-3d": "1.1.0",
    **{style.package: style.version for style in ICON_SETS},
}
STYLES = (
    *ICON_SETS,
    Style("openmoji", "openmoji", "17.0.0", "CC-BY-SA-4.0", "openmoji"),
    Style("openmoji-black", "openmoji", "17.0.0", "CC-BY-SA-4.0", "openmoji-black"),
    Style("fluent-3d", "@lobehub/fluent-emoji-3d", "1.1.0", "MIT", "near"),
)
NOVEL_SHARE, IID_SHARE, VALIDATION_SHARE = 0.15, 0.10, 0.05


@dataclass(frozen=True)
class EmojiDrawing:
    concept: Concept
    style: Style
    art: bytes  # SVG or WebP as published

    @property
    def key(self) -> str:
        return f"{self.concept.code}-{self.style.name}"


def keyed(purpose: str, key: str) -> str:
    """A hash that decides a split: stable when packages grow or are reordered."""
    return hashlib.sha256(f"{purpose}:{key}".encode()).hexdigest()


def smallest_keys(keys: Iterable[str], purpose: str, count: int) -> set[str]:
    return set(sorted(keys, key=lambda key: keyed(purpose, key))[:count])


def unpack_packages(folder: Path | None, into: Path) -> dict[str, Path]:
    """Unpack every package; {package name: its folder}."""
    roots = {}
    for name, version in PACKAGES.items():
        tarball = f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
        if folder is None:
            subprocess.run(["npm", "pack", f"{name}@{version}"], cwd=into, check=True, stdout=subprocess.DEVNULL)
        root = into / tarball.removesuffix(".tgz")
        with tarfile.open((folder or into) / tarball) as archive:
            archive.extractall(root, filter="data")
        roots[name] = root / "package"
    return roots


def rasterise(art: bytes) -> Image.Image:
    """SVG or WebP -> RGB, SIZE x SIZE, on white; `currentColor` is black."""
    import resvg_py  # only a build needs it; the rest of this file is tested without

    if art.lstrip().startswith(b"<"):
        png = resvg_py.svg_to_bytes(
            svg_string=art.decode(), width=SIZE, height=SIZE, background="#ffffff", skip_system_fonts=True
        )
        image = Image.open(io.BytesIO(bytes(png))).convert("RGB")
    else:
        drawn = Image.open(io.BytesIO(art)).convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", drawn.size, "white"), drawn).convert("RGB")
        image = image.resize((SIZE, SIZE), Image.Resampling.BOX)
    if image.size != (SIZE, SIZE) or min(image.convert("L").tobytes()) > 250:
        raise ValueError("the drawing came out blank or in the wrong size")
    return image


def render_drawings(drawings: Iterable[EmojiDrawing]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Lossless WebP bytes by key; and which keys share their pixels with another concept, hence have no one label."""
    encoded: dict[str, bytes] = {}
    same: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for drawing in drawings:
        try:
            image = rasterise(drawing.art)
        except ValueError as error:
            raise SystemExit(f"{drawing.key}: {error}") from error
        same[drawing.style.name, hashlib.sha256(image.tobytes()).hexdigest()].append(drawing.key)
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", lossless=True, quality=75, method=4)
        encoded[drawing.key] = buffer.getvalue()
    twins = {key: ", ".join(keys) for keys in same.values() if len(keys) > 1 for key in keys}
    return encoded, twins


def splits(drawings: list[EmojiDrawing]) -> dict[str, str]:
    """Key -> split. Every training concept keeps a training pair; shift sets show training concepts only."""
    codes = {d.concept.code for d in drawings if d.style.split == "train"}
    novel = smallest_keys(codes, "novel", round(NOVEL_SHARE * len(codes)))
    known = [d for d in drawings if d.style.split == "train" and d.concept.code not in novel]
    by_concept = defaultdict(list)
    for d in known:
        by_concept[d.concept.code].append(d.key)
    kept = {next(iter(smallest_keys(keys, "kept", 1))) for keys in by_concept.values()}
    free = [d.key for d in known if d.key not in kept]
    iid = smallest_keys(free, "iid", round(IID_SHARE * len(known)))
    validation = smallest_keys(set(free) - iid, "validation", round(VALIDATION_SHARE * len(known)))
    split = {d.key: "novel" for d in drawings if d.style.split == "train"}
    split |= {d.key: "train" for d in known}
    split |= dict.fromkeys(iid, "iid") | dict.fromkeys(validation, "validation")
    shifted = {d.key: d.style.split for d in drawings if d.style.split != "train" and d.concept.code in by_concept}
    return split | shifted


def sample(drawing: EmojiDrawing, split: str) -> bytes:
    concept = drawing.concept
    fields: Mapping[str, Any] = {
        "key": drawing.key,
        "captions": concept.captions,
        "names": concept.names,
        "concept": concept.names[0],
        "subgroup": concept.subgroup,
        "group": concept.group,
        "style": drawing.style.name,
        "split": split,
        "licence": drawing.style.licence,
    }
    return json.dumps(fields, ensure_ascii=False).encode()


def write_style(path: Path, members: Mapping[str, bytes]) -> None:
    """A gzipped tar without times, owners or file names: the same members give the same bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o644
            archive.addfile(info, io.BytesIO(data))
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(raw.getvalue())


def build_pack(roots: Mapping[str, Path], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    concepts = concepts_of(roots["emojibase-data"], roots["emojilib"])
    drawings = [
        EmojiDrawing(concept, style, art)
        for style in STYLES
        for concept, art in art_of(style, roots[style.package], concepts)
    ]
    images, twins = render_drawings(drawings)
    drawings = [d for d in drawings if d.key not in twins]
    split = splits(drawings)
    for key, keys in sorted(twins.items()):
        print(f"left out {key}: same pixels under several concepts ({keys})")
    sums = []
    for style in sorted(STYLES, key=lambda style: style.name):
        members: dict[str, bytes] = {}
        for d in sorted(drawings, key=lambda d: d.key.encode()):
            if d.style is style and d.key in split:
                members |= {f"{d.key}.webp": images[d.key], f"{d.key}.json": sample(d, split[d.key])}
        path = out / f"{style.name}.tar.gz"
        write_style(path, members)
        sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
        print(f"{path.name}: {len(members) // 2} pairs, {path.stat().st_size / 1e6:.2f} MB")
    (out / "sha256s").write_text("".join(sums))
    print(dict(Counter(split.values())))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the emoji pack.")
    parser.add_argument(
        "--tarballs", type=Path, help="a folder that holds the npm tarballs; without it they are fetched"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        build_pack(unpack_packages(options.tarballs, Path(scratch)), options.out)


if __name__ == "__main__":
    main()
