"""Semantic swap: rows swap captions with rows of similar texts, by a fixed rule."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from bench.arrays import Floats, Ints
from bench.data.noise.manifest import NoiseManifest, first_rows
from bench.data.noise.shuffled import derangement_cycle
from bench.data.pairs import Pairs
from bench.data.text_sets import disjoint

SPLIT_ROUNDS = 5  #: iterations in which a group of rows is split
DECIMALS = 6  #: of compared products, so that their last bits do not matter
SYNONYMOUS_COSINE = 0.9  #: cosine of two texts that say nearly the same


def text_vectors(pairs: Pairs, rows: Ints, kind: str) -> csr_array:
    """Return the tf-idf vectors [b, terms] of the first texts of `rows` [b], weighted over the first texts of all rows.

    They have unit length, or no entry. kind: "word" (lower case, letters and digits) or "char" (3 to 5 characters
    within words, padded by spaces).
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # importing it takes seconds

    terms = {"token_pattern": r"\b\w+\b"} if kind == "word" else {"analyzer": "char_wb", "ngram_range": (3, 5)}
    texts = [pairs.captions(row)[0] for row in range(len(pairs))]
    return csr_array(TfidfVectorizer(**terms).fit_transform(texts)[rows])


def semantic_swap(pairs: Pairs, rate: float, seed: int, leaf: int, vectors: str) -> NoiseManifest:
    """Corrupt the rows that `shuffled_captions` corrupts at the same rate and seed, with donors of similar first texts.

    The rows are parted in halves of similar texts until no part has more than `leaf` rows; along the order of the
    parts each row takes the captions of the next, in one cycle, and rows with the same first text are passed over. With
    a leaf of all rows this is `shuffled_captions`. Rows nest over rates, donors do not. The notes of the manifest hold
    the mean cosine of own and donor's text, the same for shuffled captions, and the share of nearly right captions.
    vectors: the `kind` of `text_vectors`. Raises UserError as `shuffled_captions` does.
    """
    order = first_rows(pairs, rate, seed)
    x = text_vectors(pairs, order, vectors)
    numbers = {text: i for i, text in enumerate(dict.fromkeys(pairs.captions(row)[0] for row in order.tolist()))}
    kinds = np.array([numbers[pairs.captions(row)[0]] for row in order.tolist()], np.int64)
    what = f"{pairs.name} at rate {rate:g}"
    near, shuffled = (
        derangement_cycle(places.tolist(), kinds[places].tolist(), what)
        for places in (_parted(x, leaf), np.arange(len(order)))
    )
    cosines, others = (x[places].multiply(x[np.roll(places, -1)]).sum(1) for places in (near, shuffled))
    rows, donors = order[near], order[np.roll(near, -1)]
    notes = {"leaf": leaf, "vectors": vectors}
    if len(rows):
        notes |= {"mean_cosine": float(cosines.mean()), "mean_cosine_of_shuffled_captions": float(others.mean())}
        notes |= {"nearly_right": float((cosines >= SYNONYMOUS_COSINE).mean())}
    lost = disjoint(pairs, rows, donors)
    return NoiseManifest.of(pairs, "semantic_swap", rate, seed, rows, donors, lost, notes=notes)


def _parted(x: csr_array, leaf: int) -> Ints:
    """Return the places 0..rows-1 in an order in which similar vectors stand together."""
    places = np.arange(rows := x.shape[0])
    if rows <= leaf:
        return places
    used, column = np.unique(x.indices, return_inverse=True)  # a part has few of all terms
    x = csr_array((x.data, column, x.indptr), shape=(rows, len(used)))
    first = np.round(x @ _pole(x[:1]), DECIMALS)
    a = 1 + int(first[1:].argmin())
    second = np.round(x @ _pole(x[a : a + 1]), DECIMALS)
    second[a] = np.inf
    sides = [places[a : a + 1], places[int(second.argmin())][None]]
    for _ in range(SPLIT_ROUNDS):
        toward = x @ _pole(x[sides[1]]) - x @ _pole(x[sides[0]])
        ordered = np.argsort(np.round(toward, DECIMALS), kind="stable")
        sides = [np.sort(ordered[: rows // 2]), np.sort(ordered[rows // 2 :])]
    return np.concatenate([side[_parted(x[side], leaf)] for side in sides])


def _pole(x: csr_array) -> Floats:
    """Return the mean of some vectors at unit length, [terms]."""
    total: Floats = x.sum(0)
    length = float(np.sqrt((total**2).sum()))
    return total / length if length else total
