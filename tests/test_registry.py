"""Words with entries, canonical content, counter-based draws, and the nearest word of a mistake."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bench import counter, data_folder, hashing
from bench.errors import UserError, nearest, one_line
from bench.hashing import Absent, canonical, digest
from bench.registry import Registry, lazy
from bench.settings_base import no_duplicates

WORDS = st.lists(st.text("abcdef", min_size=1, max_size=6), min_size=1, max_size=6, unique=True)
quick = settings(deadline=None, max_examples=60)


@dataclass(frozen=True)
class Thing:
    name: str


@quick
@given(WORDS)
def test_a_registry_keeps_its_entries_in_order_each_once(words: list[str]) -> None:
    known = Registry("a thing", map(Thing, words))
    assert known.names() == tuple(words)
    assert [entry.name for entry in known] == words
    for word in words:
        assert word in known
        assert known[word] == Thing(word)
        assert known.wrong(word) == ""
        with pytest.raises(UserError, match=f"'{word}' is already a thing; choose another name"):
            known.add(Thing(word))
    known.remove(words[0])
    assert known.names() == tuple(words[1:])
    assert words[0] not in known


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    known = Registry("a fruit", map(Thing, ("apple", "pear", "fig")))
    with pytest.raises(UserError, match="'appel' is not a fruit; did you mean 'apple'"):
        known["appel"]
    with pytest.raises(UserError, match="'xyz' is not a fruit; valid: apple, fig, pear"):
        known.remove("xyz")
    assert known.wrong("peer") == "'peer' should be 'apple', 'pear' or 'fig'; did you mean 'pear'?"
    assert Registry("a fruit", [Thing("fig")]).wrong("figs") == "'figs' should be 'fig'; did you mean 'fig'?"


def test_a_lazy_function_is_imported_when_it_is_called() -> None:
    assert lazy("fractions:Fraction")(1, denominator=3) == pytest.importorskip("fractions").Fraction(1, 3)
    absent = lazy("no_such_module_anywhere:name")
    with pytest.raises(ModuleNotFoundError):
        absent()


@quick
@given(WORDS, st.text(max_size=8))
def test_the_nearest_word_is_one_of_the_valid_ones(words: list[str], given_: str) -> None:
    tail = nearest(given_, words)
    assert any(repr(word) in tail for word in words) or tail == f"; valid: {', '.join(sorted(words))}"
    assert nearest(words[0], words) == f"; did you mean {words[0]!r}?"
    assert nearest(given_, []) == ""


def test_a_message_lists_the_first_of_many_valid_words() -> None:
    words = [f"{number:04}" for number in range(2060)]
    tail = nearest("xyz", words)
    assert tail.startswith("; valid: 0000, 0001, ")
    assert tail.endswith(" 0049 and 2,010 more")


def test_an_error_of_somebody_else_is_one_line_of_a_given_length() -> None:
    error = ValueError("first\n   second\tthird")
    assert one_line(error) == "first second third"
    assert one_line(error, 9) == "first sec"
    for content, said in (
        ("{}", "name: Field required"),
        ('{"name": 3}', "name: Input should be a valid"),
        ("{", "Inval"),
    ):
        with pytest.raises(ValidationError) as raised:
            TypeAdapter(Thing).validate_json(content, strict=True)
        assert one_line(raised.value).startswith(said)


@quick
@given(st.dictionaries(st.text(max_size=4), st.integers() | st.floats(-10, 10) | st.text(max_size=4), max_size=6))
def test_content_has_one_spelling_whatever_the_order_of_keys(value: dict[str, object]) -> None:
    reordered = dict(reversed(value.items()))
    assert canonical(value) == canonical(reordered)
    assert digest(value) == digest(reordered)
    assert json.loads(canonical(value)) == value
    assert " " not in canonical({"a": [1, 2], "b": 3})


def test_content_that_means_the_same_is_spelt_alike_and_other_content_is_not() -> None:
    assert canonical({"a": (1.0, 2)}) == canonical({"a": [1, 2.0]}) == '{"a":[1,2]}'
    assert len({digest(value) for value in (1, "1", [1], {"1": 1}, None, "null", True, 1.5, {}, [])}) == 10
    assert digest(Absent("why")) == digest({"absent": "why"})
    with pytest.raises(TypeError, match="keys should be strings, not 1"):
        canonical({"deep": [{1: 2}]})


def test_weights_are_told_by_their_bytes_or_their_name(tmp_path: Path) -> None:
    one, copy, other = (tmp_path / name for name in ("a.pt", "b.pt", "c.pt"))
    one.write_bytes(b"weights")
    copy.write_bytes(b"weights")
    other.write_bytes(b"other weights")
    found = [hashing.weights_identity(str(path)) for path in (one, copy, other)]
    assert found[0] == found[1] != found[2]
    assert hashing.weights_identity("open_clip:RN50/openai") == "open_clip:RN50/openai"
    gone = hashing.weights_identity(str(tmp_path / "none.pt"))
    assert gone == Absent(f"{tmp_path / 'none.pt'}: cannot be read: No such file or directory")


@quick
@given(st.integers(0, 2**63 - 1), st.integers(1, 5), st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_what_a_row_draws_does_not_depend_on_the_others(seed: int, draws: int, rows: list[int]) -> None:
    key = counter.word(seed, "purpose")
    together = counter.uniforms(key, np.array(rows, np.int64), draws)
    alone = np.concatenate([counter.uniforms(key, np.array([row], np.int64), draws) for row in rows])
    np.testing.assert_array_equal(together, alone)
    more = counter.uniforms(key, np.array(rows, np.int64), draws + 3)
    np.testing.assert_array_equal(together, more[:, :draws])
    assert ((together >= 0) & (together < 1)).all()


def test_draws_look_uniform_and_differ_by_seed_purpose_row_and_number() -> None:
    rows = np.arange(20_000)
    drawn = counter.uniforms(counter.word(0, "a"), rows, 2)
    assert len(np.unique(counter.random_words(counter.word(0, "a"), rows, 2))) == 40_000
    assert np.abs(np.histogram(drawn, 20, (0, 1))[0] - 2000).max() < 6 * 2000**0.5
    others = (drawn[:, 1], *(counter.uniforms(counter.word(*key), rows, 1)[:, 0] for key in ((1, "a"), (0, "b"))))
    for other in others:
        assert abs(np.corrcoef(drawn[:, 0], other)[0, 1]) < 0.03


def test_mixing_is_a_bijection_with_the_published_values() -> None:
    """The first outputs of SplitMix64 from seed 1234567, as in the reference implementation's tests."""
    gamma = np.uint64(0x9E3779B97F4A7C15)
    state = np.array([1234567], np.uint64) + gamma * np.arange(3, dtype=np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert counter.mix(state).tolist() == expected
    assert len(np.unique(counter.mix(np.arange(100_000, dtype=np.uint64)))) == 100_000


@quick
@given(st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=30), st.integers(0, 1000))
def test_whole_numbers_are_drawn_below_their_counts(counts: list[int], seed: int) -> None:
    drawn = counter.random_words(counter.word(seed), np.arange(len(counts)))[:, 0]
    found = counter.integers_below(np.array(counts), drawn)
    assert ((found >= 0) & (found < np.array(counts))).all()


def test_every_whole_number_below_a_count_is_equally_likely() -> None:
    drawn = counter.random_words(counter.word("x"), np.arange(30_000))[:, 0]
    counted = Counter(counter.integers_below(np.full(30_000, 3), drawn).tolist())
    assert set(counted) == {0, 1, 2}
    assert max(abs(count - 10_000) for count in counted.values()) < 500


@quick
@given(st.lists(st.text(max_size=6), unique=True, max_size=20), st.integers(0, 20))
def test_the_order_of_hashes_is_a_permutation_that_other_keys_leave_alone(keys: list[str], cut: int) -> None:
    order = counter.hash_order(keys, b"salt")
    assert sorted(order.tolist()) == list(range(len(keys)))
    some = keys[:cut]
    assert [some[row] for row in counter.hash_order(some, b"salt")] == [keys[row] for row in order if keys[row] in some]


def test_another_salt_gives_another_order() -> None:
    keys = [str(number) for number in range(50)]
    assert counter.hash_order(keys, b"one").tolist() != counter.hash_order(keys, b"two").tolist()


def test_the_data_folder_is_given_or_beside_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(data_folder.DATA_VARIABLE, raising=False)
    assert data_folder.data_root() == Path("data")
    monkeypatch.setenv(data_folder.DATA_VARIABLE, "")
    assert data_folder.data_root() == Path("data"), "an empty variable is none"
    monkeypatch.chdir(tmp_path)
    data_folder.use_data_folder(Path("here"))
    assert data_folder.data_root() == tmp_path / "here", "whole, so that processes elsewhere find it"
    assert data_folder.evaluation_folder() == tmp_path / "here" / "evaluation"


def test_what_stands_twice_is_found_at_its_second_place() -> None:
    assert no_duplicates((1, 2, 3)) == (1, 2, 3)
    with pytest.raises(Exception, match="2 is a duplicate") as caught:
        no_duplicates((1, 2, 3, 2))
    assert caught.value.context["at"] == [3]  # type: ignore[attr-defined]
