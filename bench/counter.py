"""Counter-based randomness for whole arrays: what is drawn for (seed, purpose, row, ...) never depends on the others.

SplitMix64's finaliser (Steele, Lea & Flood, OOPSLA 2014) folded over the words of the key; integer arithmetic only, so
the numbers are the same in every NumPy version, on every machine and for any number of processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_BELOW_ONE = 1.0 - 2.0**-53  #: the largest number below 1


def mix(words: Words) -> Words:
    """SplitMix64's finaliser, a bijection of 64-bit words."""
    z = words + _GAMMA
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def word(*key: object) -> np.uint64:
    """A 64-bit word for a key of integers and strings, such as (seed, "captions", epoch)."""
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little"))


def hash_order(keys: Sequence[str], salt: bytes) -> npt.NDArray[np.int64]:
    """[n] rows by the hash of their key under `salt`; equal hashes by row. The first of them nest in more of them."""
    secret = hashlib.blake2b(salt, digest_size=16).digest()
    hashes = (hashlib.blake2b(key.encode(), digest_size=8, key=secret).digest() for key in keys)
    drawn = np.fromiter((int.from_bytes(h, "big") for h in hashes), np.uint64, len(keys))
    return np.argsort(drawn, kind="stable").astype(np.int64)


def random_words(key: np.uint64, rows: npt.NDArray[np.int64], draws: int = 1) -> Words:
    """[n, draws] independent words for each row under `key`."""
    base = mix(mix(rows.astype(np.uint64)) ^ key)[:, None]
    return mix(base + _GAMMA * np.arange(1, draws + 1, dtype=np.uint64))


def uniforms(key: np.uint64, rows: npt.NDArray[np.int64], draws: int) -> npt.NDArray[np.float32]:
    """[n, draws] numbers in [0, 1), multiples of 2^-24."""
    return (random_words(key, rows, draws) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def integers_below(counts: npt.NDArray[np.int64], drawn: Words) -> npt.NDArray[np.int64]:
    """Integers in [0, count) from words, element by element; counts below 2^32."""
    return ((drawn >> np.uint64(32)) * counts.astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def uniform_function(seed: int, purpose: str) -> Callable[..., float]:
    """Return a function that maps parts, such as a key and the number of a word, to a number in [0, 1)."""
    secret = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest()

    def draw(*parts: object) -> float:
        hashed = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8, key=secret)
        return min(int.from_bytes(hashed.digest(), "big") / 2.0**64, _BELOW_ONE)

    return draw
