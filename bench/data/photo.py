"""From the bytes of an encoded image to the pixels that evaluation and training see.

Pillow alone decodes and resizes, as in open_clip and webdataset: other decoders differ from it in the last bits.
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
RATIO = (3 / 4, 4 / 3)  #: of a crop's width to its height
STRIP = 64  #: times its height or width, the longest picture that is resized whole
ATTEMPTS = 10  #: at a crop that fits, as in torchvision
DRAWS = 48  #: numbers in [0, 1) a picture: 22 for the crop, one for the flip, the rest for the change
Change = Callable[[Image.Image, Sequence[float]], Image.Image]
Interpolation: TypeAlias = Literal["bicubic", "bilinear"]
FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


@dataclass(frozen=True)
class Resize:
    """How evaluation makes a picture a square. Words, meaning and defaults are those of open_clip's PreprocessCfg."""

    #: "shortest": the shorter side to the size, centre of the other; "longest": the longer side to the size, borders
    #: beside the other; "squash": both sides to the size
    mode: Mode = "shortest"
    interpolation: Interpolation = "bicubic"
    fill: int = 0  #: 0 to 255: the three channels of the borders

    @property
    def label(self) -> str:
        """Equal for equal pixels. It enters hashes of data; the two that came first keep their names."""
        plain = {"shortest": "crop", "squash": "squash"}
        if self.mode in plain and self.interpolation == "bicubic":
            return plain[self.mode]
        return " ".join((self.mode, self.interpolation, *([str(self.fill)] if self.mode == "longest" else [])))


CROP, SQUASH = Resize(), Resize("squash")


@dataclass(frozen=True)
class Recipe:
    """What training does to a photograph, an entry of `bench.catalogue.augmentations` each."""

    scale: tuple[float, float] | None = None  #: share of the area that a random crop covers; None = as in evaluation
    flip: bool = False  #: left-right, one time in two
    before: Change | None = None  #: of the whole picture
    after: Change | None = None  #: of the crop at its final size
    plain_first: bool = False  #: the first view is the evaluation's; only further views are changed


class Undecodable(Exception):
    """Bytes that are no whole JPEG, PNG or WebP; the message says why."""


def decode(data: bytes) -> Image.Image:
    """The RGB picture in `data`: JPEG, PNG or WebP, whatever its file is called. Raises Undecodable.

    As webdataset and open_clip do, EXIF orientation is ignored and alpha is dropped, not blended: published models saw
    such pixels. Grey of 16 bits keeps its upper 8, which Pillow's own conversion would turn white. Over 89 megapixels
    is refused.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            image.load()
            return _rgb(image)
    except Exception as error:  # Pillow's plugins let out whatever broken bytes make them run into
        raise Undecodable(f"{type(error).__name__}: {error}") from error


def evaluation(image: Image.Image, size: int, resize: Resize = CROP) -> Pixels:
    """uint8 [size, size, 3]: open_clip's evaluation transform before it normalises, to the last bit.

    A strip longer than 64 to 1 of which only the centre is seen loses its ends first, for memory.
    """
    kernel = FILTERS[resize.interpolation]
    if resize.mode == "squash":
        return np.asarray(image.resize((size, size), kernel))
    if resize.mode == "longest":
        return np.asarray(_padded(image, size, resize))
    image = _shortened(image)
    width, height = (int(size * side / min(image.size)) for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = image.resize((width, height), kernel)
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def sampled(image: Image.Image, row: int, epoch: int, seed: int, view: int, recipe: str, size: int) -> Pixels:
    """uint8 [size, size, 3] as training sees it; every draw is keyed by (seed, row, epoch, view) alone.

    UserError where `recipe` is not one of photographs.
    """
    do: Recipe = augmentations.recipe(recipe, "photographs")
    if do.plain_first and not view:
        do = Recipe()
    key = counter.word(seed, "photograph", epoch, view)
    draws = counter.uniforms(key, np.array([row], np.int64), DRAWS)[0].tolist()
    if do.before is not None:
        image = do.before(image, draws[23:])
    if do.scale is None:
        return evaluation(image, size)
    image = image.crop(_crop_box(image.size, do.scale, draws[:22]))
    image = image.resize((size, size), Image.Resampling.BICUBIC)
    if do.flip and draws[22] < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if do.after is not None:
        image = do.after(image, draws[23:])
    return np.asarray(image)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def _padded(image: Image.Image, size: int, resize: Resize) -> Image.Image:
    """The whole picture in the middle of a square of `resize.fill`."""
    ratio = max(image.size) / size
    width, height = (max(1, round(side / ratio)) for side in image.size)
    resized = image.resize((width, height), FILTERS[resize.interpolation])
    square = Image.new("RGB", (size, size), (resize.fill,) * 3)
    square.paste(resized, ((size - width) // 2, (size - height) // 2))
    return square


def _shortened(image: Image.Image) -> Image.Image:
    width, height = (min(side, STRIP * min(image.size)) for side in image.size)
    if (width, height) == image.size:
        return image
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _crop_box(size: tuple[int, int], scale: tuple[float, float], draws: Sequence[float]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of torchvision's RandomResizedCrop: area and ratio drawn until the box fits."""
    width, height = size
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    for attempt in range(ATTEMPTS):
        area = width * height * (scale[0] + (scale[1] - scale[0]) * draws[2 * attempt])
        ratio = math.exp(low + (high - low) * draws[2 * attempt + 1])
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(draws[20] * (width - w + 1)), int(draws[21] * (height - h + 1))
            return left, top, left + w, top + h
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h
