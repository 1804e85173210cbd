"""How ProLIP's adapter reads a mean and a log-variance out of open_clip's towers, also from masked inputs."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import text_tower
from methods.base import wide
from methods.protocol import Towers

Gaussian = tuple[Tensor, Tensor]  #: unit mean [b, D], log-variance [b, D]
GRID = 8  #: cells a side of a masked image, where the tower has no patches


def _variance_head(width: int, dim: int, logvar: float) -> nn.Linear:
    head = nn.Linear(width, dim)
    nn.init.normal_(head.weight, std=width**-0.5)
    nn.init.constant_(head.bias, logvar)
    return head


def _log_variance(head: nn.Linear, features: Tensor) -> Tensor:
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
        return F.normalize(mean, dim=-1), _log_variance(self.head, visual.ln_post(x[:, -1]))


class PooledImageHead(ImageHead):
    """A log-variance head on the pooled features of a tower without tokens; masked cells get the mean colour."""

    drops_patches = False
    cells = GRID * GRID

    def __init__(self, towers: Towers, logvar: float) -> None:
        super().__init__()
        visual: Any = towers.visual
        modified = hasattr(visual, "attnpool")
        width = visual.attnpool.q_proj.in_features if modified else visual.trunk.num_features
        self.head = _variance_head(width, towers.dim, logvar)

    def forward(self, towers: Towers, images: Tensor, kept: Tensor | None = None) -> Gaussian:
        visual: Any = towers.visual
        if kept is None:
            mean, pooled = self._mean_and_pooled(visual, images)
        else:
            with _running_statistics(visual):
                mean, pooled = self._mean_and_pooled(visual, _keep_cells(images, kept))
        return F.normalize(mean, dim=-1), _log_variance(self.head, pooled)

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


def image_head(towers: Towers, logvar: float) -> ImageHead:
    """The head that fits `towers.visual`; TypeError where none does."""
    from open_clip.modified_resnet import ModifiedResNet
    from open_clip.timm_model import TimmModel
    from open_clip.transformer import VisionTransformer

    visual = towers.visual
    if isinstance(visual, VisionTransformer) and visual.attn_pool is None and not visual.output_tokens:
        return TokenImageHead(towers, logvar)
    if isinstance(visual, ModifiedResNet | TimmModel):
        return PooledImageHead(towers, logvar)
    raise TypeError(f"prolip cannot read a variance out of the image tower {type(visual).__name__}")


class TextHead(nn.Module):
    """Text -> Gaussian, on the tower's own read-out (official code) or on an [UNC] token of its own (paper)."""

    def __init__(self, towers: Towers, logvar: float, own_token: bool) -> None:
        super().__init__()
        width = text_tower.parts(towers, "prolip").width
        self.own_token = own_token
        # The official code replaces masked tokens by an unused id, i.e. by one more learned embedding.
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
            words = (tokens != text.pad_id) & (tokens != text_tower.end_ids(text, tokens))
            masked = (self.mask + text.positional_embedding[: x.shape[1]]).to(x.dtype)
            x = torch.where((replaced & words)[..., None], masked, x)
        if not self.own_token:
            mean = text_tower.read_out(text, text.transformer(x, attn_mask=mask), tokens)
            return F.normalize(mean, dim=-1), _log_variance(self.head, mean)
        token = (self.token + self.position).to(x.dtype).expand(len(x), 1, -1)
        x = text.transformer(torch.cat([x, token], dim=1), attn_mask=_with_last(mask))
        mean = text_tower.read_out(text, x[:, :-1], tokens)
        return F.normalize(mean, dim=-1), _log_variance(self.head, text.ln_final(x[:, -1]))


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
