"""Index files of noise that was drawn here, as RCL, NCR and others read them: the inverse of `imported`."""

from __future__ import annotations

import io
from typing import Literal

import numpy as np

from bench.arrays import Ints
from bench.data.noise.images import Images
from bench.data.noise.imported import images_of
from bench.data.noise.manifest import NoiseManifest
from bench.data.pairs import Pairs
from bench.errors import UserError

Unit = Literal["caption", "image"]


def exported(pairs: Pairs, manifest: NoiseManifest, unit: Unit | None = None, captions: int = 1) -> bytes:
    """Return a .npy file of int64, version 1.0, that makes `import_ncr` give each image the captions of the manifest.

    unit: "caption" (NCR, L2RM, BiCro, PC2): the image that trains with each caption; "image" (RCL, DECL): the image
    that trains with all captions of each image; by default captions where the pairs have a row for each. captions:
    rows an image, where the pairs do not name their images. Raises UserError for noise that such a file cannot say.
    """
    manifest.check(pairs)
    images = images_of(pairs, len(pairs) // captions if len(pairs) % captions == 0 else 0)
    if captions > 1 and len(images) * captions != len(pairs):
        raise UserError(f"--captions {captions}: {pairs.name} has {len(images)} images in {len(pairs)} rows")
    if manifest.edited is not None or (manifest.rows == manifest.donors).any():
        raise UserError(f"{manifest.kind}: changes texts or images; an index file says which captions are swapped")
    unit = unit or ("caption" if images.by_caption else "image")
    index = _by_image(images, manifest) if unit == "image" or not images.by_caption else _by_caption(images, manifest)
    if unit == "caption" and not images.by_caption:
        index = np.repeat(index, _captions(pairs))
    file = io.BytesIO()
    np.save(file, index.astype("<i8"))
    return file.getvalue()


def unsaid(pairs: Pairs, manifest: NoiseManifest, captions: int = 1) -> int:
    """Return how many rows have another caption of their own image, which no index file says."""
    own = images_of(pairs, len(pairs) // captions).numbers
    return int(((own[manifest.rows] == own[manifest.donors]) & (manifest.rows != manifest.donors)).sum())


def _by_caption(images: Images, manifest: NoiseManifest) -> Ints:
    counts = np.diff(images.starts)
    if (counts != counts[0]).any() or (images.rows != np.arange(manifest.n)).any():
        raise UserError("--unit caption: needs as many captions an image for all images, image after image")
    if not np.array_equal(np.sort(manifest.donors), manifest.rows):
        raise UserError(f"--unit caption: {manifest.kind} uses some captions twice; an index file has each once")
    index = images.numbers
    index[manifest.donors] = index[manifest.rows]
    return index


def _by_image(images: Images, manifest: NoiseManifest) -> Ints:
    """Return the image that trains with the captions of each, [g]."""
    own = images.numbers
    sources = own[manifest.donors_of(images.rows)]  # [n], image after image
    taken = sources[images.starts[:-1]]
    index = np.empty(len(images), np.int64)
    index[taken] = numbers = np.arange(len(images))
    moved = np.flatnonzero(taken != numbers)
    rows, donors = images.swapped(moved, taken[moved])
    alike = np.array_equal(donors[np.argsort(rows)], manifest.donors) or np.array_equal(
        np.sort(manifest.donors), manifest.rows
    )
    whole = np.array_equal(sources, np.repeat(taken, np.diff(images.starts))) and alike
    if not whole or not np.array_equal(np.sort(taken), numbers):
        raise UserError(
            f"--unit image: {manifest.kind} moves captions of an image apart; export it with --unit caption"
        )
    return index


def _captions(pairs: Pairs) -> int:
    counts = {len(pairs.captions(row)) for row in range(len(pairs))}
    if len(counts) > 1:
        most = f"{min(counts)} to {max(counts)}"
        raise UserError(f"--unit caption: images of {pairs.name} have {most} captions; export it with --unit image")
    return counts.pop() if counts else 1
