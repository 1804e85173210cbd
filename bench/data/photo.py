"""Decodes image files and makes the pixels that evaluation and training see.

Only Pillow decodes and resizes, as in open_clip and webdataset: other decoders differ from it in the last bits.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from PIL import Image

from bench import counter
from bench.arrays import Pixels
from bench.catalogue import augmentations
from bench.catalogue.protocols import Mode

FORMATS = ("JPEG", "PNG", "WEBP")
CROP_RATIOS = (3 / 4, 4 / 3)  #: of a crop's width to its height
_JPEG = ("JPEG", "MPO")  #: Pillow's names of a JPEG, and of one that announces further images
MAX_SIDE_RATIO = 64  #: the largest ratio of the longer to the shorter side at which an image is resized whole
#: pixels of all scans of a JPEG together; encoders write about 10 scans, of at most 89 megapixels
MAX_SCANNED_PIXELS = 1 << 30
MIN_SCAN_PIXELS = 1 << 12  #: pixels that a scan costs at least
CROP_ATTEMPTS = 10  #: attempts to draw a crop that fits, as in torchvision
DRAWS_PER_IMAGE = 48  #: numbers in [0, 1) for an image: 22 for the crop, one for the flip, the rest for the change
Change = Callable[[Image.Image, Sequence[float]], Image.Image]
Interpolation: TypeAlias = Literal["bicubic", "bilinear"]
FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


@dataclass(frozen=True)
class Resize:
    """Resizing to a square for evaluation. Words, meaning and defaults are those of open_clip's PreprocessCfg."""

    #: "shortest": scale the shorter side to the size and crop the centre; "longest": scale the longer side to the size
    #: and pad the other; "squash": scale both sides to the size
    mode: Mode = "shortest"
    interpolation: Interpolation = "bicubic"
    fill: int = 0  #: value of all channels of the padding, 0 to 255

    @property
    def label(self) -> str:
        """A text that identifies the pixels. Hashes of data contain it, so the two oldest settings keep their names."""
        plain = {"shortest": "crop", "squash": "squash"}
        if self.mode in plain and self.interpolation == "bicubic":
            return plain[self.mode]
        return " ".join((self.mode, self.interpolation, *([str(self.fill)] if self.mode == "longest" else [])))


CROP, SQUASH = Resize(), Resize("squash")


@dataclass(frozen=True)
class PhotoRecipe:
    """The training augmentation of photographs; each recipe is an entry of `bench.catalogue.augmentations`."""

    #: range of the share of the area that a random crop covers; None: resize as in evaluation
    scale: tuple[float, float] | None = None
    flip: bool = False  #: flip left-right with probability 0.5
    before: Change | None = None  #: change of the whole image
    after: Change | None = None  #: change of the crop at its final size
    plain_first: bool = False  #: the first view is as in evaluation; only further views are augmented


class Undecodable(Exception):
    """The bytes are not a complete JPEG, PNG or WebP file; the message says why."""


def decode_image(data: bytes) -> Image.Image:
    """Decode the bytes of a JPEG, PNG or WebP file into an RGB image.

    As in webdataset and open_clip, EXIF orientation is ignored and alpha is dropped, not blended: published models saw
    such pixels. Grey of 16 bits keeps its upper 8, which Pillow's own conversion would turn white. Raises Undecodable
    for other bytes, damaged files, images of more than 89 megapixels, and a JPEG whose scans take too long.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            if excess := too_many_scans(data, image):
                raise Undecodable(excess)
            image.load()
            if image.mode.startswith("I"):
                return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8)).convert("RGB")
            return image.convert("RGB")
    except Undecodable:
        raise
    except Exception as error:  # Pillow's plugins raise many types for broken bytes
        raise Undecodable(f"{type(error).__name__}: {error}") from error


def too_many_scans(data: bytes, image: Image.Image) -> str:
    """Return why an opened JPEG would take minutes to load although its file is small: each scan may visit all pixels.

    Returns "" for other images. Scans are counted by their marker, which compressed data cannot hold; those of an
    embedded preview are counted, too.
    """
    scans = data.count(b"\xff\xda") if image.format in _JPEG else 0
    if scans * max(image.width * image.height, MIN_SCAN_PIXELS) <= MAX_SCANNED_PIXELS:
        return ""
    return f"{scans:,} scans of {image.width} x {image.height} pixels take too long; save it with fewer"


def evaluation_pixels(image: Image.Image, size: int, resize: Resize = CROP) -> Pixels:
    """Return uint8 [size, size, 3]: open_clip's evaluation transform before normalisation, to the last bit.

    An RGB image longer than 64 to 1 that will be cropped to its centre loses its ends first, to save memory.
    """
    kernel = FILTERS[resize.interpolation]
    if resize.mode == "squash":
        return np.asarray(image.resize((size, size), kernel))
    if resize.mode == "longest":
        ratio = max(image.size) / size
        width, height = (max(1, round(side / ratio)) for side in image.size)
        square = Image.new("RGB", (size, size), (resize.fill,) * 3)
        square.paste(image.resize((width, height), kernel), ((size - width) // 2, (size - height) // 2))
        return np.asarray(square)
    width, height = (min(side, MAX_SIDE_RATIO * min(image.size)) for side in image.size)
    if (width, height) != image.size:
        left, top = (image.width - width) // 2, (image.height - height) // 2
        image = image.crop((left, top, left + width, top + height))
    width, height = (int(size * side / min(image.size)) for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = image.resize((width, height), kernel)
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def training_pixels(image: Image.Image, row: int, epoch: int, seed: int, view: int, recipe: str, size: int) -> Pixels:
    """Return uint8 [size, size, 3] as training sees an RGB image; draws are keyed by (seed, row, epoch, view) alone.

    Raises UserError if `recipe` is not one of photographs.
    """
    do: PhotoRecipe = augmentations.augmentation_recipe(recipe, "photographs")
    if do.plain_first and not view:
        do = PhotoRecipe()
    key = counter.word(seed, "photograph", epoch, view)
    draws = counter.uniforms(key, np.array([row], np.int64), DRAWS_PER_IMAGE)[0].tolist()
    if do.before is not None:
        image = do.before(image, draws[23:])
    if do.scale is None:
        image = Image.fromarray(evaluation_pixels(image, size))
    else:
        image = image.crop(_crop_box(image.size, do.scale, draws[:22]))
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    if do.flip and draws[22] < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if do.after is not None:
        image = do.after(image, draws[23:])
    return np.asarray(image)


def _crop_box(size: tuple[int, int], scale: tuple[float, float], draws: Sequence[float]) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom of torchvision's RandomResizedCrop: draw area and ratio until the box fits."""
    width, height = size
    low, high = math.log(CROP_RATIOS[0]), math.log(CROP_RATIOS[1])
    for attempt in range(CROP_ATTEMPTS):
        area = width * height * (scale[0] + (scale[1] - scale[0]) * draws[2 * attempt])
        ratio = math.exp(low + (high - low) * draws[2 * attempt + 1])
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(draws[20] * (width - w + 1)), int(draws[21] * (height - h + 1))
            return left, top, left + w, top + h
    w, h = min(width, round(height * CROP_RATIOS[1])), min(height, round(width / CROP_RATIOS[0]))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h
