"""Noise as training sees it, and the manifest of noise that is fixed for a run: its rows, donors and texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench import counter
from bench.arrays import Ints
from bench.data.pairs import Pairs
from bench.data.strings import TEXT_LISTS, Strings
from bench.data.text_sets import of_rows
from bench.errors import UserError


class Noise:
    """Changes training pairs. This base class changes nothing; a kind overrides the methods for what it changes."""

    def donors_in_batch(self, step: int, batch: int) -> Ints:
        """Return int64 [batch]: the position in the global batch whose caption each row takes in a step."""
        return np.arange(batch, dtype=np.int64)

    def texts(self, pairs: Pairs, rows: Ints) -> list[tuple[str, ...]]:
        """Return the texts that each of `rows` [b] draws its caption from, for the whole run."""
        return of_rows(pairs, rows)

    def applied(self, pairs: Pairs) -> Pairs:
        """Return the same rows with the images that training sees; `pairs` itself if no image is changed."""
        return pairs


@dataclass(frozen=True)
class ManifestSummary:
    """A few numbers about a manifest, for plans and progress."""

    hash: str  #: the manifest's `content_hash`
    realised_rate: float
    corrupted: int  #: number of corrupted rows
    n: int  #: number of training rows
    poisoned: bool = False  #: whether the rows are an attack, so that its success can be measured

    @property
    def mixed(self) -> bool:
        """Return whether both corrupted and clean rows are known, so that noise can be detected."""
        return 0 < self.corrupted < self.n


@dataclass(frozen=True, eq=False)
class NoiseManifest(Noise):
    """Corrupted rows and their donors: row rows[i] takes the captions of row donors[i], or texts of its own.

    A kind that changes images is a subclass. It overrides `applied`, and extends `content_hash` by the parameters that
    determine the change.
    """

    kind: str
    rate: float  #: the requested rate
    seed: int
    n: int  #: number of training rows
    rows: Ints  #: [m], rising
    donors: Ints  #: [m]
    keys: Sequence[str]
    donor_keys: Sequence[str]
    realised_rate: float  #: share of the n rows that have no correct caption left
    #: pyarrow Array of m lists of texts, in place of the donors'; an empty list = the row's texts are as they were
    edited: Any = field(default=None, kw_only=True)
    #: pyarrow Array of m texts, the part that each row has in an attack; None = there is no attack
    roles: Any = field(default=None, kw_only=True)
    #: the kind's parameters and measured properties, for readers; not part of the hash
    notes: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    @classmethod
    def of(
        cls, pairs: Pairs, kind: str, rate: float, seed: int, rows: Ints, donors: Ints, lost: int, **more: Any
    ) -> Self:
        """Make the manifest of `rows` [m], in any order, with their donors [m].

        lost: number of rows that have no correct caption left; more: further fields.
        """
        order = np.argsort(rows, kind="stable")
        rows, donors = rows[order], donors[order]
        all_keys = Strings.of(pairs.keys)
        keys, donor_keys = all_keys.take(rows), all_keys.take(donors)
        return cls(kind, rate, seed, len(pairs), rows, donors, keys, donor_keys, lost / max(1, len(pairs)), **more)

    @classmethod
    def of_attack(
        cls,
        pairs: Pairs,
        rate: float,
        seed: int,
        rows: Ints,
        texts: Sequence[str] | None,
        roles: Sequence[str],
        notes: Mapping[str, Any],
        **more: Any,
    ) -> Self:
        """Make the manifest of poisoned `rows` [m], rising, with a text [m] in place of each one's; None = they stay.

        roles: [m], the part that each row has in the attack; more: further fields.
        """
        lost, edited = 0, None
        if texts is not None:
            lost = sum(text not in pairs.captions(row) for row, text in zip(rows.tolist(), texts, strict=True))
            edited = pa.array([[text] for text in texts], TEXT_LISTS)
        parts = pa.array(roles, pa.string())
        return cls.of(pairs, "poison", rate, seed, rows, rows, lost, edited=edited, roles=parts, notes=notes, **more)

    @cached_property
    def content_hash(self) -> str:
        """sha256 over the manifest's effect: number of rows, keys, donor keys, and edited texts if there are any."""
        digest = hashlib.sha256(repr((self.n, len(self.keys))).encode())
        for keys in (self.keys, self.donor_keys):
            for piece in Strings.of(keys).joined("\0"):
                digest.update(piece)
            digest.update(b"\0\0")
        for texts in () if self.edited is None else self.edited:
            digest.update(repr(texts.as_py()).encode())
        return digest.hexdigest()

    @cached_property
    def wrong_rows(self) -> Ints:
        """The rows [w], rising, whose texts or image are not their own: all but those that an edit did not change."""
        if self.edited is None:
            return self.rows
        return self.rows[np.diff(self.edited.offsets.to_numpy()) > 0]

    @cached_property
    def summary(self) -> ManifestSummary:
        """The manifest without its rows."""
        poisoned = self.roles is not None
        return ManifestSummary(self.content_hash, self.realised_rate, len(self.wrong_rows), self.n, poisoned)

    def donors_of(self, rows: Ints) -> Ints:
        """Map rows [b] to the rows [b] whose captions they take; a clean row maps to itself."""
        places, corrupted = self._places(rows)
        donors = rows.copy()
        donors[corrupted] = self.donors[places[corrupted]]
        return donors

    def texts(self, pairs: Pairs, rows: Ints) -> list[tuple[str, ...]]:
        """Return the edited texts or those of the donors for corrupted rows, and a row's own texts for clean ones."""
        given = super().texts(pairs, self.donors_of(rows))
        if self.edited is not None:
            places, corrupted = self._places(rows)
            for at in np.flatnonzero(corrupted).tolist():
                given[at] = tuple(self.edited[int(places[at])].as_py()) or given[at]
        return given

    def _places(self, rows: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return where rows [b] stand in `self.rows`, and which of them do: a clean row's place is that of another."""
        places = np.searchsorted(self.rows, rows)
        inside = places < len(self.rows)
        inside[inside] = self.rows[places[inside]] == rows[inside]
        return places, inside

    def check(self, pairs: Pairs) -> None:
        """Raise UserError unless the manifest was made for these pairs."""
        fits = len(pairs) == self.n and all(
            Strings.of(pairs.keys).take(rows) == Strings.of(keys)
            for rows, keys in ((self.rows, self.keys), (self.donors, self.donor_keys))
        )
        if not fits:
            raise UserError(f"noise manifest ({self.n} rows) was not made for {pairs.name} ({len(pairs)} rows)")

    def save(self, target: Path) -> None:
        """Write Parquet for other programs: key, donor_key, row, donor_row; "edited", lists of texts; "poison", roles.

        The other fields are JSON in the schema's metadata.

        Raises OSError if the file cannot be written.
        """
        about: dict[str, Any] = {"kind": self.kind, "rate": self.rate, "seed": self.seed, "n": self.n}
        about |= {"realised_rate": self.realised_rate, **({"notes": dict(self.notes)} if self.notes else {})}
        columns = {"key": self.keys, "donor_key": self.donor_keys}
        arrays = {name: Strings.of(values).array.cast(pa.string()) for name, values in columns.items()}
        others = {"edited": self.edited, "poison": self.roles}
        others = {name: values for name, values in others.items() if values is not None}
        table = pa.table({**arrays, "row": self.rows, "donor_row": self.donors, **others})
        pq.write_table(table.replace_schema_metadata({"noise": json.dumps(about)}), target)


def noisy_mask(manifest: NoiseManifest, n: int) -> npt.NDArray[np.bool_]:
    """Return bool [n], true for corrupted rows: those whose texts or image are not their own."""
    mask = np.zeros(n, bool)
    mask[manifest.wrong_rows] = True
    return mask


def first_rows(pairs: Pairs, rate: float, seed: int) -> Ints:
    """Return the round(rate * n) rows with the smallest keyed hash of their key, in the order of the hashes.

    All kinds that corrupt single rows take these.
    """
    return counter.hash_order(pairs.keys, str(seed).encode())[: round(rate * len(pairs))]


def caption_choice(counts: Ints, rows: Ints, epoch: int, seed: int) -> Ints:
    """Return int64 [b]: the index in 0..counts[i]-1 that row rows[i] draws, keyed by (seed, row, epoch) alone."""
    return counter.integers_below(counts, counter.random_words(counter.word(seed, "captions", epoch), rows)[:, 0])


def drawn_of(texts: Sequence[Sequence[str]], rows: Ints, epoch: int, seed: int) -> list[str]:
    """Return the text of each of `rows` [b] that it draws from its own `texts` in an epoch."""
    choice = caption_choice(np.array([len(t) for t in texts], np.int64), rows, epoch, seed)
    return [t[i] for t, i in zip(texts, choice.tolist(), strict=True)]
