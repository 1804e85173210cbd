"""Treatments of the training data: which rows a run may see. One module a kind; `KEEPS` lists them."""

from bench.catalogue.keep.entry import Asked, Keep
from bench.catalogue.keep.everything import ALL
from bench.catalogue.keep.oracle import ORACLE
from bench.catalogue.keep.random_share import RANDOM
from bench.catalogue.keep.trusted import TRUSTED

__all__ = ["KEEPS", "Asked", "Keep"]

KEEPS: dict[str, Keep] = {keep.name: keep for keep in (ALL, ORACLE, TRUSTED, RANDOM)}
