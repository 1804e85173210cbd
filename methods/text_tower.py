"""The parts of open_clip's text tower, for methods that change what goes in or what is read out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from methods.protocol import Towers


def parts(towers: Towers, method: str) -> Any:
    """`towers.text` as an open_clip TextTransformer without an appended class token; TypeError for any other tower."""
    from open_clip.transformer import TextTransformer

    text = towers.text
    if not isinstance(text, TextTransformer) or text.cls_emb is not None or text.output_tokens:
        kind = type(text).__name__
        raise TypeError(f"{method} changes the text tower and needs open_clip's plain TextTransformer, not {kind}")
    return text


def pooled(text: Any, x: Tensor, tokens: Tensor) -> Tensor:
    """Last layer [b, L, width] -> [b, width] as the tower itself pools."""
    from open_clip.transformer import text_global_pool

    pool = text_global_pool(text.ln_final(x), tokens, pool_type=text.pool_type, eos_token_id=text.eos_id)
    return torch.as_tensor(pool)


def read_out(text: Any, x: Tensor, tokens: Tensor) -> Tensor:
    """Last layer [b, L, width] -> [b, D] as the tower itself pools and projects."""
    pool, projection = pooled(text, x, tokens), text.text_projection
    if projection is None:
        return pool
    out: Tensor = projection(pool) if isinstance(projection, torch.nn.Linear) else pool @ projection
    return out


def end_ids(text: Any, tokens: Tensor) -> Tensor:
    """[b, 1] id of each row's read-out token: the largest one, or the tower's own end token."""
    if text.pool_type == "eos":
        return torch.full_like(tokens[:, :1], text.eos_id)
    return tokens.amax(1, keepdim=True)
