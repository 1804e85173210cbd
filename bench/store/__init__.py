"""Results on disk: plain files, atomic, content-addressed. Imports neither torch nor pandas."""

from bench.store.claim import Claim
from bench.store.fence import Busy, ClaimLost
from bench.store.reading import Damaged
from bench.store.run import Record, RunStore, Store
from bench.store.writer import Finished, RunWriter, writing

__all__ = ["Busy", "Claim", "ClaimLost", "Damaged", "Finished", "Record", "RunStore", "RunWriter", "Store", "writing"]
