"""CLIP's tokens are open_clip's to the bit, for captions of any kind; $BENCH_CAPTIONS asks for more of them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from open_clip.tokenizer import SimpleTokenizer

import bench.machine.torchvision_fix  # noqa: F401  before open_clip
from bench.towers import tokenization
from bench.towers.tokenization import ClipTokenizer, SmallVocabulary

CAPTIONS = int(os.environ.get("BENCH_CAPTIONS", "1500"))
PLAIN = [
    "a photo of the dog's",
    "they're",
    "I'll",
    "DON'T",
    "'S'T",
    "''''d",
    "3,000.5",
    "x_y__z",
    "!!!",
    "#tag",
    "R2-D2",
    "<3",
    "~`^",
    "http://a.b/c?d=e_f",
]
PLAIN += ["<start_of_text>", "<END_OF_TEXT>x", "<end_of_text", "\\n", "ab" * 70, "7" * 30, "|"]
ENTITIES = ["&amp;", "&amp;lt;b&gt;", "AT&T", "R & B", "&#39;", "&eacute;t\u00e9", "&nosuch;"]
LATIN = [
    "caf\u00e9",
    "\u2019s",
    "\u201cquoted\u201d",
    "\u2013",
    "\u2026",
    "\ufb01re",
    "\uff21\uff22",
    "\u00e2\u20ac\u2122",
]
LETTERS = [
    "\u4e2d\u6587\u5b57",
    "\u0645\u0631\u062d",
    "\u0939\u093f",
    "\u017f",
    "\u0130",
    "e\u0301",
    "\U0001f600\U0001f3fd",
]
NUMBERS = ["\u00bd", "\u0664\u0665", "\u2167"]
CONTROLS = ["\x00", "\x07", "\x1b[31mred\x1b[0m", "\x7f", "\x85", "\xa0", "\u2028", "\u200b", "\ud800", "\x1c"]
PIECES = [*PLAIN, *ENTITIES, *LATIN, *LETTERS, *NUMBERS, *CONTROLS]
SPACES = [" ", " ", " ", "", "  ", "\t", "\n", "\r\n"]


def generated(count: int) -> list[str]:
    """Captions of up to 30 pieces each; half of them are printable ASCII alone, one in fifty is empty or blank."""
    draws, words = np.random.default_rng(0), vocabulary()
    captions = []
    for number in range(count):
        pieces, spaces = (PLAIN, [" ", "  ", ""]) if number % 2 else (PIECES, SPACES)
        parts = []
        for _ in range(0 if number % 50 == 0 else int(draws.integers(1, 31))):
            rank = int(draws.integers(0, len(words)) * draws.random() ** 3)
            parts.append(words[rank] if draws.random() < 0.7 else pieces[draws.integers(0, len(pieces))])
            parts.append(spaces[draws.integers(0, len(spaces))] if draws.random() < 0.3 else " ")
        captions.append("".join(parts))
    return captions


def vocabulary() -> list[str]:
    """The words of CLIP's vocabulary in its order, the most frequent first, some of them in capitals."""
    ends = [token.removesuffix("</w>") for token in list(SimpleTokenizer().encoder)[512:] if token.endswith("</w>")]
    return [word.upper() if at % 7 == 0 else word for at, word in enumerate(ends) if word.isascii()]


def parts(captions: list[str], size: int) -> Iterator[list[str]]:
    return (captions[start : start + size] for start in range(0, len(captions), size))


@pytest.mark.promise("CLIP's tokens are open_clip's to the bit")
@pytest.mark.parametrize("options", [{}, {"clean": "canonicalize"}, {"clean": "whitespace"}], ids=str)
def test_tokens_are_open_clips(options: dict[str, str]) -> None:
    own, peer = ClipTokenizer(24, options), SimpleTokenizer(context_length=24, **options)
    for captions in parts(generated(200 if options else CAPTIONS), 1000):
        made, expected = own(captions), peer(captions)
        assert made.dtype == expected.dtype
        for caption, one, other in zip(captions, made, expected, strict=True):
            assert torch.equal(one, other), repr(caption)
    assert own([]).shape == (0, 24)


@pytest.mark.parametrize("options", [{"additional_special_tokens": ["<a b>"]}, {"reduction_mask": "simple"}], ids=str)
def test_options_that_reach_over_words_are_left_to_open_clip(options: dict[str, object]) -> None:
    captions = ["a <a b> dog", "two"]
    assert torch.equal(ClipTokenizer(12, options)(captions), SimpleTokenizer(context_length=12, **options)(captions))


def test_a_tokenizer_keeps_a_bounded_number_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    own, captions = ClipTokenizer(24, {}), [f"word{number} caf\u00e9{number}" for number in range(60)]
    first = own(captions)
    monkeypatch.setattr(tokenization, "MAX_KEPT_WORDS", 50)
    for part in parts(captions, 10):
        own(part)
        assert len(own._whole.cache) <= 50 + 10 * 8
    assert torch.equal(own(captions), first)


def test_a_learned_vocabulary_keeps_a_bounded_number_of_captions(monkeypatch: pytest.MonkeyPatch) -> None:
    captions = [f"caption {number}" for number in range(30)]
    own = SmallVocabulary(captions, 80, 12)
    first = own(captions)
    monkeypatch.setattr(tokenization, "MAX_KEPT_CAPTIONS", 5)
    for part in parts(captions, 4):
        own(part)
        assert len(own._rows) <= 9
    assert torch.equal(own(captions), first)


def test_a_tokenizer_travels_to_another_process() -> None:
    own = ClipTokenizer(24, {})
    assert torch.equal(pickle.loads(pickle.dumps(own))(["a dog"]), own(["a dog"]))
