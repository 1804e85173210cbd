"""Strings in an Arrow array behave as a tuple of them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data import strings
from bench.data.strings import Strings

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=12)


def split(values: list[str], at: int) -> Strings:
    """The same strings in two chunks, as tables of several row groups have them."""
    return Strings(pa.chunked_array([pa.array(part, pa.large_string()) for part in (values[:at], values[at:])]))


def each_chunk(check) -> None:
    """Check sequences longer than what is converted at a time, and shorter. Hypothesis takes no such fixtures."""
    before = strings.CHUNK
    try:
        for strings.CHUNK in (2, before):
            check()
    finally:
        strings.CHUNK = before


@settings(deadline=None, max_examples=80)
@given(texts, st.integers(0, 12), st.slices(12))
def test_they_read_as_a_tuple(values, at, part):
    def check() -> None:
        for sequence in (Strings.of(values), split(values, at)):
            assert len(sequence) == len(values)
            assert list(sequence) == values
            assert [sequence[i] for i in range(-len(values), len(values))] == values + values
            assert isinstance(sequence[part], Strings)
            assert list(sequence[part]) == values[part]

    each_chunk(check)


@settings(deadline=None, max_examples=80)
@given(texts, texts, st.integers(0, 12))
def test_equality_is_that_of_the_strings(values, others, at):
    def check() -> None:
        for other in (others, tuple(others), Strings.of(others), split(others, at)):
            assert (Strings.of(values) == other) == (values == others)
        assert Strings.of(values) == split(values, at)
        assert Strings.of([*values, "x"]) != split([*values, "y"], at)

    each_chunk(check)


def test_a_text_is_no_sequence_of_strings():
    sequence = Strings.of(["a", "b"])
    assert sequence != "ab"
    assert sequence != {"a", "b"}
    assert sequence != 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(sequence)


@settings(deadline=None, max_examples=60)
@given(texts.filter(bool), st.data())
def test_taken_rows_may_repeat_and_be_in_any_order(values, data):
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20))
    assert list(Strings.of(values).take(np.array(rows, np.int64))) == [values[row] for row in rows]


def test_a_row_that_is_not_there_is_an_error():
    sequence = Strings.of(["a", "b"])
    with pytest.raises(IndexError):
        sequence[2]
    for row in (2, -1):
        with pytest.raises(pa.ArrowIndexError):
            sequence.take(np.array([row]))


@settings(deadline=None, max_examples=80)
@given(texts, st.integers(0, 12), st.sampled_from(["\0", "\n", ", ", ""]))
def test_pieces_join_to_the_whole(values, at, separator):
    """Separators between pieces as well: hashes of data follow from these bytes."""

    def check() -> None:
        for sequence in (Strings.of(values), split(values, at)):
            assert b"".join(sequence.joined(separator)) == separator.join(values).encode()

    each_chunk(check)


def test_few_strings_are_python_objects_at_a_time(monkeypatch):
    monkeypatch.setattr(strings, "CHUNK", 2)
    assert list(Strings.of(list("abcde")).joined(",")) == [b"a,b", b",c,d", b",e"]


def test_strings_of_strings_are_themselves():
    sequence = Strings.of(["a"])
    assert Strings.of(sequence) is sequence
