"""The icon sets of the emoji pack: which drawing a style has for a concept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from emoji_texts import Concept, bare, slug


@dataclass(frozen=True)
class Style:
    name: str
    package: str
    version: str
    licence: str
    split: str  # "train", or the name of the shift set that the style makes


_DATA: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("emoji.yaml").read_text("utf-8"))
ICON_SETS = tuple(Style(*fields) for fields in _DATA["icon_sets"])
MISNAMED: Mapping[str, Mapping[str, str | None]] = _DATA["misnamed"]  #: code by icon, by set; None leaves it out


def art_of(style: Style, root: Path, concepts: Sequence[Concept]) -> Iterator[tuple[Concept, bytes]]:
    """Every concept that the style draws, with its SVG or WebP bytes."""
    if style in ICON_SETS:
        icons = json.loads((root / "icons.json").read_text())
        by_code = json.loads((root / "chars.json").read_text())
        found = by_code_point(icons, by_code, concepts) if by_code else by_name(icons, concepts)
        for concept in concepts:
            if concept.code in found:
                yield concept, svg(icons, found[concept.code])
        return
    folder, suffix = {
        "openmoji": ("color/svg", ".svg"),
        "openmoji-black": ("black/svg", ".svg"),
        "fluent-3d": ("assets", ".webp"),
    }[style.name]
    files = {bare(path.stem): path for path in sorted((root / folder).glob(f"*{suffix}"))}
    for concept in concepts:
        if concept.code in files:
            yield concept, files[concept.code].read_bytes()


def resolve_alias(icons: Mapping[str, Any], name: str) -> str | None:
    """An icon's own name behind aliases; None when there is none or the alias turns the drawing around."""
    while name not in icons["icons"]:
        alias = icons.get("aliases", {}).get(name)
        if alias is None or alias.keys() & {"hFlip", "vFlip", "rotate"}:
            return None
        name = alias["parent"]
    return str(name)


def by_code_point(icons: Mapping[str, Any], chars: Mapping[str, str], concepts: Sequence[Concept]) -> dict[str, str]:
    names = {bare(code): name for code, name in sorted(chars.items())}
    found = {c.code: resolve_alias(icons, names[c.code]) for c in concepts if c.code in names}
    return {code: name for code, name in found.items() if name is not None}


def by_name(icons: Mapping[str, Any], concepts: Sequence[Concept]) -> dict[str, str]:
    """Match slugs. An icon serves one concept: labels choose first, then the first short code, and so on."""
    drawn = MISNAMED.get(icons["prefix"], {})
    names = (set(icons["icons"]) | set(icons.get("aliases", {}))) - drawn.keys()
    # some sets write words together ("fourleafclover"), so spaces do not count
    spelled = {slug(name).replace("-", ""): name for name in sorted(names)}
    found = {code: name for name, code in drawn.items() if code is not None}
    taken = set(found.values())
    for rank in range(max(len(c.slugs) for c in concepts)):
        for concept in concepts:
            spelling = concept.slugs[rank].replace("-", "") if rank < len(concept.slugs) else ""
            if concept.code in found or spelling not in spelled:
                continue
            name = resolve_alias(icons, spelled[spelling])
            if name is not None and name not in taken:
                found[concept.code] = name
                taken.add(name)
    return found


def svg(icons: Mapping[str, Any], name: str) -> bytes:
    """A whole SVG document around an icon's body; a set's default frame unless the icon has its own."""
    icon = icons["icons"][name]
    left, top = icon.get("left", icons.get("left", 0)), icon.get("top", icons.get("top", 0))
    width = icon.get("width", icons.get("width", 16))
    height = icon.get("height", icons.get("height", 16))
    # A square frame around the icon, so that a wide drawing keeps its shape in a square picture.
    side = max(width, height)
    frame = f"{left - (side - width) / 2:g} {top - (side - height) / 2:g} {side:g} {side:g}"
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {namespaces} width="64" height="64" viewBox="{frame}">{icon["body"]}</svg>'.encode()
