"""How an index differs from a published one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.arrays import Ints
from bench.data.shards.index import Index
from bench.data.strings import Strings

EXAMPLES = 3
_COLUMNS = ("key", "captions", "digest", "hash")


@dataclass(frozen=True)
class Comparison:
    """Keys by how they differ. The manifest is the measure: "missing" is in it and not in the index."""

    rows: int  #: of the index
    stated: int  #: of the manifest
    missing: Strings
    extra: Strings
    captions: Strings  #: in both, with other captions
    images: Strings  #: in both, with another image file

    @property
    def equal(self) -> bool:
        """No difference."""
        return not any(map(len, (self.missing, self.extra, self.captions, self.images)))

    def lines(self) -> list[str]:
        """For people."""
        if self.equal:
            return [f"equal: {self.rows:,} rows with the same keys, captions and images"]
        named = {
            "missing": self.missing,
            "extra": self.extra,
            "with other captions": self.captions,
            "with another image": self.images,
        }
        return [
            f"{self.rows:,} rows, {self.stated:,} in the manifest",
            *(
                f"  {len(keys):,} {what}: {', '.join(keys[:EXAMPLES])}{', ...' if len(keys) > EXAMPLES else ''}"
                for what, keys in named.items()
                if len(keys)
            ),
        ]


def compare(index: Path, manifest: Path) -> Comparison:
    """Compare by key. UserError where one of the files is no index."""
    ours, theirs = Index.read(index, _COLUMNS), Index.read(manifest, _COLUMNS)
    at = pc.index_in(ours.table["key"], value_set=theirs.table["key"].combine_chunks())
    extra = pc.is_null(at).to_numpy()
    here = np.flatnonzero(~extra)
    there = pc.drop_null(at).to_numpy().astype(np.int64)
    kept = np.zeros(theirs.about.rows, bool)
    kept[there] = True
    differ = (ours.hashes("hash")[here] != theirs.hashes("hash")[there]).any(axis=1)
    here, there = here[differ], there[differ]
    images = (ours.hashes("digest")[here] != theirs.hashes("digest")[there]).any(axis=1)
    captions = _captions(ours, here) != _captions(theirs, there)
    return Comparison(
        ours.about.rows,
        theirs.about.rows,
        theirs.keys.take(np.flatnonzero(~kept)),
        ours.keys.take(np.flatnonzero(extra)),
        ours.keys.take(here[captions]),
        ours.keys.take(here[images]),
    )


def _captions(index: Index, rows: Ints) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    found = np.empty(len(rows), object)
    found[:] = index.captions.take(pa.array(rows)).to_pylist()
    return found
