"""The configurations of towers, which are part of a run's id. Needs no torch."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from bench.errors import UserError, one_line
from bench.reading import JSON_BYTES, parse_json, read_file

TowerConfig = dict[str, Any]
Channels: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  #: mean and standard deviation of red, green, blue

CLIP_CHANNELS: Channels = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
IMAGENET_CHANNELS: Channels = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# official: github.com/bokun-wang/NUCLR@ddaec8d clip.py (create_zeroshot_dataloader), its values for CIFAR-10
CIFAR_CHANNELS: Channels = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))

#: Vision towers for CPUs; `image_size` is set from the data. Ten epochs of CLIP on emoji/train at 32 px (D = 128, one
#: core, top-1 on emoji/iid, 0.1 is chance; a text tower of width 96): timm's test_resnet 6.5 % in 39 CPU seconds,
#: test_byobnet 5.4 in 32, test_convnext 4.7 in 34, test_efficientnet 3.8 in 35, open_clip's ResNet [1, 1, 1, 1] of
#: width 16 4.2 in 46 and of width 32 6.9 in 99, resnet10t 8.7 in 92, this ViT 1.6 in 68.
IMAGE_TOWERS: dict[str, TowerConfig] = {
    "tiny-resnet": {"timm_model_name": "test_resnet", "timm_pool": "avg", "timm_proj": "linear"},
    "tiny-vit": {"layers": 4, "width": 128, "head_width": 32, "patch_size": 8},
}

#: Text towers for short captions, with a vocabulary learned from them. One layer of width 64 lost nothing against two
#: of width 96 (6.7 % each, at a learning rate of 2e-3) and saved a quarter of the step.
TEXT_TOWERS: dict[str, TowerConfig] = {
    "tiny-transformer": {"context_length": 24, "width": 64, "heads": 2, "layers": 1},
}

#: Towers of papers that open_clip has no architecture for, and its RN50 in small.
PAPER_IMAGE_TOWERS: dict[str, TowerConfig] = {
    "tiny-rn50": {"layers": [1, 1, 1, 1], "width": 16, "head_width": 32},
    # torchvision's ResNet-50, averaged: NUCLR's. open_clip's RN50 pools by attention and has no ImageNet weights.
    "resnet50": {"timm_model_name": "resnet50", "timm_pool": "avg", "timm_proj": "linear"},
}
PAPER_TEXT_TOWERS: dict[str, TowerConfig] = {
    # ProLIP's, with CLIP's vocabulary
    "transformer-12x768": {"context_length": 64, "vocab_size": 49408, "width": 768, "heads": 12, "layers": 12},
}

_BERT_BASE = {
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "cls_token_id": 101,
}
#: Text towers of transformers: name on the hub -> configuration, as its page has it. DistilBERT is a BERT without
#: token types, so one configuration serves both.
HF_TEXT_TOWERS: dict[str, TowerConfig] = {
    "bert-base-uncased": _BERT_BASE,
    "distilbert-base-uncased": {**_BERT_BASE, "num_hidden_layers": 6, "type_vocab_size": 0},
}

_MAX_SIZE = 10**6  #: of a vocabulary, a width or a number of layers
BERT_CONTEXT = 77  #: tokens a caption of a tower of transformers unless the suite says otherwise; open_clip's
#: DistilBERT's fields of a configuration, and BERT's
_BERT_FIELDS = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "activation": "hidden_act",
}


@cache
def open_clip_config_files() -> dict[str, Path]:
    """Return architectures of open_clip and their files without importing it."""
    spec = find_spec("open_clip")
    folders = (spec.submodule_search_locations if spec else None) or ()
    return {file.stem: file for folder in folders for file in sorted(Path(folder, "model_configs").glob("*.json"))}


@cache
def open_clip_config(name: str) -> TowerConfig:
    """Return the configuration of an open_clip architecture: embed_dim, vision_cfg, text_cfg and the like."""
    config: TowerConfig = json.loads(open_clip_config_files()[name].read_text())
    return config


def bert_context(config: TowerConfig) -> TowerConfig:
    """Return a configuration of transformers with the context length of a suite without `towers.context`."""
    return {"context_length": min(BERT_CONTEXT, config.get("max_position_embeddings", 512)), **config}


def read_bert(folder: Path) -> TowerConfig:
    """Return a transformers folder's configuration with BERT's names; UserError if it is no (Distil)BERT."""
    path = folder / "config.json"
    try:
        config: TowerConfig = parse_json(read_file(path, JSON_BYTES))
    except (OSError, ValueError) as error:
        raise UserError(f"towers.text: {path}: cannot be read: {one_line(error)}") from error
    if not isinstance(config, dict):
        raise UserError(f"towers.text: {path}: should be a mapping, as transformers writes it")
    kind = config.get("model_type")
    if kind not in ("bert", "distilbert"):
        raise UserError(f"towers.text: {path}: model_type {kind!r} should be 'bert' or 'distilbert'")
    if kind == "distilbert":
        config = {_BERT_FIELDS.get(key, key): value for key, value in config.items()}
        config |= {"layer_norm_eps": 1e-12, "type_vocab_size": 0, "model_type": "bert"}
    for key in (key for key, usual in _BERT_BASE.items() if isinstance(usual, int) and key in config):
        if type(config[key]) is not int or not 0 <= config[key] <= _MAX_SIZE:
            raise UserError(f"towers.text: {path}: {key} {config[key]!r} should be a whole number up to {_MAX_SIZE:,}")
    return config


def quick_gelu(name: str) -> bool:
    """Return whether an architecture of open_clip has QuickGELU, as OpenAI's weights want."""
    return bool(name in open_clip_config_files() and open_clip_config(name).get("quick_gelu"))


def chooses_activation(kind: str, name: str) -> bool:
    """Return whether GELU or QuickGELU is chosen for this "image" or "text" tower of open_clip."""
    if name not in open_clip_config_files():
        return False
    if kind == "text":
        return "hf_model_name" not in open_clip_config(name)["text_cfg"]
    return isinstance(open_clip_config(name)["vision_cfg"].get("layers"), int)
