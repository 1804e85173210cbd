"""How ProLIP and PCME++ read a mean and a log-variance out of open_clip's towers, also from masked inputs."""

from __future__ import annotations

import abc
import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import text_tower
from methods.base import RowWise, unit, wide
from methods.protocol import Diagnostic, Tensors, Towers

Gaussian = tuple[Tensor, Tensor]  #: unit mean [b, D], log-variance [b, D]
GRID = 8  #: cells a side of a masked image, where the tower has no patches


def uncertainty(logvar: Tensor) -> Tensor:
    """[n, D] log-variances -> [n] sums of variances."""
    return wide(logvar).exp().sum(-1)


def uncertainty_diagnostic(series: Mapping[str, Tensor]) -> Diagnostic:
    """Distributions of `uncertainty`, legend -> [n]."""
    return Diagnostic("uncertainty", "How uncertain are images and texts?", "sum of variances", series, log=True)


class Probabilistic(RowWise):
    """A method whose images and texts are Gaussians; `prepare` sets the heads, (towers, inputs) -> Gaussian."""

    score = "csd"
    image_head: nn.Module
    text_head: nn.Module

    def image_features(self, towers: Towers, images: Tensor) -> Tensors:
        mean, logvar = self.image_head(towers, images)
        return {"embedding": unit(mean.float()), "logvar": logvar.float()}

    def text_features(self, towers: Towers, tokens: Tensor) -> Tensors:
        mean, logvar = self.text_head(towers, tokens)
        return {"embedding": unit(mean.float()), "logvar": logvar.float()}

    def confidence(self, image: Tensors, text: Tensors) -> Tensor:
        """Minus half the closed-form sampled distance, up to a constant."""
        variance = uncertainty(image["logvar"]) + uncertainty(text["logvar"])
        return (image["embedding"] * text["embedding"]).sum(-1) - variance / 2


def _variance_head(width: int, dim: int, logvar: float, norm: float | None = None) -> nn.Module:
    """Linear map to a log-variance near `logvar`; with `norm` a LayerNorm of this weight behind it."""
    head = nn.Linear(width, dim)
    nn.init.normal_(head.weight, std=width**-0.5)
    nn.init.constant_(head.bias, logvar if norm is None else 0.0)
    if norm is None:
        return head
    last = nn.LayerNorm(dim)
    nn.init.constant_(last.weight, norm)
    nn.init.constant_(last.bias, logvar)
    return nn.Sequential(head, last)


def _log_variance(head: nn.Module, features: Tensor) -> Tensor:
    """The head in single precision: around -10, bfloat16 has steps of 1/16."""
    device = "cpu" if features.is_meta else features.device.type  # meta tensors, which costs are counted on, have none
    with torch.autocast(device, enabled=False):
        out: Tensor = head(wide(features))
    return out


class ImageHead(nn.Module, abc.ABC):
    """Image -> Gaussian. `cells` is the number of parts of an image that can be masked."""

    cells: int
    drops_patches: bool  #: a masked image costs less than a whole one

    @abc.abstractmethod
    def forward(self, towers: Towers, images: Tensor, kept: Tensor | None = None) -> Gaussian:
        """`kept`: [k] cells to keep of every image, on the CPU; None keeps all."""


class TokenImageHead(ImageHead):
    """An [UNC] token beside the patches of a vision transformer; its output gives the log-variance."""

    drops_patches = True

    def __init__(self, towers: Towers, logvar: float) -> None:
        super().__init__()
        visual: Any = towers.visual
        width = visual.conv1.out_channels
        self.cells = visual.positional_embedding.shape[0] - 1
        self.token = nn.Parameter(0.01 * torch.randn(width))
        self.position = nn.Parameter(0.01 * torch.randn(width))
        self.head = _variance_head(width, towers.dim, logvar)

    def forward(self, towers: Towers, images: Tensor, kept: Tensor | None = None) -> Gaussian:
        visual: Any = towers.visual
        x = visual._embeds(images)
        if kept is not None:
            x = torch.cat([x[:, :1], x[:, 1 + kept.to(x.device)]], dim=1)
        token = visual.ln_pre((self.token + self.position).to(x.dtype)).expand(len(x), 1, -1)
        x = visual.transformer(torch.cat([x, token], dim=1))
        pooled, _ = visual._pool(x[:, :-1])
        mean = pooled if visual.proj is None else pooled @ visual.proj
        return unit(mean), _log_variance(self.head, visual.ln_post(x[:, -1]))


class PooledImageHead(ImageHead):
    """A log-variance head on the pooled features of a tower without tokens; masked cells get the mean colour."""

    drops_patches = False
    cells = GRID * GRID

    def __init__(self, towers: Towers, logvar: float, norm: float | None = None) -> None:
        super().__init__()
        visual: Any = towers.visual
        modified = hasattr(visual, "attnpool")
        width = visual.attnpool.q_proj.in_features if modified else visual.trunk.num_features
        self.head = _variance_head(width, towers.dim, logvar, norm)

    def forward(self, towers: Towers, images: Tensor, kept: Tensor | None = None) -> Gaussian:
        visual: Any = towers.visual
        if kept is None:
            mean, pooled = self._mean_and_pooled(visual, images)
        else:
            with _running_statistics(visual):
                mean, pooled = self._mean_and_pooled(visual, _keep_cells(images, kept))
        return unit(mean), _log_variance(self.head, pooled)

    @staticmethod
    def _mean_and_pooled(visual: Any, images: Tensor) -> tuple[Tensor, Tensor]:
        if not hasattr(visual, "attnpool"):
            pooled = visual.trunk(images)
            return visual.head(pooled), pooled
        x = visual.stem(images)
        for layer in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
            x = layer(x)
        # Attention pooling projects at once; before it, the mean over positions stands for "pooled".
        return visual.attnpool(x), x.mean((2, 3))


def has_tokens(towers: Towers, method: str) -> bool:
    """Whether `towers.visual` is a vision transformer; False for a ResNet, TypeError for what `method` cannot read."""
    from open_clip.modified_resnet import ModifiedResNet
    from open_clip.timm_model import TimmModel
    from open_clip.transformer import VisionTransformer

    visual = towers.visual
    if isinstance(visual, VisionTransformer) and visual.attn_pool is None and not visual.output_tokens:
        return True
    if isinstance(visual, ModifiedResNet | TimmModel):
        return False
    raise TypeError(f"{method} cannot read a variance out of the image tower {type(visual).__name__}")


class ForkedImageHead(nn.Module):
    """Vision transformer whose last blocks exist twice; the copies' output, pooled alike, gives the log-variance."""

    def __init__(self, towers: Towers, copies: int, logvar: float, norm: float | None) -> None:
        super().__init__()
        visual: Any = towers.visual
        self.blocks = _last_blocks(visual.transformer, copies, "image")
        self.head = _variance_head(visual.conv1.out_channels, towers.dim, logvar, norm)

    def forward(self, towers: Towers, images: Tensor) -> Gaussian:
        visual: Any = towers.visual
        x, forked = _fork(visual.transformer, self.blocks, visual._embeds(images))
        pooled, _ = visual._pool(x)
        mean = pooled if visual.proj is None else pooled @ visual.proj
        return unit(mean), _log_variance(self.head, visual._pool(forked)[0])


class ForkedTextHead(nn.Module):
    """The same for open_clip's text transformer."""

    def __init__(self, towers: Towers, method: str, copies: int, logvar: float, norm: float | None) -> None:
        super().__init__()
        text = text_tower.parts(towers, method)
        self.method = method
        self.blocks = _last_blocks(text.transformer, copies, "text")
        self.head = _variance_head(text.width, towers.dim, logvar, norm)

    def forward(self, towers: Towers, tokens: Tensor) -> Gaussian:
        text = text_tower.parts(towers, self.method)
        x, mask = text._embeds(tokens)
        x, forked = _fork(text.transformer, self.blocks, x, mask)
        mean = text_tower.read_out(text, x, tokens)
        return unit(mean), _log_variance(self.head, text_tower.pooled(text, forked, tokens))


def _last_blocks(transformer: Any, copies: int, side: str) -> nn.ModuleList:
    blocks: nn.ModuleList = transformer.resblocks
    if copies > len(blocks):
        raise ValueError(f"n_unc_layers = {copies}, but the {side} tower has {len(blocks)} blocks")
    return nn.ModuleList(copy.deepcopy(block) for block in blocks[-copies:])


def _fork(transformer: Any, copies: nn.ModuleList, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Tokens [b, L, width] -> the transformer's output, and that with `copies` in place of its last blocks."""
    shared = len(transformer.resblocks) - len(copies)
    for block in transformer.resblocks[:shared]:
        x = block(x, attn_mask=mask)
    forked = x
    for block in transformer.resblocks[shared:]:
        x = block(x, attn_mask=mask)
    for block in copies:
        forked = block(forked, attn_mask=mask)
    return x, forked


# official: github.com/naver-ai/prolip@59f6324 src/prolip/transformer.py, src/prolip/model.py (text tower)
class TextHead(nn.Module):
    """Text -> Gaussian, on the tower's own read-out (official code) or on an [UNC] token of its own (paper)."""

    def __init__(self, towers: Towers, logvar: float, own_token: bool) -> None:
        super().__init__()
        width = text_tower.parts(towers, "prolip").width
        self.own_token = own_token
        # The official code replaces masked tokens by an unused id, i.e. by one more learned embedding.
        # official: github.com/naver-ai/prolip@59f6324 (masked text: id 32000)
        self.mask = nn.Parameter(0.02 * torch.randn(width))
        if own_token:
            self.token = nn.Parameter(0.01 * torch.randn(width))
            self.position = nn.Parameter(0.01 * torch.randn(width))
        self.head = _variance_head(width if own_token else towers.dim, towers.dim, logvar)

    def forward(self, towers: Towers, tokens: Tensor, replaced: Tensor | None = None) -> Gaussian:
        """`replaced`: bool [b, L], tokens to mask; padding and the read-out token never are. None masks nothing."""
        text = text_tower.parts(towers, "prolip")
        x, mask = text._embeds(tokens)
        if replaced is not None:
            places = torch.arange(tokens.shape[1], device=tokens.device)
            words = (tokens != text.pad_id) & (places != text_tower.read_out_places(text, tokens))
            masked = (self.mask + text.positional_embedding[: x.shape[1]]).to(x.dtype)
            x = torch.where((replaced & words)[..., None], masked, x)
        if not self.own_token:
            mean = text_tower.read_out(text, text.transformer(x, attn_mask=mask), tokens)
            return unit(mean), _log_variance(self.head, mean)
        token = (self.token + self.position).to(x.dtype).expand(len(x), 1, -1)
        x = text.transformer(torch.cat([x, token], dim=1), attn_mask=_with_last(mask))
        mean = text_tower.read_out(text, x[:, :-1], tokens)
        return unit(mean), _log_variance(self.head, text.ln_final(x[:, -1]))


def _with_last(mask: Tensor | None) -> Tensor | None:
    """[..., L, L] additive mask -> [..., L + 1, L + 1]: the new last token sees what the last one saw and itself.

    The others do not see it, so that the means are those of the plain tower.
    """
    if mask is None:
        return None
    mask = torch.cat([mask, mask[..., -1:, :]], dim=-2)
    column = torch.full_like(mask[..., :1], float("-inf"))
    column[..., -1, :] = 0.0
    return torch.cat([mask, column], dim=-1)


def _keep_cells(images: Tensor, kept: Tensor) -> Tensor:
    """All but the `kept` cells of a GRID x GRID division become 0, the mean colour of normalised images."""
    grid = torch.zeros(GRID * GRID, dtype=torch.bool)
    grid[kept] = True
    shown = grid.reshape(1, 1, GRID, GRID).to(images.device, images.dtype)
    return images * F.interpolate(shown, size=images.shape[-2:], mode="nearest")


@contextmanager
def _running_statistics(module: nn.Module) -> Iterator[None]:
    """Let batch norms use their running statistics, and leave those alone.

    A masked sub-batch has few rows in a micro-batch: statistics of its own would depend on how the batch is cut.
    """
    norms = [norm for norm in module.modules() if getattr(norm, "running_mean", None) is not None and norm.training]
    for norm in norms:
        norm.training = False
    try:
        yield
    finally:
        for norm in norms:
            norm.training = True
