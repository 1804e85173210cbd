"""Easy data augmentation of captions (Wei & Zou, EMNLP 2019): one small random edit a caption."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from methods.base import stream_key
from methods.protocol import Facts, Rows

Synonyms = Mapping[str, tuple[str, ...]]

_PUNCTUATION = ".,;:!?\"'()"
# Words that WordNet lists with rare senses ("in": inch, "a": ampere) and that EDA never replaces.
_STOP_WORDS = """a an and any are as at be but by can did do does for from had has have he her his i if in into is it
its me my no nor not of off on or our out own she so some than that the their them then there these they this those to
too up us was we were what when which who will with you your"""


class Eda:
    """Applies one of synonym replacement, random insertion, random swap, random deletion, drawn uniformly.

    Without synonyms the first two have nothing to work with, and only swap and deletion are drawn. Draws are keyed by
    (seed, purpose, step, position), so that neither ranks nor micro-batches change an edit.
    """

    def __init__(self, synonyms: Synonyms, seed: int, purpose: str, alpha: float = 0.1) -> None:
        self.synonyms = {key.lower(): others for key, others in synonyms.items() if others}
        self.longest = max((len(key.split()) for key in self.synonyms), default=0)
        self.seed, self.purpose, self.alpha = seed, purpose, alpha
        with_synonyms = [self._replace, self._insert] if self.synonyms else []
        self.operations: list[Callable[[list[str], random.Random], list[str]]]
        self.operations = [*with_synonyms, self._swap, self._delete]

    @classmethod
    def of(cls, facts: Facts, method: str, alpha: float, wordnet: str | None) -> Eda:
        """With the synonyms that a run's data knows and, given a folder, WordNet's."""
        synonyms = dict(wordnet_synonyms(wordnet)) if wordnet else {}
        return cls(synonyms | dict(facts.synonyms), facts.seed, f"{method}/eda", alpha)

    def edited(self, rows: Rows) -> list[str]:
        """The captions of these rows, each edited."""
        return [self(text, rows.clock.step, place) for text, place in zip(rows.captions, rows.positions, strict=True)]

    def __call__(self, caption: str, step: int, position: int) -> str:
        """The edited caption of one place of one step's batch; never empty unless `caption` is."""
        words = caption.split()
        if not words:
            return caption
        draws = random.Random(stream_key(self.seed, self.purpose, step, position))
        return " ".join(draws.choice(self.operations)(words, draws))

    def _edits(self, words: list[str]) -> int:
        return max(1, int(self.alpha * len(words)))

    def _phrases(self, words: list[str]) -> list[tuple[slice, tuple[str, ...]]]:
        """Non-overlapping parts of `words` that have synonyms, longest first at each place."""
        plain = [word.strip(_PUNCTUATION).lower() for word in words]
        found, start = [], 0
        while start < len(words):
            for length in range(min(self.longest, len(words) - start), 0, -1):
                others = self.synonyms.get(" ".join(plain[start : start + length]))
                if others:
                    found.append((slice(start, start + length), others))
                    start += length - 1
                    break
            start += 1
        return found

    def _replace(self, words: list[str], draws: random.Random) -> list[str]:
        words, phrases = list(words), self._phrases(words)
        chosen = draws.sample(phrases, min(self._edits(words), len(phrases)))
        for place, others in sorted(chosen, key=lambda phrase: phrase[0].start, reverse=True):
            words[place] = draws.choice(others).split()
        return words

    def _insert(self, words: list[str], draws: random.Random) -> list[str]:
        words, phrases = list(words), self._phrases(words)
        for _ in range(self._edits(words) if phrases else 0):
            place = draws.randrange(len(words) + 1)
            words[place:place] = draws.choice(draws.choice(phrases)[1]).split()
        return words

    def _swap(self, words: list[str], draws: random.Random) -> list[str]:
        words = list(words)
        for _ in range(self._edits(words) if len(words) > 1 else 0):
            first, second = draws.sample(range(len(words)), 2)
            words[first], words[second] = words[second], words[first]
        return words

    def _delete(self, words: list[str], draws: random.Random) -> list[str]:
        kept = [word for word in words if draws.random() >= self.alpha]
        return kept or [draws.choice(words)]


@lru_cache(maxsize=4)
def wordnet_synonyms(folder: str) -> dict[str, tuple[str, ...]]:
    """Synonyms of every word from WordNet's data.noun, data.verb, data.adj and data.adv in `folder`.

    ValueError where the folder holds none of them.
    """
    files = [path for kind in ("noun", "verb", "adj", "adv") if (path := Path(folder, f"data.{kind}")).is_file()]
    if not files:
        raise ValueError(f"wordnet = {folder!r}, but it must be a folder with WordNet's data.noun, data.verb, ...")
    found: dict[str, set[str]] = {}
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(" "):
                continue  # the licence
            # offset, file number, type, number of words (hexadecimal), then (word, lexical id) pairs
            fields = line.split(" ")
            words = [_lemma(fields[4 + 2 * i]) for i in range(int(fields[3], 16))]
            for word in words:
                found.setdefault(word, set()).update(words)
    stop_words = frozenset(_STOP_WORDS.split())
    synonyms = {word: tuple(sorted(others - {word})) for word, others in found.items() if word not in stop_words}
    return {word: others for word, others in synonyms.items() if others}


def _lemma(word: str) -> str:
    """ "ice_cream" -> "ice cream", "galore(ip)" -> "galore"."""
    return word.partition("(")[0].replace("_", " ").lower()
