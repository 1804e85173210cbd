"""Files of noise: what one does to images and captions, and whether two overlap more than by chance."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.arrays import Ints
from bench.catalogue.index_files import IndexFile, recognised, sha256_of
from bench.data.noise.imported import entries, index_shape
from bench.data.noise.manifest import NoiseManifest
from bench.errors import UserError

CAPTIONS = 5  #: an image, in Flickr30K and COCO as papers train on them
SURPRISING = 4.0  #: standard deviations of an overlap from that of chance; fewer is called chance


def drawn(captions: int, rate: float, seed: int) -> bytes:
    """Return the index file that NCR's procedure writes: `CAPTIONS` captions an image, int(rate * n) of n shuffled.

    official: github.com/XLearning-SCU/2021-NeurIPS-NCR@60256ba data.py, with NumPy's legacy generator at `seed`.
    """
    generator = np.random.RandomState(seed)
    index, order = np.arange(captions, dtype="<i8") // CAPTIONS, np.arange(captions)
    generator.shuffle(order)
    chosen = order[: int(rate * captions)]
    images = index[chosen]
    generator.shuffle(images)
    index[chosen] = images
    file = io.BytesIO()
    np.save(file, index)
    return file.getvalue()


@dataclass(frozen=True, eq=False)
class NoiseFile:
    """An index file or a noise manifest: which image each of n captions or rows is trained with."""

    path: Path
    given: Ints  #: [n] image of each entry; of a row in a manifest, the row whose captions it has
    own: Ints  #: [n] image that each entry belongs to
    unit: str  #: "image", "caption" or "row" (of a manifest): what has an entry
    published: IndexFile | None

    @classmethod
    def read(cls, path: Path) -> NoiseFile:
        """Read a .npy index file or a manifest in Parquet. Raises UserError for anything else."""
        if path.suffix == ".parquet":
            manifest = NoiseManifest.load(path)
            own = np.arange(manifest.n, dtype=np.int64)
            given = own.copy()
            given[manifest.wrong_rows] = -1 if manifest.edited is not None else manifest.donors
            return cls(path, given, own, "row", None)
        shape = index_shape(path)
        if len(shape) != 1 or not shape[0]:
            raise UserError(f"{path}: shape {shape}; an index file has one entry a caption or an image")
        given = entries(path, shape[0])
        captions = max(1, round(len(given) / (int(given.max()) + 1)))
        own = np.arange(len(given)) // captions
        return cls(path, given, own, "image" if captions == 1 else "caption", recognised(sha256_of(path)))

    @cached_property
    def wrong(self) -> npt.NDArray[np.bool_]:
        """[n], true for entries off their own image."""
        wrong: npt.NDArray[np.bool_] = self.given != self.own
        return wrong

    def expanded(self, captions: int) -> NoiseFile:
        """Return the same noise with `captions` entries in place of each."""
        given, own = np.repeat(self.given, captions), np.repeat(self.own, captions)
        return NoiseFile(self.path, given, own, "caption", self.published)

    def by_image(self) -> NoiseFile:
        """Return a manifest as an index file has it, entry k for the captions of row k, if it moves captions alone."""
        back = np.argsort(self.given, kind="stable")
        moved = np.array_equal(self.given[back], self.own)
        return NoiseFile(self.path, back, self.own, "image", None) if moved else self

    def text(self) -> Iterator[str]:
        """Yield lines: entries, share of wrong ones, what they do to images, and the published file that it is."""
        count, share = len(self.given), self.wrong.mean()
        yield f"{self.path}: {count:,} entries, one a{'n' * (self.unit == 'image')} {self.unit}; {share:.2%} are wrong"
        if self.unit == "caption":
            of_image = np.bincount(self.own, self.wrong) / np.bincount(self.own)
            yield f"  images with a wrong caption: {(of_image > 0).mean():.2%}, with wrong captions only: " + (
                f"{(of_image == 1).mean():.2%}"
            )
        yield f"  published as {self.published.title}" if self.published else "  not a published file that is known"


def _alike(a: NoiseFile, b: NoiseFile) -> tuple[NoiseFile, NoiseFile]:
    """Return both with as many entries: a file by image is expanded to captions, a manifest beside it is by image.

    Raises UserError for other data.
    """
    if {a.unit, b.unit} == {"image", "row"}:
        a, b = (one.by_image() if one.unit == "row" else one for one in (a, b))
    few, many = sorted((a, b), key=lambda one: len(one.given))
    captions, rest = divmod(len(many.given), len(few.given))
    by_caption = few.unit == "image" and many.unit == "caption" and not rest
    if captions > 1 and by_caption and int(many.own[-1]) + 1 == len(few.given):
        return (a.expanded(captions), b) if few is a else (a, b.expanded(captions))
    if captions > 1 or rest:
        sizes = f"{len(a.given):,} and {len(b.given):,}"
        raise UserError(f"{a.path}, {b.path}: {sizes} entries; files of noise on the same data can be compared")
    return a, b


def compared(a: NoiseFile, b: NoiseFile) -> Iterator[str]:
    """Yield lines: the wrong entries that two files share, beside the number that chance gives, and a verdict.

    Chance: b's wrong entries drawn anew among all, so that the overlap is hypergeometric. Raises UserError if the files
    are of different data.
    """
    a, b = _alike(a, b)
    n, p, q = len(a.given), int(a.wrong.sum()), int(b.wrong.sum())
    both, either = int((a.wrong & b.wrong).sum()), int((a.wrong | b.wrong).sum())
    expected = p * q / n
    spread = math.sqrt(p * q * (n - p) * (n - q) / (n**2 * max(1, n - 1)))
    jaccard = both / max(1, either)
    yield f"wrong in both: {both:,} of {p:,} and {q:,}; chance {expected:,.0f} ± {spread:,.0f}"
    yield f"  Jaccard index {jaccard:.4f}; chance {expected / max(1, p + q - expected):.4f}"
    known = a.unit == b.unit or "row" not in (a.unit, b.unit)  # whether entries are numbers of the same things
    if known:
        same = int((a.wrong & b.wrong & (a.given == b.given)).sum())
        yield f"  wrong in the same way in both: {same:,}; equal entries: {(a.given == b.given).mean():.2%}"
    if known and np.array_equal(a.given, b.given):
        yield "They are the same noise."
    elif both == min(p, q) and both:
        inner, outer = (a, b) if p <= q else (b, a)
        yield f"Every wrong entry of {inner.path} is wrong in {outer.path}."
    elif abs(both - expected) < SURPRISING * spread:
        yield "They overlap as files that know nothing of each other do."
    else:
        yield f"They overlap {'more' if both > expected else 'less'} than by chance."
