"""Results on disk: plain files, atomic, content-addressed. Imports neither torch nor pandas."""

from bench.store.claim import Busy, Claim
from bench.store.reading import Damaged
from bench.store.run import Record, RunStore, Store

__all__ = ["Busy", "Claim", "Damaged", "Record", "RunStore", "Store"]
