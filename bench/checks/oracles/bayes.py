"""Bayesian weighted CL against our own derivation: given weights exactly, sampled ones within their errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from methods.bayes import Bayes
from methods.clip import Clip
from methods.protocol import Batch, Tensors

CHAINS = 1000  #: the values come from 20,000, which would take 8 seconds each; the errors are scaled
GROUPS = 20  #: parts of the chains whose spread gives the errors
SIGMAS = 4.5


@case("bayes", "bayes_weighted_cl/fixed_weights*/*")
def _given_weights(_section: str, _entries: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    method, z = lab.adapter_of(Bayes, expected), lab.oracle_inputs(name)
    given = values()["bayes_weighted_cl"]["fixed_weights"][name]
    log_w = {key: lab.exact_tensor(given[f"W_{key}_anchor"]).log() for key in z}
    loss = method.loss(z, log_w, slice(0, len(z["image"])))["weighted_contrastive"]
    yield from lab.compare_loss(method, loss, z, expected)


@case("bayes", "bayes_weighted_cl/all_ones/*")
def _ones(name: str, expected: OracleEntry) -> KnownValues:
    z = lab.oracle_inputs(name)
    yield from lab.compare_step(lab.adapter_of(Bayes, expected, sweeps=0), z, expected["loss"])
    yield from lab.compare_step(lab.adapter_of(Clip, expected), z, expected["clip"])


def _sampled(method: Bayes, z: Tensors, steps: int) -> Tensor:
    """Return log weights of image anchors in independent chains, [steps, B, B]."""
    whole = slice(0, len(z["image"]))
    with torch.no_grad():
        observed = ({"step": torch.tensor(step)} for step in range(steps))
        return torch.stack([method._gibbs(z, "image", "text", one, whole)[0] for one in observed])


@case("bayes", "bayes_weighted_cl/gibbs_statistics/*")
def _gibbs(key: str, expected: OracleEntry) -> KnownValues:
    method = lab.adapter_of(Bayes, expected, variant="b=a" if expected["b_plus"] == expected["a_plus"] else "b=0")
    z = lab.oracle_inputs(key[0])
    log_w, eye = _sampled(method, z, CHAINS), torch.eye(len(z["image"]), dtype=torch.bool)
    weighted = log_w + (method.scale() * z["image"] @ z["text"].T).detach()
    compare = partial(_within_errors, expected["n_chains"])
    yield compare("mean loss", weighted, _mean_loss, expected["mean_loss"])
    yield compare("shares", weighted, lambda part: part.softmax(2).mean(0), expected["mean_posterior_share"])
    medians = {"positives": ("median_w_plus", eye), "negatives": ("median_w_minus", ~eye)}
    for what, (median, cells) in medians.items():
        yield compare(f"ln median of {what}", log_w[:, cells], torch.median, math.log(expected[median]))
    if "closed_form_mean_loss" in expected:
        yield compare("mean loss, closed form", weighted, _mean_loss, expected["closed_form_mean_loss"])
        shares = weighted.softmax(2)
        for what, cells in (("positive", eye), ("negative", ~eye)):
            value = expected[f"closed_form_share_{what}"]
            yield compare(f"share of a {what}, closed form", shares[:, cells], torch.mean, value)


def _mean_loss(weighted: Tensor) -> Tensor:
    """[chains, B, B] -> minus the log share of the positive."""
    return (weighted.logsumexp(2) - weighted.diagonal(dim1=1, dim2=2)).mean()


def _within_errors(
    others: int, what: str, chains: Tensor, statistic: Callable[[Tensor], Tensor], expected: Any
) -> KnownValue:
    """Compare a statistic of the chains [chains, ...] with the expected one, which comes from `others` chains."""
    spread = torch.stack([statistic(part) for part in chains.chunk(GROUPS)]).std(0) / math.sqrt(GROUPS)
    error = spread * math.sqrt(1 + len(chains) / others)
    gap = (statistic(chains) - torch.as_tensor(expected, dtype=chains.dtype)) / error
    return KnownValue(f"{what}, in standard errors from the value", gap, torch.zeros_like(gap).tolist(), 0, SIGMAS)


@case("bayes", "bayes_weighted_cl/conditional_moments")
def _moments(_: OracleEntry) -> KnownValues:
    """Compare the numbers of the entry's note, for 256 images that all have the same similarities."""
    # A very narrow prior keeps u at 0.3, whatever the normaliser is.
    method = lab.build_adapter(Bayes, a_u=0.3e9, b_u=1e9, sweeps=1, temperature=1.0)
    weights, eye = _sampled(method, _same_for_all(2.0, 1.5), 8).exp(), torch.eye(256, dtype=torch.bool)
    yield from _moments_of("positives", weights[:, eye].flatten(), 1.0714285714, 0.1913265306)
    yield from _moments_of("negatives", weights[:, ~eye].flatten(), 0.9569377990, 0.0915729951)
    # A row's first visit leaves u as drawn. Its law depends on the sum of the weighted e^m alone, here 2 + 255 x 2/255.
    method, z = lab.build_adapter(Bayes, rows=2048, sweeps=1, ema_u=0.5, temperature=1.0), _same_for_all(2.0, 2 / 255)
    for step, ids in enumerate(torch.arange(2048).chunk(8)):
        method.observe(z, Batch(ids, lab.a_clock(step)))
    yield from _moments_of("rates", method.log_u_image.exp(), 0.25, 0.0625)


def _same_for_all(positive: float, negative: float) -> Tensors:
    """Embeddings of 256 pairs whose image anchors have e^m as given at scale 1."""
    logits = torch.full((256, 256), math.log(negative), dtype=torch.float64).fill_diagonal_(math.log(positive))
    return {"image": torch.eye(256, dtype=torch.float64), "text": logits.T.contiguous()}


def _moments_of(what: str, draws: Tensor, mean: float, variance: float) -> KnownValues:
    squares = (draws - mean).square()
    for name, sample, value in (("mean", draws, mean), ("variance", squares, variance)):
        error = float(sample.std()) / math.sqrt(len(sample))
        yield KnownValue(f"{name} of the {what}", sample.mean(), value, 0, SIGMAS * error)
