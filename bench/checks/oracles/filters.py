"""Scores of data filters against executed official code, permutations given."""

# official: github.com/ypwang61/negCLIPLoss_NormSim@cc0042f baselines/vas2.py (cal_new_clip_score, filter_by_score)

from __future__ import annotations

import numpy as np
import torch

from bench.checks.oracles import Comparison, Comparisons, Entry, case, values
from bench.evaluation.noise.filters import norm_sim, s_clip_loss


@case("filters", "filters/cases/*/out/*")
def _scores(case_: Entry, name: str, expected: Entry) -> Comparisons:
    sides = values()["filters"]["inputs"][name]
    image, text = (torch.tensor(sides[side], dtype=torch.float64) for side in ("image", "text"))
    orders = [np.array(order) for order in case_["permutations"]]
    found = s_clip_loss(image, text, orders, case_["batch"], case_["temperature"])
    cosine = (image * text).sum(1)
    yield Comparison("cosine", cosine, expected["clip_score"])
    yield Comparison("s-CLIPLoss", found, expected["s_cliploss"])
    halves = zip(expected["half_normaliser_image"], expected["half_normaliser_text"], strict=True)
    yield Comparison("both half normalisers", cosine - found, [one + other for one, other in halves])
    ranks = [torch.argsort(torch.argsort(one)).double() for one in (cosine, found)]
    yield Comparison("Spearman", torch.corrcoef(torch.stack(ranks))[0, 1], expected["spearman_with_clip_score"])
    target = torch.tensor(case_["proxy"], dtype=torch.float64)
    norms = {p: norm_sim(image, target, p) for p in (2.0, torch.inf)}
    yield Comparison("NormSim 2", norms[2.0], expected["normsim_2"])
    yield Comparison("NormSim inf", norms[torch.inf], expected["normsim_inf"])
    many, few = (int(share * len(found)) for share in case_["fractions"])
    kept = torch.argsort(-found, stable=True)[:many].sort().values
    best = torch.argsort(-norms[2.0][kept], stable=True)[:few]
    yield Comparison("rows kept by both", kept[best].sort().values.double(), expected["kept_rows"])
