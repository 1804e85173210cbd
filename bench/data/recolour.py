"""Augmentations of colour and shape from papers. Each is a function of an RGB image and of draws in [0, 1).

They use Pillow's operations instead of code of the papers that draws from the global generator of NumPy or torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

GREY = (128, 128, 128)
Coefficients = tuple[float, float, float, float, float, float]


def rand_augment(image: Image.Image, draws: Sequence[float]) -> Image.Image:
    """NUCLR's RandomAugment(2, 7), which is ALBEF's: two of ten operations at level 7 of 10, each with probability 0.5.

    draws: 6 numbers; for each operation its index, whether it is applied, and its sign. ALBEF uses OpenCV, this uses
    Pillow. Pixels from outside the image are grey.
    """
    for which, done, sign in (draws[0:3], draws[3:6]):
        if done < 0.5:
            image = _OPERATIONS[int(which * len(_OPERATIONS))](image, -0.7 if sign < 0.5 else 0.7)
    return image


def auto_augment(image: Image.Image, draws: Sequence[float]) -> Image.Image:
    """CyCLIP's second view: torchvision's AutoAugment with ImageNet's policies, seeded by two draws."""
    import torch

    import bench.machine.torchvision_fix  # noqa: F401  before torchvision

    # isort: split
    from torchvision.transforms import AutoAugment

    with torch.random.fork_rng(devices=[]):  # AutoAugment draws from torch's global generator alone
        torch.manual_seed(int(draws[0] * 2**24) << 24 | int(draws[1] * 2**24))
        changed: Image.Image = AutoAugment()(image)
    return changed


def jitter_or_grey(image: Image.Image, draws: Sequence[float]) -> Image.Image:
    """ProLIP's recipe: open_clip's `color_jitter` (0.32, 0.32, 0.32, 0.08) with probability 0.8, then grey with 0.2.

    draws: 10 numbers; whether to jitter, brightness, contrast, saturation, hue, four that order these, whether grey.
    """
    if draws[0] < 0.8:
        brightness, contrast, saturation = (1 + 0.32 * (2 * draw - 1) for draw in draws[1:4])
        turn = 0.08 * (2 * draws[4] - 1)
        steps: list[Callable[[Image.Image], Image.Image]] = [
            lambda x: ImageEnhance.Brightness(x).enhance(brightness),
            lambda x: ImageEnhance.Contrast(x).enhance(contrast),
            lambda x: ImageEnhance.Color(x).enhance(saturation),
            lambda x: _turn_hue(x, turn),
        ]
        for number in np.argsort(draws[5:9], kind="stable").tolist():
            image = steps[number](image)
    return image.convert("L").convert("RGB") if draws[9] < 0.2 else image


def _turn_hue(image: Image.Image, turn: float) -> Image.Image:
    """Rotate the hue by `turn` of a full circle, in Pillow's 8 bits."""
    hue, saturation, value = image.convert("HSV").split()
    turned = np.asarray(hue) + np.uint8(int(turn * 255) % 256)
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


def _moved(image: Image.Image, coefficients: Coefficients) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR, fillcolor=GREY)


#: the level is in [-1, 1]; its scale in each operation is ALBEF's
_OPERATIONS: tuple[Callable[[Image.Image, float], Image.Image], ...] = (
    lambda image, _: image,
    lambda image, _: ImageOps.autocontrast(image),
    lambda image, _: ImageOps.equalize(image),
    lambda image, level: ImageEnhance.Brightness(image).enhance(0.1 + 1.8 * abs(level)),
    lambda image, level: ImageEnhance.Sharpness(image).enhance(0.1 + 1.8 * abs(level)),
    lambda image, level: _moved(image, (1, 0.3 * level, 0, 0, 1, 0)),
    lambda image, level: _moved(image, (1, 0, 0, 0.3 * level, 1, 0)),
    lambda image, level: _moved(image, (1, 0, 10 * level, 0, 1, 0)),
    lambda image, level: _moved(image, (1, 0, 0, 0, 1, 10 * level)),
    lambda image, level: image.rotate(30 * level, Image.Resampling.BILINEAR, fillcolor=GREY),
)
