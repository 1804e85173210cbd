"""BERT and DistilBERT as text towers, in the parts that open_clip's own text tower has.

open_clip's HFTextEncoder hides tokens and blocks behind transformers' model, but methods read and change them (prompts,
masked tokens, copied blocks, frozen blocks), and it knows no DistilBERT. DistilBERT is a BERT without token types,
under other names; both are read out at their first token and projected linearly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

import bench.machine.torchvision_fix  # noqa: F401  before anything imports open_clip

# isort: split
from open_clip.transformer import TextTransformer

from bench.errors import UserError

#: our names of a BERT's parts, and those in a state dict of transformers' BertModel; {} stands for the same words
_NAMES = (
    ("token_embedding.weight", "embeddings.word_embeddings.weight"),
    ("positional_embedding", "embeddings.position_embeddings.weight"),
    ("type_embedding", "embeddings.token_type_embeddings.weight"),
    ("transformer.resblocks.0.norm.{}", "embeddings.LayerNorm.{}"),
    ("transformer.resblocks.{}.layer.{}", "encoder.layer.{}.{}"),
)
#: DistilBERT's names of a block's parts, and BERT's
_DISTILLED = (
    (r"^transformer\.layer\.", "encoder.layer."),
    (r"\.attention\.([qkv])_lin\.", r".attention.self.\1_lin."),
    (r"\.q_lin\.", ".query."),
    (r"\.k_lin\.", ".key."),
    (r"\.v_lin\.", ".value."),
    (r"\.attention\.out_lin\.", ".attention.output.dense."),
    (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
    (r"\.ffn\.lin1\.", ".intermediate.dense."),
    (r"\.ffn\.lin2\.", ".output.dense."),
    (r"\.output_layer_norm\.", ".output.LayerNorm."),
)


def hf_name(name: str) -> str:
    """Return the name in open_clip's HFTextEncoder of a parameter of `BertText`; the projection has none there."""
    return f"transformer.{theirs}" if (theirs := _renamed(name, _NAMES)) else name


def _renamed(name: str, table: Iterable[tuple[str, str]]) -> str | None:
    for one, other in table:
        if found := re.fullmatch(re.escape(one).replace(r"\{\}", "(.+?)"), name):
            return other.format(*found.groups())
    return None


def own_name(name: str) -> str | None:
    """Return a parameter's name in `BertText` from that in a state dict of (Distil)BERT; None if a tower drops it.

    Heads, poolers and buffers are dropped; old files' "gamma" and "beta" are weight and bias.
    """
    name = re.sub(r"^(bert|distilbert)\.", "", name)
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
    for distilled, plain in _DISTILLED:
        name = re.sub(distilled, plain, name)
    return _renamed(name, [(theirs, ours) for ours, theirs in _NAMES])


def bert_config(config: dict[str, Any]) -> Any:
    """Return transformers' BertConfig of one of our configurations; UserError if transformers is not installed."""
    try:
        from transformers import BertConfig
    except ImportError as error:
        raise UserError("towers.text: BERT needs transformers; pip install 'robust-cl-bench[bert]'") from error
    known = {key: value for key, value in config.items() if key in BertConfig().to_dict() and key != "architectures"}
    types = max(1, known.get("type_vocab_size", 2))  # BertModel wants at least one
    return BertConfig(**{**known, "type_vocab_size": types, "is_decoder": False, "add_cross_attention": False})


class BertText(TextTransformer):  # type: ignore[misc]
    """BERT as a text tower: maps tokens [b, L] to [b, D], token 0 of the last layer, projected.

    A text is read out at BERT's first token, [CLS], where open_clip's tower has "eos".
    """

    def __init__(self, config: dict[str, Any], dim: int, cls_id: int) -> None:
        nn.Module.__init__(self)  # open_clip's own __init__ would build its own blocks
        made, context_length = bert_config(config), config["context_length"]
        from transformers import BertModel

        if context_length > made.max_position_embeddings:
            raise UserError(f"towers.context: {context_length} should be at most {made.max_position_embeddings}")
        model = BertModel(made, add_pooling_layer=False)
        embeddings, width = model.embeddings, made.hidden_size
        self.output_tokens, self.pool_type, self.cls_emb, self.attn_mask = False, "eos", None, None
        self.num_pos = self.context_length = context_length
        self.vocab_size, self.width, self.output_dim = made.vocab_size, width, dim
        self.heads, self.pad_id, self.eos_id = made.num_attention_heads, made.pad_token_id, cls_id
        self.token_embedding = embeddings.word_embeddings
        self.positional_embedding = embeddings.position_embeddings.weight
        types = embeddings.token_type_embeddings.weight if config.get("type_vocab_size", 2) else None
        self.register_parameter("type_embedding", types)
        first = _Block(model.encoder.layer[0], embeddings.LayerNorm, made.hidden_dropout_prob)
        self.transformer = _Blocks([first, *(_Block(layer) for layer in model.encoder.layer[1:])], width)
        self.ln_final = nn.Identity()
        self.text_projection = nn.Linear(width, dim, bias=False)
        nn.init.normal_(self.text_projection.weight, std=width**-0.5)

    def _embeds(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """[b, L] -> sums of embeddings [b, L, W], not yet normalised; additive mask [b, 1, L, L] of the padding."""
        x = self.token_embedding(text) + self.positional_embedding[: text.shape[1]]
        if self.type_embedding is not None:
            x = x + self.type_embedding[0]
        padding = torch.zeros(text.shape, dtype=x.dtype, device=x.device).masked_fill(text == self.pad_id, -torch.inf)
        return x, padding[:, None, None].expand(-1, -1, text.shape[1], -1)


class _Block(nn.Module):
    """A layer of BERT; the first one normalises the embeddings, so that a method can still add to their sum."""

    def __init__(self, layer: nn.Module, norm: nn.Module | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = layer, norm, nn.Dropout(dropout)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        if self.norm is not None:
            x = self.dropout(self.norm(x))
        out = self.layer(x, attn_mask)
        return torch.as_tensor(out[0] if isinstance(out, tuple) else out)  # a tuple before transformers 5


class _Blocks(nn.Module):
    """The parts of open_clip's Transformer that methods use."""

    def __init__(self, blocks: list[nn.Module], width: int) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(blocks)
        self.width, self.layers = width, len(blocks)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        for block in self.resblocks:
            x = block(x, attn_mask=attn_mask)
        return x
