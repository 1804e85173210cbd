"""Noise: which training pairs are corrupted, how, and where their captions come from.

A run has one kind of noise (`bench.catalogue.noise_kinds`). Fixed noise corrupts rows for the whole run: a manifest
lists the corrupted rows and their donors. Other kinds draw captions anew within the batch in every step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bench import counter, reading
from bench.arrays import Ints
from bench.data.pairs import Pairs
from bench.data.strings import Strings
from bench.data.text_sets import TextSets, of_rows
from bench.errors import UserError, one_line
from bench.store.reading import Damaged

if TYPE_CHECKING:
    from bench.suite.noise_settings import NoiseSettings

SHUFFLED, RESAMPLED, IMPORTED = "shuffled_captions", "resampled_positives", "imported"


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

    @property
    def mixed(self) -> bool:
        """Whether both corrupted and clean rows are known, so that noise can be detected."""
        return 0 < self.corrupted < self.n


@dataclass(frozen=True, eq=False)
class NoiseManifest(Noise):
    """Corrupted rows and their donors: row rows[i] takes the captions of row donors[i].

    A kind that edits texts or images is a subclass. It overrides `texts` or `applied`, and extends `content_hash` and
    `save` by the parameters that determine the edits.
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

    @cached_property
    def content_hash(self) -> str:
        """sha256 over the manifest's effect: number of rows, keys and donor keys."""
        digest = hashlib.sha256(repr((self.n, len(self.keys))).encode())
        for keys in (self.keys, self.donor_keys):
            for piece in Strings.of(keys).joined("\0"):
                digest.update(piece)
            digest.update(b"\0\0")
        return digest.hexdigest()

    @property
    def summary(self) -> ManifestSummary:
        """The manifest without its rows."""
        return ManifestSummary(self.content_hash, self.realised_rate, len(self.rows), self.n)

    @property
    def mixed(self) -> bool:
        """Whether both corrupted and clean rows are known, so that noise can be detected."""
        return 0 < len(self.rows) < self.n

    def donors_of(self, rows: Ints) -> Ints:
        """Map rows [b] to the rows [b] whose captions they take; a clean row maps to itself."""
        if not len(self.rows):
            return rows
        at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[at] == rows, self.donors[at], rows)

    def texts(self, pairs: Pairs, rows: Ints) -> list[tuple[str, ...]]:
        """Return the texts of the donors for corrupted rows and a row's own texts for clean ones."""
        return super().texts(pairs, self.donors_of(rows))

    def check(self, pairs: Pairs) -> None:
        """Raise UserError unless the manifest was made for these pairs."""
        fits = len(pairs) == self.n and all(
            Strings.of(pairs.keys).take(rows) == Strings.of(keys)
            for rows, keys in ((self.rows, self.keys), (self.donors, self.donor_keys))
        )
        if not fits:
            raise UserError(f"noise manifest ({self.n} rows) was not made for {pairs.name} ({len(pairs)} rows)")

    def save(self, path: Path) -> None:
        """Write Parquet: columns key, donor_key, row, donor_row; the other fields as JSON in the schema's metadata.

        Raises OSError if the file cannot be written.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        about = {"kind": self.kind, "rate": self.rate, "seed": self.seed, "n": self.n}
        about["realised_rate"] = self.realised_rate
        columns = {"key": self.keys, "donor_key": self.donor_keys}
        arrays = {name: Strings.of(values).array.cast(pa.string()) for name, values in columns.items()}
        table = pa.table({**arrays, "row": self.rows, "donor_row": self.donors})
        pq.write_table(table.replace_schema_metadata({"noise": json.dumps(about)}), path)

    @classmethod
    def load(cls, path: Path) -> NoiseManifest:
        """Read a manifest that `save` wrote. Raises Damaged if the file is missing, cut or something else."""
        import pyarrow as pa

        try:
            table = reading.parquet(path, ("key", "donor_key", "row", "donor_row"))
            about = reading.parsed((table.schema.metadata or {})[b"noise"])
            types = {"kind": str, "rate": float | int, "seed": int, "n": int, "realised_rate": float | int}
            if set(about) != set(types) or not all(isinstance(about[name], types[name]) for name in types):
                raise ValueError("its description has other fields")
            if any(column.null_count for column in table.columns):
                raise ValueError("it has gaps")
            rows, donors = (table[name].cast(pa.int64()).to_numpy() for name in ("row", "donor_row"))
            if len(rows) and not (min(rows[0], donors.min()) >= 0 and max(rows[-1], donors.max()) < about["n"]):
                raise ValueError(f"it names rows outside 0 to {about['n'] - 1}")
            if (np.diff(rows) <= 0).any():
                raise ValueError("its rows are not in order")
            keys, donor_keys = (Strings(table[name].cast(pa.large_string())) for name in ("key", "donor_key"))
        except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
            fault = f"not a noise manifest ({one_line(error, 200)})"
            raise Damaged(path, fault, "`bench run` writes them as Parquet") from error
        return cls(rows=rows, donors=donors, keys=keys, donor_keys=donor_keys, **about)


def shuffled_captions(pairs: Pairs, rate: float, seed: int) -> NoiseManifest:
    """Corrupt the round(rate * n) rows with the smallest keyed hash of their key.

    So the corrupted rows of a lower rate are among those of a higher one, and the order of files does not matter. In
    the order of the hashes each row takes the captions of the next, in one cycle over all corrupted rows; a donor with
    the same caption set is skipped and used later. Raises UserError if the rate is not in [0, 1] or no such cycle
    exists.
    """
    _check_rate(rate)
    n = len(pairs)
    count = round(rate * n)
    order = counter.hash_order(pairs.keys, str(seed).encode())[:count]
    texts = TextSets.of(pairs, order)
    cycle = _cycle(order.tolist(), texts.kinds(order).tolist(), f"{pairs.name} at rate {rate:g}")
    rows, donors = cycle, np.roll(cycle, -1)
    return _manifest(pairs, texts, SHUFFLED, rate, seed, rows, donors)


def import_ncr(path: Path, pairs: Pairs, rate: float | None = None) -> NoiseManifest:
    """Read an index file as NCR (Huang et al., NeurIPS 2021) and DECL (Qin et al., ACM MM 2022) publish them.

    A NumPy array over captions in the data set's order; entry i is the image that caption i is trained with, images
    counted 0..n/c - 1 and caption i belonging to image i // c. `pairs` must have one row a caption, keys in the same
    order (`bench data index --each-caption` where images have several). A row keeps its image: it takes the caption
    that the file gives to that image. Raises UserError if the file does not fit the pairs, or its rate is not `rate`.
    """
    n, shape = len(pairs), index_shape(path)
    if shape != (n,) or not n:
        fix = "one image a caption is needed, and one row a caption: `bench data index --each-caption` makes these"
        raise UserError(f"{path}: shape {shape} with {n} pairs in {pairs.name}; {fix}")
    try:
        with reading.opened(path) as file:
            index = reading.whole(reading.numbers(file))
    except (OSError, ValueError) as error:
        raise _no_index_file(path, error) from error
    outside = np.flatnonzero((index < 0) | (index >= n))
    if len(outside):
        first = int(outside[0])
        raise UserError(f"{path}: entry {first} is {index[first]}; it should be the number of an image, 0 to {n - 1}")
    own = np.arange(n) // max(1, round(n / (int(index.max()) + 1)))
    wrong = np.flatnonzero(index != own)
    donors = wrong[np.argsort(index[wrong], kind="stable")]
    if not np.array_equal(own[wrong], index[donors]):
        raise UserError(f"{path}: images are not permuted among captions; this is no index file of {pairs.name}")
    _check_realised(path, rate, len(wrong) / n, n)
    stated = len(wrong) / n if rate is None else rate
    return _manifest(pairs, TextSets.of(pairs, wrong), IMPORTED, stated, -1, wrong, donors)


def index_shape(path: Path) -> tuple[int, ...]:
    """Return the shape of an index file, without its entries. Raises UserError if it is no .npy file of numbers."""
    try:
        with reading.opened(path) as file:
            return reading.array_shape(file)
    except (OSError, ValueError) as error:
        raise _no_index_file(path, error) from error


def _no_index_file(path: Path, error: Exception) -> UserError:
    fix = "it should be a .npy file of whole numbers, one a caption, as NCR and DECL publish them"
    return UserError(f"{path}: not a NumPy index file ({one_line(error, 200)}); {fix}")


def make_shuffled(pairs: Pairs, _settings: NoiseSettings, rate: float, seed: int) -> Noise:
    """Make the noise of the entry "shuffled_captions"; errors as in `shuffled_captions`."""
    return shuffled_captions(pairs, rate, seed)


def make_resampled(_pairs: Pairs, _settings: NoiseSettings, rate: float, seed: int) -> Noise:
    """Make the noise of the entry "resampled_positives". Raises UserError if the rate is not in [0, 1]."""
    return Resampled(rate, seed)


def make_imported(pairs: Pairs, settings: NoiseSettings, rate: float, _seed: int) -> Noise:
    """Make the noise of the entry "imported"; errors as in `import_ncr`."""
    file = settings.file(rate)
    assert file is not None
    return import_ncr(Path(file), pairs, rate)


def noisy_mask(manifest: NoiseManifest, n: int) -> npt.NDArray[np.bool_]:
    """Return bool [n], true for corrupted rows."""
    mask = np.zeros(n, bool)
    mask[manifest.rows] = True
    return mask


@dataclass(frozen=True)
class Resampled(Noise):
    """Resampled positives: in every step floor(rate * B) rows take the caption of a row drawn from the batch.

    Raises UserError if the rate is not in [0, 1].
    """

    rate: float
    seed: int
    kind: str = RESAMPLED

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def donors_in_batch(self, step: int, batch: int) -> Ints:
        """Return int64 [batch]: the position whose caption each row takes, drawn uniformly from all of the batch."""
        positions = np.arange(batch, dtype=np.int64)
        drawn = counter.words(counter.word(self.seed, "resampled", step), positions, 2)
        count = int(self.rate * batch + 1e-9)  # 0.29 * 100 is 28.999... in binary and means 29
        chosen = np.argsort(drawn[:, 0], kind="stable")[:count]
        positions[chosen] = counter.below(np.full(len(chosen), batch), drawn[chosen, 1])
        return positions


def caption_choice(counts: Ints, rows: Ints, epoch: int, seed: int) -> Ints:
    """Return int64 [b]: the index in 0..counts[i]-1 that row rows[i] draws, keyed by (seed, row, epoch) alone."""
    return counter.below(counts, counter.words(counter.word(seed, "captions", epoch), rows)[:, 0])


def draw_captions(pairs: Pairs, noise: Noise | None, rows: Ints, epoch: int, seed: int) -> list[str]:
    """Return the b captions that `rows` [b] train with in an epoch, drawn from the texts that the noise gives them."""
    texts = (noise or Noise()).texts(pairs, rows)
    choice = caption_choice(np.array([len(t) for t in texts], np.int64), rows, epoch, seed)
    return [t[i] for t, i in zip(texts, choice.tolist(), strict=True)]


def _check_rate(rate: float) -> None:
    if not 0.0 <= rate <= 1.0:
        raise UserError(f"noise rate is {rate:g}; it must lie between 0 and 1")


def _check_realised(path: Path, rate: float | None, realised: float, n: int) -> None:
    """A shuffle leaves a few captions in place, so the realised rate may differ from `rate` by a little."""
    if rate is not None and abs(realised - rate) > 0.02 + 5 / n:
        raise UserError(
            f"{path}: {realised:.1%} of its captions are at another image, noise.rates says {rate:.1%}; "
            "give each rate its own file, in the same order"
        )


def _cycle(rows: list[int], kinds: list[int], what: str) -> Ints:
    """Reorder rows as little as possible into a cycle whose neighbours differ in kind.

    A row of the same kind as the one before it waits, and is inserted after the next row of another kind. The rows
    that still wait at the end are all of one kind; they are inserted between neighbours that are both of other kinds.
    There are enough such places exactly if no kind has more than half of the rows. Raises UserError otherwise.
    """
    placed: list[int] = []  # indices into `rows`
    waiting: list[int] = []  # indices of rows of the kind that was placed last
    for i, kind in enumerate(kinds):
        if placed and kind == kinds[placed[-1]]:
            waiting.append(i)
            continue
        placed.append(i)
        if waiting:
            placed.append(waiting.pop())
    if len(placed) > 1 and kinds[placed[0]] == kinds[placed[-1]]:
        waiting.append(placed.pop())
    if waiting:
        kind = kinds[waiting[0]]
        spread: list[int] = []
        for here, after in pairwise([*placed, placed[0]]):
            spread.append(here)
            if waiting and kind not in (kinds[here], kinds[after]):
                spread.append(waiting.pop())
        placed = spread
    if waiting or len(placed) == 1:
        raise UserError(
            f"{what}: {len(rows)} rows cannot swap captions, more than half of them have the same ones; change the rate"
        )
    return np.array([rows[i] for i in placed], dtype=np.int64)


def _manifest(
    pairs: Pairs, texts: TextSets, kind: str, rate: float, seed: int, rows: Ints, donors: Ints
) -> NoiseManifest:
    order = np.argsort(rows, kind="stable")
    rows, donors = rows[order], donors[order]
    keys = Strings.of(pairs.keys)
    return NoiseManifest(
        kind=kind,
        rate=rate,
        seed=seed,
        n=len(pairs),
        rows=rows,
        donors=donors,
        keys=keys.take(rows),
        donor_keys=keys.take(donors),
        realised_rate=texts.disjoint(rows, donors) / max(1, len(pairs)),
    )
