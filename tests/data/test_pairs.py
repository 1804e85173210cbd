"""Pairs in memory, and the digits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import bench.data
from bench.data import MemoryPairs, Pairs
from bench.errors import UserError


def build(order=(0, 1, 2), **changes) -> MemoryPairs:
    keys, texts = ["b", "a", "é"], [["two"], ["one", "1"], ["three"]]
    pixels = changes.pop("pixels", np.arange(3 * 12, dtype=np.uint8).reshape(3, 2, 2, 3))
    columns = {"keys": keys, "texts": texts, "labels": {"digit": [1, 0, 1]}, "classes": {"digit": ("odd", "even")}}
    columns |= changes
    pick = list(order)
    return MemoryPairs.build(
        "toy/train",
        "three pairs",
        [columns["keys"][i] for i in pick],
        [columns["texts"][i] for i in pick],
        {label: [values[i] for i in pick] for label, values in columns["labels"].items()},
        columns["classes"],
        pixels[pick],
    )


def test_rows_follow_the_byte_order_of_keys():
    pairs = build()
    assert isinstance(pairs, Pairs)
    assert pairs.keys == ("a", "b", "é")
    assert [pairs.captions(row) for row in range(3)] == [("one", "1"), ("two",), ("three",)]
    assert pairs.labels["digit"].tolist() == [0, 1, 1]
    assert pairs.images(np.array([1]))[0].ravel().tolist() == list(range(12))


def test_content_hash_sees_content_not_order():
    pairs = build()
    assert pairs.content_hash == build(order=(2, 0, 1)).content_hash
    assert pairs.content_hash != build(texts=[["two"], ["one", "2"], ["three"]]).content_hash
    assert pairs.content_hash != build(labels={"digit": [1, 1, 1]}).content_hash
    assert pairs.content_hash != build(classes={"digit": ("odd", "uneven")}).content_hash
    assert pairs.content_hash != build(keys=["b", "a", "c"]).content_hash
    assert pairs.content_hash != build(pixels=np.zeros((3, 2, 2, 3), np.uint8)).content_hash


def test_select_renumbers_rows():
    chosen = build().select(np.array([False, True, True]))
    assert chosen.keys == ("b", "é")
    assert chosen.labels["digit"].tolist() == [1, 1]
    assert chosen.captions(1) == ("three",)
    assert len(chosen) == 2


def test_held_pixels_cannot_be_overwritten():
    with pytest.raises(ValueError, match="read-only"):
        build().pixels[0] = 0


def test_bad_rows_are_named():
    with pytest.raises(UserError, match="key 'a' is a duplicate"):
        build(keys=["a", "a", "c"])
    with pytest.raises(UserError, match="key 'b' has no caption"):
        build(texts=[[], ["one"], ["three"]])


def test_digits_are_scikit_learns():
    train, test = (bench.data.load_dataset(f"digits/{split}", 32) for split in ("train", "test"))
    found = load_digits()
    assert len(train) + len(test) == len(found.images) == 1797
    assert not set(train.keys) & set(test.keys)
    assert len(test) == round(0.25 * 1797)
    for row in range(0, len(test), 40):
        i = int(test.keys[row].removeprefix("digit-"))
        assert test.labels["digit"][row] == found.target[i]
        assert test.captions(row)[0] == test.classes["digit"][found.target[i]]
        ink = 255 - test.images(np.array([row]))[0, ..., 0].astype(float)
        shrunk = ink.reshape(8, 4, 8, 4).mean(axis=(1, 3))
        assert np.corrcoef(shrunk.ravel(), found.images[i].ravel())[0, 1] > 0.9
