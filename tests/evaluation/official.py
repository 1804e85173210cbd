"""Scores of the evaluation against executed official code: ProLIP's analysis of Gaussian embeddings, data filters.

official: github.com/naver-ai/prolip@59f6324 src/analysis/unc_zeroshot_prompts.py, src/analysis/eval_hcaps.py
official: github.com/ypwang61/negCLIPLoss_NormSim@cc0042f baselines/vas2.py (cal_new_clip_score, filter_by_score)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from bench.checks.lab import exact_tensor
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from bench.evaluation.noise.filters import norm_sim, s_clip_loss
from bench.evaluation.probabilistic import bprw, hierarchy
from bench.evaluation.probabilistic.prompts import filtered_class_vectors, most_certain, total_variance
from bench.evaluation.ranks import offsets
from bench.evaluation.zero_shot import class_vectors


def _prompts() -> dict[str, Tensor]:
    """Return the prompts of the cases, [3 classes * 5 prompts, 4]."""
    entry = values()["prolip"]["bprw"]
    means, variances = (
        exact_tensor(entry["prompt_means"]).flatten(0, 1),
        exact_tensor(entry["prompt_vars"]).flatten(0, 1),
    )
    return {"embedding": means, "logvar": variances.log()}


@case("gaussian", "prolip/prompt_filtering")
def _prompt_filtering(expected: OracleEntry) -> KnownValues:
    texts = _prompts()
    u = total_variance(texts).reshape(3, 5)
    limits: dict[str, Callable[[float], Tensor]] = {
        "by_ranking": lambda k: u.kthvalue(int(k), dim=1, keepdim=True).values,
        "by_std_values_per_class": lambda times: u.mean(1, keepdim=True) + times * u.std(1, keepdim=True),
        "by_std_values_all": lambda k: u.flatten().kthvalue(int(k)).values,
        "by_abs_value": lambda limit: torch.tensor(limit, dtype=u.dtype),
    }
    for name, result in expected["results"].items():
        vectors = filtered_class_vectors(texts, most_certain(u, limits[name](result["coeff"])))
        yield KnownValue(f"{name}: means", vectors["embedding"].T, result["classifier"])
        yield KnownValue(f"{name}: variances", vectors["logvar"].exp().T, result["var"])


@case("gaussian", "prolip/bprw")
def _bprw(expected: OracleEntry) -> KnownValues:
    means, variances = (exact_tensor(expected[name])[0] for name in ("prompt_means", "prompt_vars"))
    densities = bprw.log_densities(
        exact_tensor(expected["observations_class0"]), means, variances + expected["stable_eps"]
    )
    start = bprw.initial_weights(variances)
    for a in ("1.0", "2.0", "5.0"):
        weights = bprw.mixture_weights(densities, start, float(a))
        yield KnownValue(f"weights at a = {a}", weights, expected["pi"][a])
    uniform = bprw.mixture_weights(densities, torch.full_like(start, 1 / len(start)), 2.0)
    yield KnownValue("weights from a uniform start", uniform, expected["pi"]["alpha2_uniform"])
    mean, variance = bprw.mixed(bprw.mixture_weights(densities, start, 2.0), means, variances)
    embedding = expected["new_class_embedding"]
    yield KnownValue("class mean", mean, embedding["class0_alpha2_mean"])
    yield KnownValue("class variance", variance, embedding["class0_alpha2_var"])
    yield KnownValue("added variance", bprw.ADDED_VARIANCE, expected["stable_eps"])


@case("gaussian", "prolip/zero_shot")
def _zero_shot(expected: OracleEntry) -> KnownValues:
    classes = class_vectors(_prompts(), 5)
    yield KnownValue("class means", classes["embedding"], expected["class_mean_normalised"])
    yield KnownValue("class variances", classes["logvar"].exp(), expected["class_var_mean"])
    scores = exact_tensor(expected["query"]) @ classes["embedding"].T + offsets(classes, "csd")
    yield KnownValue("logits", 100 * scores, expected["logits"])


@case("gaussian", "prolip/hierarcaps")
def _hierarcaps(expected: OracleEntry) -> KnownValues:
    images = {"embedding": exact_tensor(expected["image"]), "logvar": exact_tensor(expected["image_logvar"])}
    texts = {
        name: exact_tensor(expected[old]).flatten(0, 1)
        for name, old in (("embedding", "text"), ("logvar", "text_logvar"))
    }
    own = torch.eye(len(images["embedding"]), dtype=torch.bool).repeat_interleave(4, dim=1)
    empty, averaged = hierarchy.roots(images, texts, {"embedding": exact_tensor(expected["root"])}).values()
    inclusive = texts["embedding"][hierarchy.most_inclusive(images, texts)]
    for name, root in (("det", empty), ("unc_root_averaged", averaged), ("unc_root_only_inclusive", inclusive)):
        met = hierarchy.traverse(images["embedding"], texts["embedding"], own, root, expected["n_steps"])
        percentages = [100 * side.mean() for side in (met["precision"], met["recall"], met["any"])]
        yield KnownValue(f"{name}: precision, recall, any", torch.stack(percentages), expected[name])


@case("filters", "filters/cases/*/out/*")
def _filters(case_: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    sides = values()["filters"]["inputs"][name]
    image, text = (torch.tensor(sides[side], dtype=torch.float64) for side in ("image", "text"))
    orders = [np.array(order) for order in case_["permutations"]]
    found = s_clip_loss(image, text, orders, case_["batch"], case_["temperature"])
    cosine = (image * text).sum(1)
    yield KnownValue("cosine", cosine, expected["clip_score"])
    yield KnownValue("s-CLIPLoss", found, expected["s_cliploss"])
    halves = zip(expected["half_normaliser_image"], expected["half_normaliser_text"], strict=True)
    yield KnownValue("both half normalisers", cosine - found, [one + other for one, other in halves])
    ranks = [torch.argsort(torch.argsort(one)).double() for one in (cosine, found)]
    yield KnownValue("Spearman", torch.corrcoef(torch.stack(ranks))[0, 1], expected["spearman_with_clip_score"])
    target = torch.tensor(case_["proxy"], dtype=torch.float64)
    norms = {p: norm_sim(image, target, p) for p in (2.0, torch.inf)}
    yield KnownValue("NormSim 2", norms[2.0], expected["normsim_2"])
    yield KnownValue("NormSim inf", norms[torch.inf], expected["normsim_inf"])
    many, few = (int(share * len(found)) for share in case_["fractions"])
    kept = torch.argsort(-found, stable=True)[:many].sort().values
    best = torch.argsort(-norms[2.0][kept], stable=True)[:few]
    yield KnownValue("rows kept by both", kept[best].sort().values.double(), expected["kept_rows"])
