"""Towers of a run on stored features: trained heads that map a feature vector to the shared embedding."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from bench.catalogue.architectures import TowerConfig
from bench.towers.tokenization import Tokenizer


class Head(nn.Module):
    """A stored feature vector x [b, P] -> [b, D], not normalised. x enters as it is stored; nothing is normalised.

    linear: y = W x + b
    mlp: y = W_{n+1} h_n + b_{n+1} with h_0 = x, h_i = dropout(GELU(W_i h_{i-1} + b_i)); n = `layers`, h_i [b, hidden]
    residual: y = p + mlp(p) with p = W_0 x + b_0 [b, D], or p = x if P = D

    Weights are drawn as torch draws those of `nn.Linear`: uniformly in +-1 / sqrt(its inputs).
    """

    def __init__(self, width: int, dim: int, kind: str, hidden: int, layers: int, dropout: float) -> None:
        """width: P, numbers of a stored feature vector; dim: D; the others as in `HeadSettings`."""
        super().__init__()
        self.width, self.context_length = width, width
        self.residual = kind == "residual"
        if kind == "linear":
            self.first: nn.Module = nn.Identity()
            self.layers: nn.Module = nn.Linear(width, dim)
            return
        self.first = nn.Linear(width, dim) if self.residual and width != dim else nn.Identity()
        wide = [dim if self.residual else width, *[hidden] * layers]
        parts: list[nn.Module] = []
        for before, after in pairwise(wide):
            parts += [nn.Linear(before, after), nn.GELU(), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*parts, nn.Linear(wide[-1], dim))

    def forward(self, features: Tensor) -> Tensor:
        """[b, P] of any floating type -> [b, D], not normalised."""
        x = self.first(features.to(next(self.parameters()).dtype))
        out: Tensor = self.layers(x)
        return x + out if self.residual else out

    def pooled(self, features: Tensor) -> Tensor:
        """[b, P] -> [b, D], what a probe reads: the head's output. What lies before it is the same for every run."""
        out: Tensor = self(features)
        return out

    def blank(self, rows: int, device: torch.device | str) -> Tensor:
        """Return an uninitialised batch [rows, P] of stored features, to count costs by."""
        return torch.empty(rows, self.width, dtype=next(self.parameters()).dtype, device=device)


def image_head(_name: str, config: TowerConfig, dim: int) -> nn.Module:
    """Build the image tower; `config` has "width" and "head"."""
    return Head(config["width"], dim, **config["head"])


def text_head(_name: str, config: TowerConfig, dim: int, tokenizer: Tokenizer) -> nn.Module:
    """Build the text tower; its input is as wide as the vectors that the tokenizer looks up."""
    return Head(tokenizer.size, dim, **config["head"])
