"""Bayesian prompt re-weighting (Chun et al., ProLIP, ICLR 2025, Section 3.4, Algorithm 1). Needs variances.

A class is a mixture of its prompts' Gaussians; the weights are fitted by EM to points drawn from images' Gaussians.
Paper and code (below) take those images from the set that is then scored. Here they come from the training split.

official: github.com/naver-ai/prolip@59f6324 src/analysis/unc_zeroshot_prompts.py (estimate_mixing_proportions)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bench.data import Pairs, prompt_templates
from bench.errors import UserError
from bench.evaluation.features import Features
from bench.evaluation.zero_shot import class_prompts, class_vectors
from bench.hashing import sha256_order
from methods.base import stream

ADDED_VARIANCE = 0.02  #: added to the prompts' variances in the likelihood
MAX_ITERATIONS, WEIGHT_TOLERANCE = 1000, 1e-12
SHOTS = (0, 5, 9)  #: labelled images a class from which weights are fitted, as in the paper
POINTS_PER_CLASS = 100  #: points drawn for each class


def fit_settings(shots: int) -> tuple[float, int, int]:
    """Return the parameter of the symmetric Dirichlet prior, the images of each class, and the points from each image.

    shots: labelled images of each class; 0: the 10 unlabelled ones nearest to its mean prompt, as in the code. There
    the paper states 5 images of 10 points, 100 in all.
    """
    images = shots or 10
    return 2.0 if shots else 5.0, images, POINTS_PER_CLASS // images


def log_densities(points: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """Return ln N(x_j; mu_k, diag s2_k) up to a constant, [J, K], for points [J, D], means and variances [K, D]."""
    squares = ((points[:, None] - means).square() / variances).sum(-1)
    return -0.5 * (squares + variances.log().sum(-1))


def initial_weights(variances: Tensor) -> Tensor:
    """Return weights [..., K] proportional to 1 / mean of variances [..., K, D], with sum 1."""
    sure = 1 / variances.mean(-1)
    return sure / sure.sum(-1, keepdim=True)


def mixture_weights(log_density: Tensor, initial: Tensor, a: float) -> Tensor:
    """Fit the weights [..., K] (sum 1) of fixed components by EM: log densities [..., J, K], start [..., K].

    A mixture stops once a step moves it by less than 1e-12, independently of the others.
    """
    weights, moving = initial, torch.ones_like(initial[..., 0], dtype=torch.bool)
    for _ in range(MAX_ITERATIONS):
        shares = (weights.log()[..., None, :] + log_density).softmax(-1)
        new = (shares.sum(-2) + a - 1).clamp(min=0)
        new = torch.where(moving[..., None], new / new.sum(-1, keepdim=True), weights)
        moving = (new - weights).norm(dim=-1) >= WEIGHT_TOLERANCE
        weights = new
        if not bool(moving.any()):
            break
    return weights


def mixed(weights: Tensor, means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean sum pi mu (not normalised) and variance sum pi^2 s2 [..., D] of classes with weights [..., K]."""
    return (weights[..., None] * means).sum(-2), (weights.square()[..., None] * variances).sum(-2)


def labelled_rows(pairs: Pairs, label: str, names: Sequence[str], shots: int) -> Tensor:
    """Return int64 [C, shots]: the rows of each class with the smallest hash of their key, repeated if they are fewer.

    Raises UserError if a class has no image.
    """
    of_class: list[list[int]] = [[] for _ in names]  # by number: ImageNet has two classes of the name "missile"
    for row in sha256_order(pairs.keys):
        of_class[pairs.labels[label][row]].append(row)
    without = [name for name, rows in zip(names, of_class, strict=True) if not rows]
    if without:
        lacking = f"{len(without)} classes, such as {without[0]!r}"
        raise UserError(f"{pairs.name} has no image of {lacking}: no weights of prompts can be fitted to it")
    return torch.tensor([[rows[shot % len(rows[:shots])] for shot in range(shots)] for rows in of_class])


def draw_points(images: Mapping[str, Tensor], samples: int, key: int) -> Tensor:
    """Draw points [M * samples, D] in fp64 from M Gaussians, `samples` of each; equal keys give equal draws."""
    means = images["embedding"].double()
    noise = torch.randn((samples, *means.shape), generator=stream(0, "bprw", key), dtype=torch.float64)
    return (means + (images["logvar"].double() / 2).exp() * noise.to(means.device)).flatten(0, 1)


def fit_prompt_weights(texts: Mapping[str, Tensor], images: Mapping[str, Tensor], rows: Tensor, shots: int) -> Tensor:
    """Fit weights [C, K] in fp64 of prompts [C, K, D] to the images `rows` [C, M]; draws are keyed by class."""
    means, variances = texts["embedding"].double(), texts["logvar"].double().exp()
    (a, _, samples), densities = fit_settings(shots), []
    for number, chosen in enumerate(rows.to(means.device)):
        points = draw_points({name: values[chosen] for name, values in images.items()}, samples, number)
        densities.append(log_densities(points, means[number], variances[number] + ADDED_VARIANCE))
    return mixture_weights(torch.stack(densities), initial_weights(variances), a)


def reweighted(features: Features, pairs: Pairs, source: Pairs, label: str, shots: int) -> dict[str, Tensor]:
    """Return the features of the classes of a label with weights of prompts that are fitted to images of `source`.

    Raises UserError if a class has no image in `source`.
    """
    names, own = pairs.classes[label], prompt_templates(pairs)
    others, flat = features.images(source), features.texts(class_prompts(names, own))
    texts = {name: values.reshape(len(names), len(own), -1) for name, values in flat.items()}
    if shots:
        rows = labelled_rows(source, label, names, shots)
    else:
        ensemble = class_vectors(flat, len(own))["embedding"]
        rows = (ensemble @ others["embedding"].T).topk(min(fit_settings(0)[1], len(source)), dim=1).indices
    weights = fit_prompt_weights(texts, others, rows, shots)
    mean, variance = mixed(weights, texts["embedding"].double(), texts["logvar"].double().exp())
    return {"embedding": mean.float(), "logvar": variance.log().float()}
