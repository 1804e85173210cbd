"""SuperCLIP: the image features also say which tokens their caption has, rare tokens counting most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.base import Contrastive, Presets, check, check_scale, info_nce, unit, wide
from methods.protocol import TEMPERATURE, About, Batch, Facts, Identity, Log, Need, Rows, Space, Tensors, Towers

SMALLEST = 1e-12  #: sum of a caption's weights, below which they are not divided by it


# official: github.com/hustvl/SuperCLIP@fb59c6d superclip/open_clip/loss.py (SuperClipLoss)
# official: github.com/hustvl/SuperCLIP@fb59c6d superclip/open_clip/superclip_model.py, transformer.py (MixClsHead)
@dataclass(frozen=True)
class SuperclipConfig:
    """Hyper-parameters of SuperCLIP; defaults are those of the official code."""

    class_weight: float = 1.0  #: omega, weight of the loss over tokens
    #: x, what the head reads: "patches", the mean of a vision transformer's normalised patch tokens, or of the last
    #: layer's positions where there are none; "embedding", what the contrast reads, before its division by the length
    feature: Literal["patches", "embedding"] = "patches"
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "class_weight", 0 <= self.class_weight < math.inf, "a finite number >= 0")
        check(self, "feature", self.feature in ("patches", "embedding"), '"patches" or "embedding"')
        check_scale(self)


class Superclip(Contrastive):
    """L = CLIP + (omega/B) sum_i CE(q_i, softmax(y_i)), y_i = W LN(x_i) + b over the V tokens of the vocabulary.

    q_i is spread over the distinct tokens k of caption i in proportion to w_k = ln[(n + 1) / (c_k + 1)]: n captions
    have been seen, these too, c_k of them with token k. It is 0 if none of them weighs anything.
    """

    name = "superclip"
    about = About(
        title="SuperCLIP",
        summary="Adds a linear head that tells a caption's tokens from the image features, weighted by how rare they "
        "are. Details that the contrast within a batch never needs are then learned too.",
        paper="Zhao et al., NeurIPS 2025",
        equations="as in the authors' code, SuperClipLoss",
        fidelity="official-checked",
        bibtex="""@inproceedings{zhao2025superclip,
  title = {{SuperCLIP}: {CLIP} with Simple Classification Supervision},
  author = {Zhao, Weiheng and Huang, Zilong and Feng, Jiashi and Wang, Xinggang},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2025}
}""",
        state="logit scale, head and its norm, captions seen and how many of them had each token",
        note="Read from the authors' code, not from the paper; not made against noise. As there, start, end and "
        "padding are tokens like any other: one that every caption so far had weighs nothing. A tower without "
        "patch tokens gives the mean over the positions of its last layer, which is a departure. The features "
        "of timm's transformers are those that the model's own head pools, not always a mean of patches.",
    )
    Config = SuperclipConfig
    presets: ClassVar[Presets] = {"official": {"class_weight": 1.0, "feature": "patches"}}
    space: ClassVar[Space] = {**TEMPERATURE, "class_weight": Log(0.03, 10.0)}
    needs: ClassVar[frozenset[Need]] = frozenset({"pixels", "tokens", "text_transformer"})
    identities = (Identity("without the loss over tokens it is CLIP", equals="clip", config={"class_weight": 0.0}),)

    captions: Tensor
    captions_with: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("captions", torch.tensor(0))

    @classmethod
    def needs_under(cls, config: Any) -> frozenset[Need]:
        return cls.needs if config.feature == "patches" else cls.needs - {"pixels"}

    def prepare(self, towers: Towers) -> None:
        tables = [module.num_embeddings for module in towers.text.modules() if isinstance(module, nn.Embedding)]
        width = _width(towers.visual) if self.config.feature == "patches" else towers.dim
        self.add_head(width, max(tables))

    def add_head(self, width: int, vocabulary: int) -> None:
        """Add the head over V tokens, N(0, 1/width) and no bias at first, and their counts."""
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        nn.init.normal_(self.head.weight, std=width**-0.5)
        nn.init.zeros_(self.head.bias)
        self.register_buffer("captions_with", torch.zeros(vocabulary, dtype=torch.int64))

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        if self.config.feature == "patches":
            image, pooled = _with_features(towers.visual, rows.images)
        else:
            image = pooled = towers.encode_image(rows.images)
        return {
            "image": unit(image),
            "text": unit(towers.encode_text(rows.tokens)),
            "pooled": wide(pooled),
            "tokens": rows.tokens.sort(1).values,  # so that repetitions are neighbours
        }

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        """Count the batch's captions by token, then weigh their tokens: `targets` q [B, L], as the tokens are."""
        tokens = z["tokens"]
        first = torch.ones_like(tokens)  # 0 where a token repeats the one before it
        first[:, 1:] = tokens[:, 1:] != tokens[:, :-1]
        self.captions_with.index_add_(0, tokens.flatten(), first.flatten())
        self.captions += len(tokens)
        rarity = ((self.captions.double() + 1) / (self.captions_with + 1)).log()
        weights = first * rarity[tokens]
        targets = weights / weights.sum(1, keepdim=True).clamp(min=SMALLEST)
        return {"targets": targets.to(z["image"].dtype)}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        logits = self.head(self.norm(wide(z["pooled"][anchors])))
        missed = logits.logsumexp(1, keepdim=True) - logits.gather(1, z["tokens"][anchors])
        tokens = self.config.class_weight * (observed["targets"][anchors] * missed).sum() / z["image"].shape[0]
        return {"contrastive": info_nce(z, self.scale(), anchors), "tokens": tokens}

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"tokens_seen": float((self.captions_with > 0).sum())}


def _width(visual: Any) -> int:
    """Numbers of the features that `_with_features` gives. TypeError for a tower that it cannot read."""
    if hasattr(visual, "attnpool"):
        return int(visual.attnpool.q_proj.in_features)
    if hasattr(visual, "trunk"):
        return int(visual.trunk.num_features)
    if hasattr(visual, "class_embedding") and visual.attn_pool is None and not visual.output_tokens:
        return int(visual.conv1.out_channels)
    raise TypeError(f"superclip cannot read the last layer of the image tower {type(visual).__name__}")


def _with_features(visual: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    """[b, 3, H, W] -> embedding [b, D], and the last layer's mean over places [b, W], both of one forward."""
    if hasattr(visual, "attnpool"):  # open_clip's ResNet
        x = visual.stem(images)
        for layer in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
            x = layer(x)
        return visual.attnpool(x), x.mean((2, 3))
    if hasattr(visual, "trunk"):  # timm
        features = visual.trunk.forward_features(images)
        pooled = visual.trunk.forward_head(features, pre_logits=True)
        if pooled.ndim > 2:  # open_clip's head pools
            pooled = F.adaptive_avg_pool2d(pooled, 1).flatten(1) if pooled.ndim == 4 else pooled.mean(1)
        return visual.head(visual.trunk.forward_head(features)), pooled
    x = visual.transformer(visual._embeds(images))
    embedding, _ = visual._pool(x)
    patches = visual.ln_post(x)[:, 1:]
    return embedding if visual.proj is None else embedding @ visual.proj, patches.mean(1)
