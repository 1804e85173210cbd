"""Index files as the papers' code writes them: which caption, or which image's captions, each image trains with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench import reading
from bench.arrays import Ints
from bench.catalogue.index_files import IndexFile, find_index_file
from bench.data.noise.images import ImageRows
from bench.data.noise.manifest import Noise, NoiseManifest
from bench.data.pairs import Pairs
from bench.data.text_sets import disjoint
from bench.errors import UserError, one_line
from bench.hashing import file_hash
from bench.suite.noise_settings import NoiseSettings

IMPORTED = "imported"


def import_ncr(path: Path, pairs: Pairs, rate: float | None = None) -> NoiseManifest:
    """Read an index file as NCR (Huang et al., NeurIPS 2021) and DECL (Qin et al., ACM MM 2022) publish them.

    A NumPy array in the data set's order. One entry a caption (NCR, L2RM, BiCro, PC2): entry i is the image that
    caption i is trained with, images counted 0..n/c - 1 and caption i belonging to image i // c; `pairs` have one row a
    caption. One entry an image (RCL, DECL): image entry[k] trains with all captions of image k; `pairs` have one row a
    caption or one an image. A row keeps its image: it takes the caption that the file gives to that image. The notes of
    the manifest hold the unit, the file's sha256 and the published file that it is. Raises UserError if the file does
    not fit the pairs, or its rate is not `rate`.
    """
    n, shape, images = len(pairs), index_shape(path), ImageRows.of(pairs)
    by_image = shape == (len(images),) != (n,)
    file = find_index_file(sha256 := file_hash(path))
    if (shape != (n,) and not by_image) or not n:
        raise UserError(f"{path}: shape {shape} with {_wanted(pairs, images, file)}")
    index = read_index_entries(path, shape[0])
    if by_image:
        moved = np.flatnonzero(index != np.arange(len(index)))
        if not np.array_equal(np.sort(index[moved]), moved):
            raise _not_permuted(path, "slots", pairs)
        rows, donors = images.swapped(index[moved], moved)
    else:
        own = images.numbers if images.by_caption else np.arange(n) // max(1, round(n / (int(index.max()) + 1)))
        moved = rows = np.flatnonzero(index != own)
        donors = moved[np.argsort(index[moved], kind="stable")]
        if not np.array_equal(own[moved], index[donors]):
            raise _not_permuted(path, "captions", pairs)
    realised = len(moved) / len(index)
    if rate is not None and abs(realised - rate) > 0.02 + 5 / len(index):  # a shuffle leaves a few in place
        what = "images have the captions of another" if by_image else "captions are at another image"
        fault = f"{realised:.1%} of its {what}, noise.rates says {rate:.1%}"
        raise UserError(f"{path}: {fault}; give each rate its own file, in the same order")
    lost = disjoint(pairs, rows, donors)
    rate = realised if rate is None else rate
    notes = {"unit": "image" if by_image or own[-1] == n - 1 else "caption", "sha256": sha256}
    notes |= {"published": file.name} if file else {}
    return NoiseManifest.of(pairs, IMPORTED, rate, -1, rows, donors, lost, notes=notes)


def _wanted(pairs: Pairs, images: ImageRows, file: IndexFile | None) -> str:
    counts = f"{len(pairs)} captions of {len(images)} images in {pairs.name}"
    if file is not None:
        counts = counts if images.by_caption else f"{len(pairs)} pairs in {pairs.name}"
        whose = f"published for {file.images:,} images of {file.data}, one entry a {file.unit}"
        return f"{counts}; it is {file.name}, {whose}"
    if images.by_caption:
        return f"{counts}; one entry per caption or per image is needed, so this is an index file of other pairs"
    fix = "one image and one row per caption are needed: `bench data index --each-caption` makes these"
    return f"{len(pairs)} pairs in {pairs.name}; {fix}"


def read_index_entries(path: Path, n: int) -> Ints:
    """Return the n entries of an index file. Raises UserError if one is not the number of an image."""
    try:
        index = reading.whole_numbers(reading.map_array(path).ravel("K"))
    except (OSError, ValueError) as error:
        raise _no_index_file(path, error) from error
    outside = np.flatnonzero((index < 0) | (index >= n))
    if len(outside):
        first = int(outside[0])
        raise UserError(f"{path}: entry {first} is {index[first]}; it should be the number of an image, 0 to {n - 1}")
    return index


def _not_permuted(path: Path, places: str, pairs: Pairs) -> UserError:
    return UserError(f"{path}: images are not permuted among {places}; this is not an index file of {pairs.name}")


def index_shape(path: Path) -> tuple[int, ...]:
    """Return the shape of an index file, without its entries. Raises UserError if it is no .npy file of numbers."""
    try:
        return reading.map_array(path).shape
    except (OSError, ValueError) as error:
        raise _no_index_file(path, error) from error


def _no_index_file(path: Path, error: Exception) -> UserError:
    fix = "it should be a .npy file of whole numbers, one per caption or per image, as NCR and DECL publish them"
    return UserError(f"{path}: not a NumPy index file ({one_line(error, 200)}); {fix}")


def make_imported(pairs: Pairs, settings: NoiseSettings, rate: float, _seed: int) -> Noise:
    """Make the noise of the entry "imported"; errors as in `import_ncr`."""
    file = settings.file(rate)
    assert file is not None
    return import_ncr(Path(file), pairs, rate)
