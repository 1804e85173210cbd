"""Edits of captions: the four operations, their draws, and synonyms from WordNet's files."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.eda import Eda, wordnet_synonyms

SYNONYMS = {"Red Apple": ("crimson fruit",), "apple": ("fruit",), "cat": ("kitten", "tomcat")}
WORDS = st.lists(st.sampled_from(["a", "red", "apple,", "cat", "sat", "Cat!"]), min_size=1, max_size=12)


def edit(operation: str, caption: str, seed: int = 0, alpha: float = 0.1) -> str:
    eda = Eda(SYNONYMS, 0, "test", alpha)
    return " ".join(getattr(eda, f"_{operation}")(caption.split(), random.Random(seed)))


def test_replacement_takes_the_longest_phrase_and_ignores_case_and_punctuation():
    assert edit("replace", "a red apple.") == "a crimson fruit"
    assert edit("replace", "an Apple here") == "an fruit here"
    assert edit("replace", "no such word") == "no such word"
    both = edit("replace", "cat and red apple", alpha=0.5)
    assert both.endswith("and crimson fruit")
    assert both.split()[0] in ("kitten", "tomcat")


def test_insertion_adds_a_synonym_of_a_word_that_is_there():
    found = {edit("insert", "the cat sat", seed) for seed in range(40)}
    assert {len(caption.split()) for caption in found} == {4}
    assert {word for caption in found for word in caption.split()} == {"the", "cat", "sat", "kitten", "tomcat"}
    assert edit("insert", "the dog sat") == "the dog sat"


@given(WORDS, st.integers(0, 1000))
def test_swap_and_deletion_keep_their_words(words, seed):
    caption = " ".join(words)
    swapped = edit("swap", caption, seed).split()
    assert Counter(swapped) == Counter(words)
    assert sum(a != b for a, b in zip(swapped, words, strict=True)) <= 2 * max(1, len(words) // 10)
    kept = edit("delete", caption, seed, alpha=0.9).split()
    assert 1 <= len(kept) <= len(words)
    assert not Counter(kept) - Counter(words)


def test_each_operation_is_drawn_as_often_as_the_others():
    eda = Eda(SYNONYMS, 0, "test")
    seen = Counter()
    for operation in list(eda.operations):
        name = operation.__name__
        eda.operations[eda.operations.index(operation)] = lambda words, _, name=name: seen.update([name]) or words
    for position in range(2000):
        eda("the cat sat", 0, position)
    assert set(seen) == {"_replace", "_insert", "_swap", "_delete"}
    assert min(seen.values()) > 420


def test_without_synonyms_only_swap_and_deletion():
    eda = Eda({}, 0, "test")
    assert [operation.__name__ for operation in eda.operations] == ["_swap", "_delete"]
    assert Eda({"cat": ()}, 0, "test").synonyms == {}


def test_draws_are_keyed_and_leave_the_global_generators_alone():
    caption = "one two three four five six seven eight nine ten"
    eda = Eda(SYNONYMS, 3, "test")
    random.seed(0)
    states = random.getstate(), torch.get_rng_state()
    edits = [eda(caption, step, place) for step in range(5) for place in range(5)]
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert edits == [eda(caption, step, place) for step in range(5) for place in range(5)]
    assert len(set(edits)) > 8
    assert edits != [Eda(SYNONYMS, 4, "test")(caption, step, place) for step in range(5) for place in range(5)]
    assert eda("", 0, 0) == ""


def test_wordnet_files(tmp_path):
    (tmp_path / "data.noun").write_text(
        "  1 This software and database is being provided to you\n"
        "07739125 13 n 02 apple 0 orchard_apple 0 001 @ 07705931 n 0000 | fruit with red skin\n"
        "13649791 23 n 03 inch 0 in 0 zoll 2 000 | a unit of length\n"
    )
    (tmp_path / "data.adj").write_text("00000001 00 a 02 galore(ip) 0 abounding 0 000 | existing in abundance\n")
    found = wordnet_synonyms(str(tmp_path))
    assert found["apple"] == ("orchard apple",)
    assert found["galore"] == ("abounding",)
    assert "in" not in found
    assert found["inch"] == ("in", "zoll")
    with pytest.raises(ValueError, match=r"data\.noun"):
        wordnet_synonyms(str(tmp_path / "missing"))
