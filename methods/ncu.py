"""NCU: unlearn noisy pairs of a trained CLIP along learned hardest negatives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from methods import text_tower
from methods.base import (
    LogitScale,
    Presets,
    WholeBatch,
    check,
    check_scale,
    pair_decisions,
    portion,
    similarities,
    unit,
    wide,
)
from methods.eda import Eda
from methods.forget import Confidence, confidence_odds, forget_set, log_odds
from methods.freezing import besides_image_backbone
from methods.protocol import (
    About,
    Batch,
    Clock,
    Cost,
    Diagnostic,
    Facts,
    Linear,
    Log,
    Phase,
    Rows,
    Space,
    Tensors,
    Towers,
)
from methods.sinkhorn import masked_sinkhorn


# official: github.com/hhc1997/NCU@cd338a5 README.md (command line), src/parser.py (argument defaults)
@dataclass(frozen=True)
class NcuConfig:
    """Hyper-parameters of NCU; defaults are those of the official command line where the paper gives none."""

    forget: float = 0.1  #: share of the batch, of lowest confidence, that is unlearned
    gamma: float = 0.7  #: weight of the transport plan against the hard forget targets
    learn_share: float = 0.2  #: share of the run for phase 1, learning the hardest negatives (2 of 10 epochs)
    learn_lr_scale: float = 0.2  #: times the suite's learning rate, towers in phase 1 (1e-4 of 5e-4)
    unlearn_lr_scale: float = 0.1  #: the same in phase 2 (5e-5 of 5e-4)
    prompt_lr: float = 3e-4  #: learning rate of the prompts
    prompts: int = 8  #: learned vectors in front of a caption that make it a negative
    frozen_text: float = 5 / 12  #: share of text blocks, from the first, frozen in phase 2 (5 of ViT-B's 12)
    negative_weight: float = 10.0  #: weight of the relation and the margin terms in phase 1
    low: float = -0.7  #: smallest similarity of a caption and its negative without penalty
    high: float = -0.2  #: largest one
    reg: float = 0.03  #: entropic regularisation of the transport plan
    iterations: int = 100  #: Sinkhorn iterations at most
    threshold: float = 1e-4  #: they stop when the row potentials together move less
    confidence: Confidence = "two_sided"  #: mean of both softmaxes, or the first only
    relation: Literal["code", "paper"] = "code"  #: compare <t_i,t_j> with <n_i,n_j>, or <t_i,n_j> with <t_j,n_i>
    # official: github.com/hhc1997/NCU@cd338a5 src/ul_clip.py (ContrastiveLoss)
    normalise_text_targets: bool = True  #: text-side targets sum to one; the official code leaves forgotten ones short
    mean_of_directions: bool = True  #: halve the sum of the two divergences, as the code does; the paper sums
    eda_alpha: float = 0.1  #: share of a caption's words that its edit touches
    #: folder with WordNet's data files, for synonyms beyond the data's own; a run's id hashes the files' content
    wordnet: str | None = dataclasses.field(default=None, metadata={"path": True})
    temperature: float = 0.07  #: the logit scale starts at 1/temperature; the reference run's takes its place
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100] in phase 2) or keep it

    def __post_init__(self) -> None:
        for name in ("forget", "gamma", "frozen_text", "eda_alpha"):
            check(self, name, 0 <= getattr(self, name) <= 1, "in [0, 1]")
        check(self, "forget", self.forget < 1, "in [0, 1)")
        check(self, "learn_share", 0 < self.learn_share < 1, "in (0, 1)")
        for name in ("learn_lr_scale", "unlearn_lr_scale", "prompt_lr", "reg", "threshold"):
            check(self, name, 0 < getattr(self, name) < math.inf, "a finite number > 0")
        for name in ("prompts", "iterations"):
            check(self, name, isinstance(getattr(self, name), int) and getattr(self, name) > 0, "a whole number > 0")
        check(self, "negative_weight", 0 <= self.negative_weight < math.inf, "a finite number >= 0")
        check(self, "low", -1 <= self.low <= 1, "in [-1, 1]")
        check(self, "high", self.low <= self.high <= 1, "in [low, 1]")
        check(self, "confidence", self.confidence in ("two_sided", "image_to_text"), '"two_sided" or "image_to_text"')
        check(self, "relation", self.relation in ("code", "paper"), '"code" or "paper"')
        check_scale(self)


# official: github.com/hhc1997/NCU@cd338a5 src/ul_clip.py (ContrastiveLoss)
def _unit_rows(x: Tensor) -> Tensor:
    return x / x.sum(1, keepdim=True).clamp_min(1e-12)  # an empty row stays empty; the official code divides 0 by 0


def _divergence(targets: Tensor, logits: Tensor) -> Tensor:
    """Mean over rows of KL(target || softmax(logits)), 0 ln 0 = 0."""
    return (torch.xlogy(targets, targets) - targets * logits.log_softmax(1)).sum() / len(targets)


class Ncu(WholeBatch):
    """Phase 1: 10 relation + 10 margin + yes + no on the confident rows. Phase 2: transport targets + margin."""

    name = "ncu"
    about = About(
        title="NCU",
        summary="Starts from a trained CLIP, learns for every caption its hardest negative by prompts, then fine-tunes "
        "towards transport plans that send the least confident pairs to their negatives. What noisy pairs taught is "
        "thereby unlearned instead of merely down-weighted.",
        paper="Han et al., ICCV 2025",
        equations="Equations 2-12",
        fidelity="official-checked",
        bibtex="""@inproceedings{ncu2025,
  title = {Unlearning the Noisy Correspondence Makes {CLIP} More Robust},
  author = {Han, Haochen and Wang, Alex Jinpeng and Ye, Peijun and Liu, Fangming},
  booktitle = {International Conference on Computer Vision},
  year = {2025}
}""",
        state="logit scale, prompt vectors",
        note="Relation term as in the code, not Equation 4 (preset paper). Confidence of both directions, text targets "
        "that sum to one and the end token of cut captions are not the code's (preset official). The schedule is "
        "the suite's: the official one never warms up and rises again at the end.",
    )
    Config = NcuConfig
    presets: ClassVar[Presets] = {
        "paper": {"relation": "paper", "mean_of_directions": False},
        # official: github.com/hhc1997/NCU@cd338a5 src/ul_clip.py (Invert_Loss, ContrastiveLoss)
        "official": {"confidence": "image_to_text", "normalise_text_targets": False},
    }
    space: ClassVar[Space] = {
        "forget": Log(0.01, 0.5),
        "gamma": Linear(0.0, 1.0),
        "negative_weight": Log(1.0, 100.0),
        "unlearn_lr_scale": Log(0.01, 1.0),
    }
    reference = "clip"
    needs = frozenset({"tokens", "text_transformer"})

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.scale = LogitScale(config.temperature, config.learnable_scale)  # the reference's name
        self.eda = Eda.of(facts, "ncu", config.eda_alpha, config.wordnet)
        self.frozen_blocks = 0
        self.first_prompt: int | None = None  #: position of the first prompt; the tokenizer tells it when it is there
        if not self.eda.synonyms:
            note = f"{self.about.note} Negative captions are edited by swap and deletion only: no synonyms were given."
            self.__dict__["about"] = dataclasses.replace(self.about, note=note)

    def prepare(self, towers: Towers) -> None:
        text = text_tower.parts(towers, "ncu")
        if text.context_length < self.config.prompts + 3:
            raise ValueError(f"prompts = {self.config.prompts} leave no room in {text.context_length} text tokens")
        self.prompts = nn.Parameter(0.02 * torch.randn_like(text.positional_embedding[: self.config.prompts]))
        self.frozen_blocks = portion(self.config.frozen_text, len(text.transformer.resblocks))

    def phases(self) -> tuple[Phase, ...]:
        share = self.config.learn_share
        return (
            Phase("learn", share, self.config.learn_lr_scale, besides_image_backbone),
            Phase("unlearn", 1 - share, self.config.unlearn_lr_scale, self._unlearned),
        )

    def _unlearned(self, name: str) -> bool:
        # The official code lists the token embeddings as frozen too, in a line without effect.
        # official: github.com/hhc1997/NCU@cd338a5 src/train.py (switch_to_clip_mode)
        frozen = tuple(f"towers.text.transformer.resblocks.{i}." for i in range(self.frozen_blocks))
        return name != "method.prompts" and not name.startswith(frozen)

    def options(self, name: str) -> Mapping[str, float]:
        return {"lr": self.config.prompt_lr} if name == "method.prompts" else {}

    def cost(self, phase: str) -> Cost:
        return Cost(image=1.0, text=2.0)

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        negative = self._encode_prompted(towers, towers.tokenize(self.eda.edited(rows)))
        return {**super().encode(towers, rows), "negative": unit(negative)}

    def _encode_prompted(self, towers: Towers, tokens: Tensor) -> Tensor:
        """[b, L] -> [b, D]: the prompts follow the start token, if there is one, and the caption follows them."""
        text, first = text_tower.parts(towers, "ncu"), self.first_prompt
        if first is None:  # a tower that reads out its first token has one that is no word
            first = self.first_prompt = int(text.pool_type == "first" or text_tower.has_start_token(towers))
        last, length = first + self.config.prompts, tokens.shape[1]
        # An id that stands for prompts: neither hidden as padding nor read out as the end.
        filler = min({0, 1, 2} - {text.pad_id, text.eos_id})
        fillers = torch.full_like(tokens[:, first:last], filler)
        moved = torch.cat([tokens[:, :first], fillers, tokens[:, first : length - self.config.prompts]], dim=1)
        # A read-out token that would move beyond the end stays at the end, or the tower would read another one.
        read = text_tower.read_out_places(text, tokens)
        lost = (read >= first) & (read + self.config.prompts >= length)
        moved = torch.cat([moved[:, :-1], torch.where(lost, tokens.gather(1, read), moved[:, -1:])], dim=1)
        x, mask = text._embeds(moved)
        prompts = (self.prompts + text.positional_embedding[first:last]).to(x.dtype).expand(len(x), -1, -1)
        x = torch.cat([x[:, :first], prompts, x[:, last:]], dim=1)
        return text_tower.read_out(text, text.transformer(x, attn_mask=mask), moved)

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        confidence = confidence_odds(log_odds(z, self.scale()), self.config.confidence)
        forgotten = forget_set(confidence, self.config.forget)
        if batch.clock.phase == "learn":
            return {"kept": (~forgotten).nonzero().squeeze(1)}
        return dict(zip(("image_targets", "text_targets"), self._targets(z, forgotten), strict=True))

    def _targets(self, z: Tensors, forgotten: Tensor) -> tuple[Tensor, Tensor]:
        """[B, B+1] and [B+1, B]: transport plans mixed with "forgotten rows belong to their negatives"."""
        config = self.config
        cost = 1 - self._affinities(z)
        # Over all cells, the forbidden ones included; where all embeddings are one the largest cost is 0.
        cost = cost / cost.max().clamp_min(torch.finfo(cost.dtype).eps)
        hard = torch.cat([torch.diag(~forgotten), forgotten[:, None]], dim=1).to(cost.dtype)
        allowed = torch.cat([~torch.diag(forgotten), forgotten[:, None]], dim=1)
        solver = (config.reg, config.iterations, config.threshold)
        by_image = masked_sinkhorn(cost, allowed, *solver)
        # Solved again instead of transposed: the two differ before convergence, and the official code does so.
        # official: github.com/hhc1997/NCU@cd338a5 src/ul_clip.py (ContrastiveLoss.sinkhorn_log_domain_torch)
        by_text = masked_sinkhorn(cost.T, allowed.T, *solver)
        image_targets = config.gamma * _unit_rows(by_image) + (1 - config.gamma) * hard
        text_targets = config.gamma * _unit_rows(by_text) + (1 - config.gamma) * hard.T
        if config.normalise_text_targets:
            text_targets = _unit_rows(text_targets)
        return image_targets, text_targets

    def _affinities(self, z: Tensors) -> Tensor:
        """A, [B, B+1]: <v_i, t_j>, then <v_i, n_i> in the last column."""
        own_negative = (wide(z["image"]) * wide(z["negative"])).sum(1, keepdim=True)
        return torch.cat([similarities(z["image"], z["text"]), own_negative], dim=1)

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        if "kept" in observed:
            return self._learn({name: wide(z[name])[observed["kept"]] for name in ("image", "text", "negative")})
        logits = self.scale() * self._affinities(z)
        transport = _divergence(observed["image_targets"], logits) + _divergence(observed["text_targets"], logits.T)
        if self.config.mean_of_directions:
            transport = transport / 2
        return {"transport": transport, "margin": self._margin(z["text"], z["negative"])}

    def _learn(self, z: Tensors) -> Tensors:
        """Terms of phase 1 on the confident rows (Equations 3-6)."""
        image, text, negative = z["image"], z["text"], z["negative"]
        total, scale, weight = len(image), self.scale(), self.config.negative_weight
        if self.config.relation == "code":
            gap = text @ text.T - negative @ negative.T
        else:
            gap = text @ negative.T - negative @ text.T
        everyone = slice(0, total)
        return {
            "relation": weight * gap.square().sum() / total,
            "margin": weight * self._margin(text, negative),
            "yes": pair_decisions(scale * (image @ text.T), everyone) / total,
            # Opposite signs: an image and its own negative are no pair, an image and another's negative may be one.
            "no": pair_decisions(-scale * (image @ negative.T), everyone) / total,
        }

    def _margin(self, text: Tensor, negative: Tensor) -> Tensor:
        """Mean distance of <t_i, n_i> from [low, high]."""
        own = (wide(text) * wide(negative)).sum(1)
        low, high = torch.relu(self.config.low - own), torch.relu(own - self.config.high)
        return (low + high).mean()

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        image, text, negative = (wide(z[name]) for name in ("image", "text", "negative"))
        series = {
            "image and caption": (image * text).sum(1),
            "image and hardest negative": (image * negative).sum(1),
            "caption and hardest negative": (text * negative).sum(1),
        }
        return (Diagnostic("negatives", "Where the learned negatives stand", "cosine similarity", series),)

    def after_step(self, clock: Clock) -> None:
        # official: github.com/hhc1997/NCU@cd338a5 src/train.py (train_one_epoch)
        if clock.phase == "unlearn":  # the official code leaves phase 1 unclamped
            self.scale.clamp_()
