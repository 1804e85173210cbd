"""Image and text towers through open_clip, their tokenizer, and what turns uint8 pixels into their input."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn

import bench.vision  # noqa: F401  before open_clip, which imports torchvision
from bench.batchnorm import group_batchnorm
from bench.errors import UserError
from bench.tower_configs import IMAGE_TOWERS, TEXT_TOWERS

_MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073])  # the statistics CLIP was trained with
_STD = torch.tensor([0.26862954, 0.26130258, 0.27577711])

PAD, UNKNOWN = "<pad>", "<unk>"


class SmallVocabulary:
    """Byte-pair tokens learned from the training texts: a 49,408-word table would be most of a tiny model.

    The end token has the largest id, because open_clip's text tower reads out at the arg max of the ids.
    """

    def __init__(self, texts: list[str], size: int, context_length: int) -> None:
        tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
        trainer = trainers.BpeTrainer(vocab_size=size - 2, special_tokens=[PAD, UNKNOWN], show_progress=False)
        tokenizer.train_from_iterator(sorted(set(texts)), trainer)
        self._tokenizer = tokenizer
        learned: int = tokenizer.get_vocab_size()
        self.start, self.end, self.size = learned, learned + 1, learned + 2
        self.context_length = context_length
        self._rows: dict[str, list[int]] = {}

    def __call__(self, texts: list[str]) -> Tensor:
        """n strings -> [n, context_length] int64; a long text loses its tail, never its end token."""
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        for text, encoding in zip(new, self._tokenizer.encode_batch(new), strict=True):
            ids = [self.start, *encoding.ids[: self.context_length - 2], self.end]
            self._rows[text] = ids + [0] * (self.context_length - len(ids))
        return torch.tensor([self._rows[text] for text in texts], dtype=torch.int64)


class OpenClipTowers(nn.Module):
    """`visual` and `text` of an open_clip model; the logit scale belongs to the method and is dropped."""

    def __init__(self, clip: nn.Module, tokenizer: Any, dim: int) -> None:
        super().__init__()
        self.visual = clip.get_submodule("visual")
        self.text = clip.get_submodule("text")
        self.dim = dim
        self.context_length = int(clip.context_length)  # type: ignore[arg-type]
        self._tokenizer = tokenizer

    def encode_image(self, images: Tensor) -> Tensor:
        """[b, 3, H, W] normalised -> [b, D], not normalised."""
        out: Tensor = self.visual(images)
        return out

    def encode_text(self, tokens: Tensor) -> Tensor:
        """[b, L] int64 -> [b, D], not normalised."""
        out: Tensor = self.text(tokens)
        return out

    def tokenize(self, captions: list[str]) -> Tensor:
        """b strings -> [b, L] int64 on the towers' device."""
        tokens: Tensor = self._tokenizer(captions)
        return tokens.to(next(self.text.parameters()).device)

    def pooled(self, images: Tensor) -> Tensor:
        """[b, 3, H, W] -> [b, P]: image features before the projection (CLIP's linear-probe protocol).

        A ResNet with attention pooling has no such vector; there it is the mean over positions of its last layer.
        """
        visual: Any = self.visual
        if getattr(visual, "proj", None) is not None:  # VisionTransformer
            projection, visual.proj = visual.proj, None
            try:
                out: Tensor = visual(images)
            finally:
                visual.proj = projection
            return out
        if hasattr(visual, "trunk"):  # timm
            pooled: Tensor = visual.trunk(images)
            return pooled
        x = visual.stem(images)
        for layer in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
            x = layer(x)
        return F.adaptive_avg_pool2d(x, 1).flatten(1)


def normalise(images: np.ndarray, device: torch.device | str = "cpu") -> Tensor:
    """uint8 [b, H, W, 3] -> float32 [b, 3, H, W] by CLIP's channel statistics, channels last in memory."""
    pixels = torch.from_numpy(images).to(device)
    scale = 1.0 / (255.0 * _STD.to(device))
    return pixels.float().mul_(scale).sub_((_MEAN / _STD).to(device)).permute(0, 3, 1, 2)


def build_towers(
    image: str, text: str, dim: int, tokenizer: SmallVocabulary, image_size: int, bn_group: int
) -> OpenClipTowers:
    """Fresh towers, drawn from the global RNG: seed it. Raises UserError for a name that is in neither table."""
    import open_clip

    for field, name, table in (("towers.image", image, IMAGE_TOWERS), ("towers.text", text, TEXT_TOWERS)):
        if name not in table:
            raise UserError(f"{field}: {name!r} is not a tower; known: {', '.join(sorted(table))}")
    vision_cfg = {**IMAGE_TOWERS[image], "image_size": image_size}
    text_cfg = {**TEXT_TOWERS[text], "vocab_size": tokenizer.size}
    towers = OpenClipTowers(open_clip.model.CustomTextCLIP(dim, vision_cfg, text_cfg), tokenizer, dim)
    group_batchnorm(towers.visual, bn_group)
    return towers
