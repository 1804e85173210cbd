"""Treatments of the training data: which rows a run may see. One module a kind; `KEEPS` lists them."""

from bench.keep.entry import Asked, Keep
from bench.keep.everything import ALL
from bench.keep.oracle import ORACLE
from bench.keep.random_share import RANDOM
from bench.keep.trusted import TRUSTED

__all__ = ["KEEPS", "Asked", "Keep"]

KEEPS: dict[str, Keep] = {keep.name: keep for keep in (ALL, ORACLE, TRUSTED, RANDOM)}
