"""Zero-shot accuracy, and variances of images, when a part of an image is hidden or its pixels are attacked.

Chun et al., ProLIP, ICLR 2025, Appendix C.8 (Tables C.8 and C.9). The paper states neither the size of the attack nor
its step; here they are those of Madry et al. (ICLR 2018) for CIFAR-10: 8/255 and 2/255, from the image itself.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.arrays import Pixels
from bench.data import MemoryPairs, Pairs, templates
from bench.evaluation.bootstrap import mean_interval
from bench.evaluation.features import IMAGE_BATCH, Features, evaluation_mode
from bench.evaluation.measures import Number, scores_of
from bench.evaluation.probabilistic.prompts import top1, total_variance
from bench.evaluation.zero_shot import class_vectors
from bench.evaluation.zero_shot import prompts as class_prompts

Line = tuple[str, Number]  #: a description, and the measured number
MEAN_COLOUR = np.array([123, 117, 104], np.uint8)  #: CLIP's channel means, the colour of what is hidden
SHARES = (0.0, 0.025, 0.05, 0.075, 0.1)  #: of the area that is hidden, the paper's
ITERATIONS = (1, 5, 10, 40)  #: of the attack, the paper's
EPS, STEP = 8.0, 2.0  #: most that a channel changes, and by one iteration; of 255
SCALE = 10.0  #: of cosines in the attacked cross-entropy: small enough that a sure answer has a gradient


def manipulations(features: Features, pairs: Pairs, label: str) -> list[Line]:
    """Measure top-1 accuracy by each score and the mean sum of variances, for each hidden share and each attack."""
    prompts = templates(pairs)
    classes = class_vectors(features.texts(class_prompts(pairs.classes[label], prompts)), len(prompts))
    labels = torch.from_numpy(pairs.labels[label])
    hidden = ((f"{share:.1%} hidden", occluded(pairs, share)) for share in SHARES)
    moved = (
        (f"PGD, {count} iterations", attacked(features, pairs, labels, classes["embedding"], count))
        for count in ITERATIONS
    )
    lines = list[Line]()
    for name, one in chain(hidden, moved):  # one at a time: together they may not fit
        images = features.images(one)
        lines += [(name, top1(images, classes, labels, score)) for score in scores_of(images, classes)]
        lines.append(mean_line(name, total_variance(images).double().cpu().numpy(), "variance"))
    return lines


def mean_line(name: str, values: np.ndarray, metric: str) -> Line:
    """Return the mean of values [n] with its interval, as a line of a table."""
    return name, Number(metric, "", float(values.mean()), len(values), mean_interval(values))


def occluded(pairs: Pairs, share: float) -> MemoryPairs:
    """Return the same pairs with a square of `share` of the area, in the middle, in the mean colour.

    Its side is rounded to whole pixels.
    """
    pixels = pairs.images(np.arange(len(pairs))).copy()
    height, width = pixels.shape[1:3]
    tall, wide = (round(side * share**0.5) for side in (height, width))
    top, left = (height - tall) // 2, (width - wide) // 2
    pixels[:, top : top + tall, left : left + wide] = MEAN_COLOUR
    return with_pixels(pairs, pixels)


def with_pixels(pairs: Pairs, pixels: Pixels) -> MemoryPairs:
    """Return the same pairs with other images, uint8 [n, H, W, 3]."""
    texts = [pairs.captions(row) for row in range(len(pairs))]
    return MemoryPairs.build(pairs.name, pairs.description, pairs.keys, texts, pairs.labels, pairs.classes, pixels)


def attacked(features: Features, pairs: Pairs, labels: Tensor, classes: Tensor, iterations: int) -> MemoryPairs:
    """Return the same pairs after projected gradient ascent on each image's cross-entropy among the classes.

    labels: int64 [n]; classes: unit vectors [C, D]. The attacked pixels are rounded to whole numbers, as images are.
    """
    rows = np.arange(len(pairs))
    parts = [rows[start : start + IMAGE_BATCH] for start in range(0, len(rows), IMAGE_BATCH)]
    with evaluation_mode(features.method, features.towers), torch.enable_grad():
        moved = [_ascent(features, pairs.images(part), labels[part], classes, iterations) for part in parts]
    return with_pixels(pairs, np.concatenate(moved))


def _ascent(features: Features, pixels: Pixels, labels: Tensor, classes: Tensor, iterations: int) -> Pixels:
    """[b, H, W, 3] and labels [b] -> the attacked pixels, whole numbers within EPS of the given ones."""
    given = torch.from_numpy(pixels).to(features.device, torch.float32)
    targets, x = labels.to(features.device), given
    for _ in range(iterations):
        x = x.detach().requires_grad_()
        embedding = features.method.image_features(features.towers, _normalised(x, features))["embedding"]
        loss = F.cross_entropy(SCALE * embedding @ classes.T, targets, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
        x = torch.clamp(x + STEP * gradient.sign(), given - EPS, given + EPS).clamp(0, 255)
    found: Pixels = x.detach().round().to(torch.uint8).cpu().numpy()
    return found


def _normalised(pixels: Tensor, features: Features) -> Tensor:
    """[b, H, W, 3] of 0 to 255 -> [b, 3, H, W] by the towers' channels, differentiable."""
    mean, std = (torch.tensor(values, device=pixels.device) for values in features.towers.channels)
    images = ((pixels / 255 - mean) / std).permute(0, 3, 1, 2)
    return images.to(next(features.towers.visual.parameters()).dtype)
