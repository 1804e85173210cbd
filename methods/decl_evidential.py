"""DECL of Qin et al.: similarities are evidence for a Dirichlet distribution, and pairs that lack it are dropped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from methods.base import Contrastive, Presets, check, check_scale, directions, similarities, spans
from methods.dirichlet import divergence_from_uniform
from methods.protocol import TEMPERATURE, About, Batch, Diagnostic, Facts, Log, Space, Tensors

PAPER_BATCH = 128  #: of all published runs
LARGEST_LOGIT = 500.0  #: e^(s/tau) and its sums must stay below fp64's 1.8e308


@dataclass(frozen=True)
class DeclEvidentialConfig:
    """Hyper-parameters of DECL (Qin et al.)."""

    warm: float = 0.1  #: share of the run in which every pair counts as clean
    kl_weight: float = 0.1  #: lambda_2, weight of the divergence of the wrong evidence from none at all
    hinge_weight: float = 0.8  #: lambda_1, weight of the dynamic hinge
    #: "mean": lambda_1 128 times the mean over the batch, at any batch; "sum", as the official code: lambda_1 times the
    #: sum, which weighs the hinge more in a larger batch. The two agree at the paper's batch of 128.
    hinge: Literal["mean", "sum"] = "mean"
    margin: float = 0.2  #: of the hinge, as cosine
    negatives: int = 5  #: hardest negatives that the hinge ends with; it begins with all of them
    anneal: float = 0.1  #: share of the run in which their number falls
    temperature: float = 0.1  #: evidence is e^(s/temperature)
    learnable_scale: bool = False  #: learn 1/temperature (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "warm", 0 <= self.warm < 1, "in [0, 1)")
        check(self, "kl_weight", 0 <= self.kl_weight < math.inf, "a finite number >= 0")
        check(self, "hinge_weight", 0 <= self.hinge_weight < math.inf, "a finite number >= 0")
        check(self, "hinge", self.hinge in ("mean", "sum"), '"mean" or "sum"')
        check(self, "margin", 0 <= self.margin < math.inf, "a finite number >= 0")
        check(self, "negatives", self.negatives >= 1, ">= 1")
        check(self, "anneal", 0 < self.anneal <= 1, "in (0, 1]")
        check_scale(self)
        least = 1 / LARGEST_LOGIT
        check(self, "temperature", self.temperature >= least, f">= {least:g}, or e^(1/tau) overflows")


class DeclEvidential(Contrastive):
    """L = (1/B) sum_i [EDL_i + EDL'_i] + H (1/B) sum_{i clean} RDH_i, from evidence e_ij = e^{s_ij/tau}.

    With S = sum_j (e_ij + 1), m_j = (e_ij + 1) / S and labels y_j = [j = i and i is clean],
    EDL_i = sum_j (y_j - m_j)^2 + sum_j m_j (1 - m_j) / (S + 1) + lambda_2 KL(Dir(1 + e (1 - y)) || Dir(1));
    EDL' is that of text anchors. RDH_i is the mean over the n hardest negatives of [mu + s_ij - s_ii]_+, plus that of
    [mu + s_ji - s_ii]_+. A pair is clean if e_ij + e_ji is largest at j = i at its previous visit.
    """

    name = "decl_evidential"
    about = About(
        title="DECL (Qin)",
        summary="Reads similarities as evidence for a Dirichlet distribution over the batch and keeps a pair only if "
        "its own evidence was the largest at its last visit. A dropped pair attracts no longer and stays a negative.",
        paper="Qin et al., ACM MM 2022",
        equations="Section 3 as in the authors' code; the supplement's parameters",
        fidelity="official-checked",
        bibtex="""@inproceedings{qin2022decl,
  title = {Deep Evidential Learning with Noisy Correspondence for Cross-Modal Retrieval},
  author = {Qin, Yang and Peng, Dezhong and Peng, Xi and Wang, Xu and Hu, Peng},
  booktitle = {ACM International Conference on Multimedia},
  year = {2022}
}""",
        state="whether each row counts as clean",
        note="The authors score a pair by a region-word network and tanh; here it is the cosine. They predict all "
        "pairs before each epoch in evaluation mode; here a visit in training predicts for the next one. Decomposable "
        "CL (Chen et al. 2022), which its authors call DeCL, is another method.",
    )
    Config = DeclEvidentialConfig
    # official: github.com/QinYang79/DECL@1b0a775 model/DECL.py (RDH_loss, summed over the batch)
    presets: ClassVar[Presets] = {"paper": {}, "official": {"hinge": "sum"}}
    space: ClassVar[Space] = {**TEMPERATURE, "kl_weight": Log(0.01, 1.0), "hinge_weight": Log(0.08, 8.0)}

    clean: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("clean", torch.ones(facts.rows, dtype=torch.bool))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        # official: github.com/QinYang79/DECL@1b0a775 train.py (get_correspondence)
        before = self.clean[batch.ids]
        self.clean[batch.ids] = self._largest_is_own(z)
        if batch.clock.progress < self.config.warm:
            before = torch.ones_like(before)
        count = self._negatives(len(batch.ids), batch.clock.progress)
        return {"clean": before, "negatives": torch.tensor(count)}  # on the CPU, where `loss` reads it

    def _largest_is_own(self, z: Tensors) -> Tensor:
        """[B], whether no e_ij + e_ji of the batch exceeds that of the pair itself."""
        parts = []
        for tile in spans(len(z["image"])):
            joint = torch.logaddexp(*(logits for logits, _ in directions(z, self.scale(), tile)))
            parts.append(joint.diagonal(tile.start) >= joint.amax(1))
        return torch.cat(parts)

    def _negatives(self, total: int, progress: float) -> int:
        """n: from all B - 1 down to `negatives`, linearly in the first share `anneal` of the run."""
        config = self.config
        falling = math.floor(total - (total - config.negatives) * progress / config.anneal + 1e-9)
        count: int = min(total - 1, max(falling, config.negatives))
        return count

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        config, total = self.config, z["image"].shape[0]
        clean, count = observed["clean"][anchors, None], int(observed["negatives"])
        own = torch.arange(anchors.start, anchors.stop, device=clean.device)[:, None]
        evidential = hinge = z["image"].new_zeros(())
        for anchor, candidate in (("image", "text"), ("text", "image")):
            s = similarities(z[anchor][anchors], z[candidate])
            evidential = evidential + self._evidential(s, own, clean)
            violations = (config.margin + s - s.gather(1, own)).relu().scatter(1, own, 0.0)
            hinge = hinge + (violations.topk(count, dim=1).values * clean).sum() / count
        weight = config.hinge_weight * (total if config.hinge == "sum" else PAPER_BATCH)
        return {"evidential": evidential / total, "hinge": weight * hinge / total}

    def _evidential(self, s: Tensor, own: Tensor, clean: Tensor) -> Tensor:
        """Sum of EDL over anchors, of [n, B] similarities, in fp64: evidence reaches e^100 with a learned scale."""
        evidence = self._evidence(s)
        labels = torch.zeros_like(evidence).scatter(1, own, clean.to(evidence.dtype))
        alpha = evidence + 1
        strength = alpha.sum(1, keepdim=True)
        shares = alpha / strength
        fit = (labels - shares).square() + shares * (1 - shares) / (strength + 1)
        wrong = divergence_from_uniform(evidence * (1 - labels))
        summed: Tensor = fit.sum() + self.config.kl_weight * wrong.sum()
        return summed.to(s.dtype)

    def _evidence(self, s: Tensor) -> Tensor:
        logits: Tensor = self.scale().double() * s.double()
        return logits.exp()

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"clean": float(observed["clean"].double().mean())}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        share, uncertainty = self.correspondence(z)
        clean = observed["clean"]
        legends = {"pairs that count as clean": clean, "dropped pairs": ~clean}
        shown = {legend: chosen for legend, chosen in legends.items() if bool(chosen.any())}
        return tuple(
            Diagnostic(name, title, axis, {legend: x[chosen] for legend, chosen in shown.items()})
            for name, title, axis, x in (
                ("uncertainty", "Uncertainty of pairs", "B / S, sum of both directions", uncertainty),
                ("evidence", "How much of the evidence is its own pair's", "share of e_ij + e_ji", share),
            )
        )

    def correspondence(self, z: Tensors) -> tuple[Tensor, Tensor]:
        """[B] share of the pair itself in sum_j (e_ij + e_ji), and [B] uncertainty B/S, summed over both directions."""
        shares, uncertainties = [], []
        for tile in spans(len(z["image"])):
            image, text = (
                self._evidence(similarities(z[one][tile], z[other]))
                for one, other in (("image", "text"), ("text", "image"))
            )
            joint = image + text
            shares.append(joint.diagonal(tile.start) / joint.sum(1))
            uncertainties.append(len(z["image"]) * (1 / (image + 1).sum(1) + 1 / (text + 1).sum(1)))
        return torch.cat(shares), torch.cat(uncertainties)
