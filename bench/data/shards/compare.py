"""Compares an index with a published one."""

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
    """The keys whose rows differ, relative to the manifest: "missing" keys are in it and not in the index."""

    rows: int  #: number of rows of the index
    stated: int  #: number of rows of the manifest
    missing: Strings
    extra: Strings
    captions: Strings  #: keys in both, with other captions
    images: Strings  #: keys in both, with another image file

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return not any(map(len, (self.missing, self.extra, self.captions, self.images)))

    def lines(self) -> list[str]:
        """Return the lines that the command prints."""
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
                f"  {len(keys):,} {difference}: {', '.join(keys[:EXAMPLES])}{', ...' if len(keys) > EXAMPLES else ''}"
                for difference, keys in named.items()
                if len(keys)
            ),
        ]


def compare(index: Path, manifest: Path) -> Comparison:
    """Compare two index files by key. Raises UserError if one of them is missing or not an index."""
    ours, theirs = Index.read(index, _COLUMNS), Index.read(manifest, _COLUMNS)
    at = pc.index_in(ours.table["key"], value_set=theirs.table["key"].combine_chunks())
    extra = pc.is_null(at).to_numpy()
    here = np.flatnonzero(~extra)
    there = pc.drop_null(at).to_numpy().astype(np.int64)
    matched = np.zeros(theirs.about.rows, bool)
    matched[there] = True
    differ = (ours.hashes("hash")[here] != theirs.hashes("hash")[there]).any(axis=1)
    here, there = here[differ], there[differ]
    images = (ours.hashes("digest")[here] != theirs.hashes("digest")[there]).any(axis=1)
    captions = _captions(ours, here) != _captions(theirs, there)
    return Comparison(
        ours.about.rows,
        theirs.about.rows,
        theirs.keys.take(np.flatnonzero(~matched)),
        ours.keys.take(np.flatnonzero(extra)),
        ours.keys.take(here[captions]),
        ours.keys.take(here[images]),
    )


def _captions(index: Index, rows: Ints) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Return the captions of `rows` [m], a list each, as an object array [m]."""
    captions = np.empty(len(rows), object)
    captions[:] = index.captions.take(pa.array(rows)).to_pylist()
    return captions
