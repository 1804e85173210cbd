"""The parts of open_clip's text tower, for methods that change what goes in or what is read out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from methods.protocol import Towers

POOLS = ("first", "last", "argmax", "eos")  #: of open_clip's pools those that read one token; "none" keeps them all


def parts(towers: Towers, method: str) -> Any:
    """`towers.text` as an open_clip TextTransformer that reads its embedding at one token of the caption.

    TypeError for any other tower: also with an appended class token, or with a pool that is none of `POOLS`.
    """
    from open_clip.transformer import TextTransformer

    text = towers.text
    if not isinstance(text, TextTransformer) or text.cls_emb is not None or text.output_tokens:
        kind = type(text).__name__
        raise TypeError(f"{method} changes the text tower and needs open_clip's plain TextTransformer, not {kind}")
    if text.pool_type not in POOLS:
        known = ", ".join(POOLS)
        raise TypeError(
            f"{method} changes the text tower and needs to know which token it is read out at: "
            f"text_cfg.pool_type is {text.pool_type!r}, but it must be one of {known}"
        )
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


def read_out_places(text: Any, tokens: Tensor) -> Tensor:
    """[b, 1] int64: the position in each row [b, L] whose token the tower reads out, as open_clip pools."""
    if text.pool_type == "argmax":
        return tokens.argmax(1, keepdim=True)
    if text.pool_type == "eos":
        return tokens.eq(text.eos_id).int().argmax(1, keepdim=True)
    place = {"first": 0, "last": tokens.shape[1] - 1}[text.pool_type]
    return torch.full_like(tokens[:, :1], place)


def has_start_token(towers: Towers) -> bool:
    """Whether the tokenizer begins every caption alike; on meta, where costs are counted, as most do."""
    first = towers.tokenize(["a cat", "the dog", ""])[:, 0]
    return first.is_meta or bool((first == first[0]).all())
