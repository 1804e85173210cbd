"""Concepts of the emoji pack and their texts, from emojibase-data and emojilib."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

GROUPS = (0, 3, 4, 5, 6, 7)  # drawn things; people are full of gender near-duplicates, symbols are not drawn things
SHORTCODES = ("cldr", "emojibase", "joypixels", "github", "iamcal", "emojibase-legacy")
#: what a name stands in when keywords follow it, in turns; the words are those of the zero-shot templates
FORMS = ("{}", "an emoji of {}", "{}", "a drawing of {}")
ASCII = str.maketrans({"’": "'", "‘": "'", "“": "", "”": "", "_": " ", "é": "e", "ñ": "n", "ã": "a", "ô": "o"})


@dataclass(frozen=True)
class Concept:
    code: str  # hexcode, lower case, without FE0F and 200D
    names: tuple[str, ...]  # the label, then other names that no other concept has
    keywords: tuple[str, ...]
    slugs: tuple[str, ...]  # how icon sets without a code-point map may call it, best first
    subgroup: str
    group: str

    @property
    def captions(self) -> tuple[str, ...]:
        return captions(self.names, self.keywords)


def bare(hexcode: str) -> str:
    """A hexcode as compared: lower case, no variation selector, no joiner, no leading zeros."""
    parts = [part.lstrip("0") for part in hexcode.lower().split("-")]
    return "-".join(part for part in parts if part not in ("fe0f", "200d"))


def clean(text: str) -> str:
    return re.sub(r"\s+", " ", text.translate(ASCII).lower()).strip()


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", clean(text).replace("'", "")).strip("-")


def distinct_texts(texts: Iterable[str]) -> list[str]:
    """Texts in order, later spellings of the same words left out."""
    first: dict[str, str] = {}
    for text in texts:
        first.setdefault(slug(text), text)
    return list(first.values())


def captions(names: Sequence[str], keywords: Sequence[str]) -> tuple[str, ...]:
    """All texts of a concept: its names; a name with 1-4 keywords; keywords alone, in threes."""
    texts = list(names)
    start = 0
    while start < len(keywords):
        turn = len(texts) - len(names)
        width = 1 + turn % 4
        name = FORMS[turn % len(FORMS)].format(names[turn % len(names)])
        texts.append(", ".join([name, *keywords[start : start + width]]))
        start += width
    texts += [", ".join(keywords[i : i + 3]) for i in range(0, len(keywords) - 1, 3)]
    return tuple(dict.fromkeys(texts))


def shortcodes(folder: Path) -> dict[str, list[str]]:
    """Hexcode -> its short codes over all vocabularies, in order of preference."""
    found: dict[str, list[str]] = {}
    for vocabulary in SHORTCODES:
        for code, names in json.loads((folder / f"{vocabulary}.json").read_text()).items():
            found.setdefault(code, []).extend([names] if isinstance(names, str) else names)
    return found


def is_words(text: str) -> bool:
    """Words, not an emoticon, an abbreviation's dots or a numbered code such as clock1030."""
    return re.fullmatch(r"[a-z][a-z' -]*[a-z]", text) is not None and len(text) > 2


def concepts_of(emojibase: Path, emojilib: Path) -> list[Concept]:
    """The concepts of `GROUPS`, by code."""
    english = emojibase / "en"
    entries = [e for e in json.loads((english / "data.json").read_text()) if e.get("group") in GROUPS]
    codes = shortcodes(english / "shortcodes")
    keys = json.loads((emojibase / "meta" / "groups.json").read_text())  # ids are positions here, not in messages.json
    messages = json.loads((english / "messages.json").read_text())
    headings = {kind: {m["key"]: m["message"] for m in messages[kind]} for kind in ("groups", "subgroups")}
    headings["subgroups"] |= yaml.safe_load(Path(__file__).with_name("emoji.yaml").read_text("utf-8"))["headings"]
    extra = {
        "-".join(f"{ord(c):x}" for c in symbol if c not in "\ufe0f\u200d"): words
        for symbol, words in json.loads((emojilib / "dist" / "emoji-en-US.json").read_text()).items()
    }
    candidates = {e["hexcode"]: [e["label"], *codes.get(e["hexcode"], [])] for e in entries}
    names = {code: distinct_texts(map(clean, found)) for code, found in candidates.items()}
    labels = {slug(found[0]) for found in names.values()}
    uses = Counter(slug(name) for found in names.values() for name in found)
    result = []
    for e in entries:
        label, *others = names[e["hexcode"]]
        own = (label, *(n for n in others if is_words(n) and slug(n) not in labels and uses[slug(n)] == 1))
        code = bare(e["hexcode"])
        words = distinct_texts(clean(w) for w in [*e.get("tags", []), *extra.get(code, [])])
        taken = {slug(name) for name in own}
        keywords = tuple(w for w in words if is_words(w) and slug(w) not in taken)
        heading = clean(headings["subgroups"][keys["subgroups"][str(e["subgroup"])]]).replace(" / ", " or ")
        group = clean(headings["groups"][keys["groups"][str(e["group"])]])
        slugs = tuple(dict.fromkeys(slug(n) for n in [e["label"], *codes.get(e["hexcode"], [])]))
        result.append(Concept(code, own, keywords, slugs, heading, group))
    return sorted(result, key=lambda concept: concept.code.encode())
