"""Treatments of the training data: which rows a run may see. One module a kind; `KEEPS` lists them.

A script adds one with `KEEPS.add(Keep(...))` before it loads a suite.
"""

from bench.catalogue.keep.distance import DISTANCE
from bench.catalogue.keep.entry import Asked, Keep
from bench.catalogue.keep.everything import ALL
from bench.catalogue.keep.oracle import ORACLE
from bench.catalogue.keep.random_share import RANDOM
from bench.catalogue.keep.score import SCORE
from bench.catalogue.keep.trusted import TRUSTED
from bench.registry import Registry

__all__ = ["KEEPS", "Asked", "Keep"]

KEEPS: Registry[Keep] = Registry(
    "a treatment of the data", (ALL, ORACLE, TRUSTED, SCORE, DISTANCE, RANDOM), absent="not offered"
)
